"""``plumbline variants``: the server configurations that some checks need."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.embedded_brokers import configurations
from plumbline.conformance.variants import Variant
from plumbline.errors import UsageProblem

WIDTH = 100

EPILOG = """
Some checks need a server with authentication, permissions or limits. Start the same server again with such a
configuration, and give its URL to verify.

\b
Examples:

\b
  plumbline variants                           list all, with the credentials that they need
  plumbline variants auth > auth.json          print the configuration of one, as nats-server reads it
  nats-server -c auth.json -p 4300
  plumbline verify URL --variant auth=nats://plumb:line@127.0.0.1:4300
"""

app = command_app()


@app.command("variants", epilog=EPILOG)
def variants(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print the configuration of this variant as JSON.")
    ] = None,
) -> None:
    """List the server configurations that some checks need."""
    known = configurations()
    if name is None:
        typer.echo("\n\n".join(_described(variant) for variant in known.values()))
    elif name in known:
        typer.echo(json.dumps(known[name].config, indent=2, ensure_ascii=False))
    else:
        raise UsageProblem(f"variant {name!r} is not known; known are: {', '.join(known)}")


def _described(variant: Variant) -> str:
    texts = [variant.description]
    for role, fields in variant.credentials.items():
        texts.append(f"{role}: " + ", ".join(f"{field} {value}" for field, value in fields.items()))
    wrapped = (textwrap.fill(t, WIDTH, initial_indent="    ", subsequent_indent="    ") for t in texts)
    return "\n".join([typer.style(variant.name, bold=True), *wrapped])
