"""What the facts of both protocols share. Readers make facts from operations, monitors judge them."""

from __future__ import annotations

from msgspec import Struct

from plumbline.monitors.observation import Place


class Fact(Struct, frozen=True, tag=True, kw_only=True):
    """Something that was seen, where, on which server."""

    place: Place
    server: str = ""


class StreamFact(Fact, frozen=True, kw_only=True):
    """A fact about a stream, whoever saw it. ``domain`` is that of JetStream, empty if none is known."""

    stream: str
    domain: str = ""
