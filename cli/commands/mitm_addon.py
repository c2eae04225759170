"""``plumbline mitm-addon``: says where the addon for mitmproxy is."""

from __future__ import annotations

from pathlib import Path

import typer

EPILOG = """
Examples:

\b
  mitmweb --mode reverse:tcp://127.0.0.1:4222 -s $(plumbline mitm-addon)
  mitmdump --mode reverse:tls://host:4222 -s $(plumbline mitm-addon) --set plumbline_capture=captures/
"""


def mitm_addon() -> None:
    """Print the path of the addon for mitmproxy, to be given to its option -s.

    It shows NATS and AMQP as operations, and writes captures as plumbline record does. mitmproxy must run in
    an environment where Plumbline is installed: pip install 'plumbline-mq[mitm]'.
    """
    typer.echo(Path(__file__).parents[2] / "proxy" / "mitm" / "addon.py")
