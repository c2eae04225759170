"""Known divergences of released servers: ``known.toml``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.trial import TrialDifference
from plumbline.versions import holds

KNOWN = Path(__file__).with_name("known.toml")


class KnownDivergence(Struct, frozen=True, forbid_unknown_fields=True):
    """One of them; ``versions`` is a range of releases, empty for all."""

    command: str | list[str]
    shows: str  # a regular expression
    given: str
    reason: str
    versions: str = ""
    restarted: bool = False  # only at or behind a restart
    sometimes: bool = False  # only what did not show again

    def explains(
        self,
        difference: TrialDifference,
        program: Program,
        level: tuple[int, ...],
        *,
        is_reproducible: bool = True,
    ) -> bool:
        """Whether ``difference`` is this one; not ``is_reproducible``: it did not show again."""
        commands = [self.command] if isinstance(self.command, str) else self.command
        return (
            is_reproducible != self.sometimes
            and type(difference.command).__name__ in commands
            and re.search(self.shows, difference.message) is not None
            and holds(self.versions, ".".join(map(str, level)))
            and self.given in msgspec.json.encode(program).decode()
            and (difference.restarted or not self.restarted)
        )


class _KnownFile(Struct, forbid_unknown_fields=True):
    known: list[KnownDivergence]


def known_divergences() -> list[KnownDivergence]:
    """All of them."""
    return msgspec.convert(tomllib.loads(KNOWN.read_text("utf-8")), _KnownFile).known
