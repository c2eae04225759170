"""Protocol levels, and where the core protocol of servers of different age differs: one named rule each.

A level is ``(major, minor)``, so levels compare. JetStream keeps its own such table, ``jetstream/rules.py``.
A level answers as the release of ``VERSIONS`` does, with which it was compared.
"""

from __future__ import annotations

from msgspec import Struct

from plumbline.versions import numbers

Level = tuple[int, ...]
OLDEST: Level = (2, 9)
NEWEST: Level = (2, 15)
# What INFO says: the release that a level was compared with. Others end in .0.
VERSIONS: dict[Level, str] = {
    (2, 9): "2.9.10",
    (2, 10): "2.10.29",
    (2, 11): "2.11.17",
    (2, 12): "2.12.15",
    (2, 14): "2.14.9",
    (2, 15): "2.15.2",
}


def parse_level(text: str) -> Level:
    """``"2.9"``, ``"2.9.10"`` or ``"newest"``. Raises ``ValueError`` that says what to write."""
    if text.strip().lower() == "newest":
        return NEWEST
    level = numbers(text.strip())[:2]
    if not OLDEST <= level <= NEWEST:
        first, last = (".".join(map(str, known)) for known in (OLDEST, NEWEST))
        raise ValueError(f"level {text!r} is not known: write a level from {first} to {last}, or newest")
    return level


class CoreRules(Struct, frozen=True):
    """The answers of the core protocol in which levels differ."""

    version: str
    api_level: int  # ``api_lvl`` of INFO; 0 leaves it out
    connect_info: bool  # a second INFO, with connect_info, follows the first PONG
    no_responders_names_subject: bool  # the 503 carries Nats-Subject
    blank_for_missing_reply: (
        bool  # messages of the server's own without reply have two blanks before the size
    )
    advisories_name_clients: bool  # the audit of an API request tells who asked, before only the account
    second_connect_drops_subscriptions: bool
    reserved_subjects: tuple[bytes, ...]  # what no client may publish to

    @classmethod
    def of(cls, level: Level) -> CoreRules:
        v2_12 = level >= (2, 12)
        return cls(
            version=release_of(level),
            api_level=api_level(level) if v2_12 else 0,
            connect_info=v2_12,
            no_responders_names_subject=v2_12,
            blank_for_missing_reply=level < (2, 10),
            advisories_name_clients=level >= (2, 10),
            second_connect_drops_subscriptions=level >= (2, 11),
            reserved_subjects=(b"_GR_.",)
            + ((b"$NRG.",) if level >= (2, 11) else ())
            + ((b"$GR.",) if level >= (2, 15) else ()),  # in 2.15.2, not yet in 2.15.0
        )


def release_of(level: Level) -> str:
    """The version that a server of this level shows."""
    return VERSIONS.get(level, ".".join(map(str, level)) + ".0")


def api_level(level: Level) -> int:
    """ADR-44, "API Level" of JetStream; 0 where there is none yet."""
    steps = {(2, 11): 1, (2, 12): 3, (2, 14): 4, (2, 15): 5}
    return max((api for first, api in steps.items() if level >= first), default=0)
