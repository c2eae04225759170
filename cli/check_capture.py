"""What a check saw on the wire, as a capture file that other tools open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plumbline.verdicts import Target, WireLine


def capture(target: Target, wire: Sequence[WireLine], began: float) -> bytes:
    """What a check saw, as a capture file."""
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
