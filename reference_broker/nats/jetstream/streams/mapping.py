"""Subject mappings: what a ``dest`` makes of a subject that matches its ``src``.

Source: ADR-30, "Subject Transform"; docs.nats.io, "Subject Mapping and Partitioning". Of its functions only
``$1`` and ``{{wildcard(1)}}`` are known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from plumbline.bounds import MAX_MAPPING_CHARACTERS
from plumbline.wire.nats.subjects import ANY_TAIL, ANY_TOKEN, covers
from plumbline.wire.units import read_number

Mapping = Callable[[bytes], bytes | None]

_WILDCARD = re.compile(rb"\$(\d+)|\{\{\s*wildcard\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)
_SHOWN_BYTES = 40  # of a token in an error


def mapping(src: str, dest: str) -> Mapping:
    """None for a subject that does not match ``src``, which is everything if it is empty."""
    pattern, target = (src or ">").encode(), dest.encode()

    def apply(subject: bytes) -> bytes | None:
        if not covers(pattern, subject):
            return None
        return _fill(target, *_wildcard_matches(pattern, subject)) if target else subject

    return apply


def mapping_problem(src: str, dest: str) -> str:
    """Why no server takes this mapping, in the words of nats-server; empty if it does."""
    if len(dest) > MAX_MAPPING_CHARACTERS:
        return f"invalid mapping destination: longer than {MAX_MAPPING_CHARACTERS} characters"
    wildcards = (src or ">").split(".").count(ANY_TOKEN.decode())
    for found in _WILDCARD.finditer(dest.encode()):
        number = _wildcard_number(found)
        if number is None or not 0 < number <= wildcards:
            token = found[0][:_SHOWN_BYTES].decode()
            return f"invalid mapping destination: wildcard index out of range in {token}"
    return ""


def _wildcard_number(found: re.Match[bytes]) -> int | None:
    return read_number(found[1] or found[2])


def _wildcard_matches(pattern: bytes, subject: bytes) -> tuple[list[bytes], list[bytes]]:
    """What is in the place of each ``*``, and the tokens in the place of ``>``."""
    tokens = subject.split(b".")
    stars: list[bytes] = []
    for position, token in enumerate(pattern.split(b".")):
        if token == ANY_TAIL:
            return stars, tokens[position:]
        if token == ANY_TOKEN:
            stars.append(tokens[position])
    return stars, []


def _fill(target: bytes, stars: list[bytes], tail: list[bytes]) -> bytes:
    def star(match: re.Match[bytes]) -> bytes:
        number = _wildcard_number(match)
        return stars[number - 1] if number is not None and 0 < number <= len(stars) else b""

    tokens: list[bytes] = []
    for token in target.split(b"."):
        tokens += tail if token == ANY_TAIL else [_WILDCARD.sub(star, token)]
    return b".".join(tokens)
