"""Where the verdicts of verify and gate go: the terminal, and the reports that the command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plumbline.reports import Consumer, ReportOptions
    from plumbline.verdicts import Target, WireLine


def consumers(asked: ReportOptions) -> list[Consumer]:
    """The terminal and these reports. Raises ``ReportError`` if one cannot be written."""
    from plumbline.reports import open_reports
    from plumbline.reports.terminal.live import Terminal

    files = open_reports(asked.paths, requirement_url=asked.requirement_url, capture=capture)
    return [*files, Terminal(reports=list(asked.paths.values()))]


def capture(target: Target, wire: Sequence[WireLine], began: float) -> bytes:
    """A pcapng file of what a check exchanged with the target; ``began`` in seconds since 1970."""
    from plumbline.captures.exchange import NOWHERE, Exchanged, exchange_capture
    from plumbline.conformance.journal import MOST_RAW_BYTES
    from plumbline.conformance.urls import BadUrl, parse_url
    from plumbline.wire.sender import BY_ARROW

    try:
        url = parse_url(target.url)
        server = url.host, url.port
    except BadUrl:
        server = NOWHERE
    exchange = (
        Exchanged(
            at=round((began + line.at) * 1e9),
            connection=line.connection,
            direction=BY_ARROW.get(line.direction),
            raw=line.raw[:MOST_RAW_BYTES],
            text=line.text,
            cut=len(line.raw) >= MOST_RAW_BYTES,
        )
        for line in wire
    )
    return exchange_capture(exchange, server)
