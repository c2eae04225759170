"""What the facts of both protocols share. Readers make facts from operations, monitors judge them."""

from __future__ import annotations

from msgspec import Struct

from plumbline.monitors.observation import Place


class Fact(Struct, frozen=True, tag=True, kw_only=True):
    """Something that was seen, where, on which server."""

    place: Place
    server: str = ""


class StreamFact(Fact, frozen=True, kw_only=True):
    """A fact about a stream, whoever saw it. ``domain`` is that of JetStream, empty if none is known.

    ``login``: of its connection. Two connections with one login are in one account, and see one stream of a
    name. Empty if that is unknown: see ``shares_account``.
    """

    stream: str
    domain: str = ""
    login: str = ""

    def shares_account(self, other: StreamFact) -> bool:
        """Whether it is certain that both are of one account."""
        return self.place.connection == other.place.connection or self.login == other.login != ""
