"""``plumbline targets``: real servers by name, what of them is here, and how to get the others.

Alone in this package it needs what the project installs; nothing imports it but the command line.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from plumbline.servers.getting import Way, on_this_machine, version, ways
from plumbline.servers.targets import Target, target, targets

EPILOG = """
Examples:

\b
  plumbline targets                                what there is
  plumbline targets nats-server@2.10.14            one of them, listed or not
  plumbline verify --target nats-server@2.10.14    get it, start it, verify it, stop it
"""

app = typer.Typer(rich_markup_mode=None)


@app.command("targets", epilog=EPILOG)
def show_targets(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="SOFTWARE@VERSION; any release may be named, listed or not."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List real servers to verify: which are on this machine, and how the others are got."""
    asked = [target(name) for name in names or []] or targets()
    rows = [_row(known) for known in asked]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max(len(row["target"]) for row in rows)
    for row in rows:
        typer.echo(f"{row['target']:<{width}}  {row['protocol']:<4}  {_state(row)}")


def _row(known: Target) -> dict[str, Any]:
    """What ``--json`` shows; ``path`` is null where it is not on this machine."""
    path = on_this_machine(known)
    return {
        "target": known.name,
        "protocol": known.software.protocol,
        "description": known.software.description,
        "version": known.version or (version(known, path) if path else ""),
        "path": str(path) if path else None,
        "ways": [_way(way) for way in ways(known)],
    }


def _way(way: Way) -> dict[str, Any]:
    return {"means": way.means, "command": way.command, "possible": not way.missing, "missing": way.missing}


def _state(row: dict[str, Any]) -> str:
    """Here, or the first way that works, or what each way lacks."""
    if row["path"]:
        return f"here     {row['version']:<8} {row['path']}"
    possible = [way["command"] for way in row["ways"] if way["possible"]]
    if possible:
        return f"can be had: {possible[0]}"
    return "missing: " + "; ".join(f"{way['command']}: {way['missing']}" for way in row["ways"])
