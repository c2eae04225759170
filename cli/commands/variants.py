"""``plumbline variants``: the server configurations that some checks need."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated

import typer

from plumbline.cli.command import command_app
from plumbline.cli.embedded_brokers import configurations
from plumbline.conformance.targets.variants import Variant, amqp_variants
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
  plumbline variants amqp-settings             print settings of a broker for AMQP, as JSON
"""

app = command_app()


@app.command("variants", epilog=EPILOG)
def variants(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print the configuration of this variant as JSON.")
    ] = None,
) -> None:
    """List the server configurations that some checks need."""
    nats, amqp = configurations(), amqp_variants()
    if name is None:
        brokers = (_described(label, variant.description) for label, variant in amqp.items())
        typer.echo("\n\n".join((*map(_with_credentials, nats.values()), *brokers)))
    elif name in nats:
        typer.echo(json.dumps(nats[name].config, indent=2, ensure_ascii=False))
    elif name in amqp:
        typer.echo(json.dumps(amqp[name].settings, indent=2, ensure_ascii=False))
    else:
        raise UsageProblem(f"variant {name!r} is not known; known are: {', '.join((*nats, *amqp))}")


def _with_credentials(variant: Variant) -> str:
    texts = []
    for role, fields in variant.credentials.items():
        texts.append(f"{role}: " + ", ".join(f"{field} {value}" for field, value in fields.items()))
    return _described(variant.name, variant.description, *texts)


def _described(name: str, *texts: str) -> str:
    wrapped = (textwrap.fill(t, WIDTH, initial_indent="    ", subsequent_indent="    ") for t in texts)
    return "\n".join([typer.style(name, bold=True), *wrapped])
