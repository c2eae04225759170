"""Subject mappings: what a ``dest`` makes of a subject that matches its ``src``.

Source: ADR-30, "Subject Transform"; docs.nats.io, "Subject Mapping and Partitioning". Of its functions only
``$1`` and ``{{wildcard(1)}}`` are known here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from plumbline.wire.nats.subjects import ANY_TAIL, ANY_TOKEN, covers

Mapping = Callable[[bytes], bytes | None]

_WILDCARD = re.compile(rb"\$(\d+)|\{\{\s*wildcard\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)


def mapping(src: str, dest: str) -> Mapping:
    """None for a subject that does not match ``src``, which is everything if it is empty."""
    pattern, target = (src or ">").encode(), dest.encode()

    def apply(subject: bytes) -> bytes | None:
        if not covers(pattern, subject):
            return None
        return _fill(target, *_wildcard_matches(pattern, subject)) if target else subject

    return apply


def _wildcard_matches(pattern: bytes, subject: bytes) -> tuple[list[bytes], list[bytes]]:
    """What stands in the place of each ``*``, and the tokens in the place of ``>``."""
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
        number = int(match[1] or match[2])
        return stars[number - 1] if 0 < number <= len(stars) else b""

    tokens: list[bytes] = []
    for token in target.split(b"."):
        tokens += tail if token == ANY_TAIL else [_WILDCARD.sub(star, token)]
    return b".".join(tokens)
