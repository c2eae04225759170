"""Where the verdicts of verify and gate go: the terminal, and the reports that the command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plumbline.reports import ReportOptions, ReportWriter
    from plumbline.verdicts import Target, WireLine


def consumers(asked: ReportOptions) -> list[ReportWriter]:
    """The terminal and these reports. Raises ``ReportError`` if one cannot be written."""
    from plumbline.reports import open_reports
    from plumbline.reports.terminal.live import TerminalReport

    files = open_reports(asked.paths, requirement_url=asked.requirement_url, capture=capture)
    return [*files, TerminalReport(reports=list(asked.paths.values()))]


def capture(target: Target, wire: Sequence[WireLine], started: float) -> bytes:
    """A pcapng file of what a check exchanged with the target; ``started`` in seconds since 1970."""
    from plumbline.captures.exchange import NOWHERE, ExchangedOperation, exchange_capture
    from plumbline.conformance.sessions.journal import MAX_RAW_BYTES
    from plumbline.conformance.targets.urls import UrlError, parse_url
    from plumbline.wire.sender import BY_ARROW

    try:
        url = parse_url(target.url)
        server = url.host, url.port
    except UrlError:
        server = NOWHERE
    exchange = (
        ExchangedOperation(
            at=round((started + line.at) * 1e9),
            connection=line.connection,
            direction=BY_ARROW.get(line.direction),
            raw=line.raw[:MAX_RAW_BYTES],
            text=line.text,
            cut=len(line.raw) >= MAX_RAW_BYTES,
        )
        for line in wire
    )
    return exchange_capture(exchange, server)
