"""``plumbline targets``: the real servers that verify and explore can start by name."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.options import TargetsFile
from plumbline.servers.listing import row_of, row_of_user, state_of
from plumbline.servers.targets import target
from plumbline.servers.targets import targets as listed_targets
from plumbline.servers.user_targets import user_target, user_targets

EPILOG = """
A target is 'installed' (version and path follow), 'available' (the command follows that verify runs to
install it) or 'missing' (the reasons follow).

\b
Examples:

\b
  plumbline targets                                all listed targets
  plumbline targets nats-server@2.10.14            any release, listed or not
  plumbline targets --targets-file my.toml         servers of your own
  plumbline verify --target nats-server@2.10.14    install it, start it, verify it, stop it
"""

app = command_app()


@app.command("targets", epilog=EPILOG)
def targets(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="SOFTWARE@VERSION, any release. Default: all listed targets."),
    ] = None,
    *,
    targets_file: TargetsFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List real servers by name, and how to install them."""
    if targets_file is not None:
        users = user_targets(targets_file)
        rows = [row_of_user(user_target(targets_file, name)) for name in names or users]
    else:
        asked = [target(name) for name in names or []] or listed_targets()
        rows = [row_of(known) for known in asked]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max(len(row["target"]) for row in rows)
    for row in rows:
        typer.echo(f"{row['target']:<{width}}  {row['protocol']:<4}  {state_of(row)}")
