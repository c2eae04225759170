"""Searches places for secrets, and knows where a secret may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from ahocorasick_rs import BytesAhoCorasick
from msgspec import Struct

from tests.leaks.places import Piece, files_in, pieces
from tests.leaks.spellings import spellings

# An NKey seed of any kind, and a private key: whoever made it, it is a secret. Each begins with a letter, not
# with what may not be before it: a search for a letter is many times as fast.
SHAPES = {
    "the seed of an NKey": re.compile(rb"S(?<![A-Z2-7]S)[ACNOUX][A-Z2-7]{56}(?![A-Z2-7])"),
    "a private key": re.compile(rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"),
}

# Where a secret is what a server, a client or a test needs to have: file names, and why.
ALLOWED = {
    "*.conf": "the configuration of a server, with its users",
    "*.creds": "a user's JWT and seed, read by the command under test",
    "*.nk": "a seed, read by the command under test",
    "*.key": "a private key",
    "*.pem": "a certificate with its private key",
    "*.pyc": "a compiled test",
    "secret": "a password, read by the command under test",
}

# Folders of tests, as pytest shortens their names, in which a secret is meant to be, and why.
MEANT = {
    "test_with_secrets_kept_a_note_*": "recorded with its secrets, as asked for",
    "test_a_note_does_not_have_the_*": "an echo sends the login back, and what a server sends is kept",
    "test_a_note_on_a_connect_has_n*": "an echo sends the login back, and what a server sends is kept",
    "test_a_note_on_a_login_to_amqp*": "an echo sends the login back, and what a server sends is kept",
    "test_a_recording_is_without_se*": "an echo sends the login back, and what a server sends is kept",
    "test_wireshark_names_the_metho*": "an echo sends the login back, and what a server sends is kept",
    "test_seeds_and_private_keys_ar*": "written for this search to find",
    "test_the_command_prints_places*": "written for this search to find",
}


class Hit(Struct, frozen=True):
    """A secret, by the place of the test that has it; its value is not repeated."""

    place: str
    at: int
    what: str

    def __str__(self) -> str:
        return f"{self.place}: byte {self.at}: {self.what}"


class Search:
    """For the spellings of ``secrets``: their values, and where each is from."""

    def __init__(self, secrets: Mapping[str, str], allowed: Iterable[str] = ALLOWED) -> None:
        self._allowed = tuple(allowed)
        needles = {
            spelled: f"a secret of {where} ({name})"
            for secret, where in secrets.items()
            for spelled, name in spellings(secret).items()
        }
        self._needles = tuple(needles.values())
        self._all_at_once = BytesAhoCorasick(needles)

    def hits(self, folder: Path) -> Iterator[Hit]:
        """In every file below ``folder``, or in this file."""
        for path in files_in(folder):
            is_allowed = any(fnmatch(path.name, pattern) for pattern in self._allowed)
            if is_allowed or _is_meant(path.relative_to(folder)):
                continue
            for piece in pieces(path):
                yield from self._in(piece)

    def _in(self, piece: Piece) -> Iterator[Hit]:
        data = bytes(piece.data) if isinstance(piece.data, memoryview) else piece.data
        first: dict[int, int] = {}
        for needle, at, _ in self._all_at_once.find_matches_as_indexes(data, overlapping=True):
            first.setdefault(needle, at)
        for needle, at in sorted(first.items()):
            yield Hit(piece.place, piece.at + at, self._needles[needle])
        for what, shape in SHAPES.items():
            if found := shape.search(data):
                yield Hit(piece.place, piece.at + found.start(), what)


def _is_meant(path: Path) -> bool:
    """Whether it is below a folder of one of those tests; ``path`` begins in the folder that is searched."""
    return any(fnmatch(part, pattern) for part in path.parts for pattern in MEANT)
