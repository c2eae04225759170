"""Differences that are faults of released servers, seen before and understood: ``known.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from conformance.catalogue import within_levels
from conformance.explore.programs import Program
from conformance.explore.trial import Difference

KNOWN = Path(__file__).with_name("known.toml")


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """One of them; ``since`` and ``until`` (exclusive) are levels, empty for no limit."""

    command: str
    shows: str
    given: str
    reason: str
    since: str = ""
    until: str = ""

    def explains(self, difference: Difference, program: Program, level: tuple[int, ...]) -> bool:
        return (
            type(difference.command).__name__ == self.command
            and self.shows in difference.message
            and within_levels(level, since=self.since, until=self.until)
            and self.given in msgspec.json.encode(program).decode()
        )


class _File(Struct, forbid_unknown_fields=True):
    known: list[Fault]


def known_faults() -> list[Fault]:
    """All of them."""
    return msgspec.convert(tomllib.loads(KNOWN.read_text("utf-8")), _File).known
