"""The commands of this package."""

from __future__ import annotations

import typer

from plumbline.cli import mitm_addon as cli_mitm
from plumbline.cli import read as cli_read
from plumbline.cli import record as cli_record
from plumbline.cli import replay as cli_replay


def register(app: typer.Typer) -> None:
    """Mounts them."""
    app.command(epilog=cli_record.EPILOG)(cli_record.record)
    app.command(epilog=cli_read.SHOW_EPILOG)(cli_read.show)
    app.command(epilog=cli_read.TRACE_EPILOG)(cli_read.trace)
    app.command(epilog=cli_read.DIFF_EPILOG)(cli_read.diff)
    app.command(epilog=cli_replay.EPILOG)(cli_replay.replay)
    app.command(epilog=cli_mitm.EPILOG)(cli_mitm.mitm_addon)
