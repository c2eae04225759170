"""``plumbline mitm-addon``: where the addon for mitmproxy is."""

from __future__ import annotations

from pathlib import Path

import typer

from plumbline.cli.command import command_app

EPILOG = """
The addon shows NATS and AMQP as operations, and writes captures as plumbline record does. Install mitmproxy
in the same environment as Plumbline: pip install 'plumbline-mq[mitm]'.

\b
Examples:

\b
  mitmweb --mode reverse:tcp://127.0.0.1:4222 -s $(plumbline mitm-addon)
  mitmdump --mode reverse:tls://host:4222 -s $(plumbline mitm-addon) --set plumbline_capture=captures/
"""

app = command_app()


@app.command("mitm-addon", epilog=EPILOG)
def mitm_addon() -> None:
    """Print the path of the addon for mitmproxy, for its option -s."""
    typer.echo(Path(__file__).parents[2] / "proxy" / "mitm" / "addon.py")
