"""Subject mappings: what a ``dest`` makes of a subject that matches its ``src``.

Source: ADR-30, "Subject Transform"; docs.nats.io, "Subject Mapping and Transforms". A function of ``dest`` is
a whole token, such as ``{{partition(3,1)}}``; ``$1`` and ``{{wildcard(1)}}`` may be part of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from plumbline.bounds import MAX_MAPPING_CHARACTERS
from plumbline.wire.nats.subjects import ANY_TAIL, ANY_TOKEN, covers, is_valid
from plumbline.wire.units import read_number

Mapping = Callable[[bytes], bytes | None]

_WILDCARD = re.compile(rb"\$(\d+)|\{\{\s*wildcard\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)
_FUNCTION = re.compile(rb"\{\{\s*(\w+)\s*\((.*)\)\s*\}\}")
_ANY_FUNCTION = re.compile(rb"\{\{.*?\}\}")
_SHOWN_BYTES = 40  # of a token in an error
# FNV-1a of 32 bits: which partition a subject is in must be the same on every server.
_FNV_OFFSET, _FNV_PRIME, _32_BITS = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


def mapping(src: str, dest: str) -> Mapping:
    """None for a subject that does not match ``src``, which is everything if it is empty."""
    pattern, target = (src or ">").encode(), [_Token(token) for token in dest.encode().split(b".")]

    def apply(subject: bytes) -> bytes | None:
        if not covers(pattern, subject):
            return None
        if not dest:
            return subject
        stars, tail = _wildcard_matches(pattern, subject)
        tokens: list[bytes] = []
        for token in target:
            tokens += token.filled(stars, tail)
        return b".".join(tokens)

    return apply


def mapping_ends(fields: dict[str, Any]) -> tuple[str, str]:
    """``src`` and ``dest`` of a subject mapping in a configuration; empty for what is missing."""
    return fields.get("src") or "", fields.get("dest") or ""


def mapping_problem(src: str, dest: str) -> str:
    """Why no server takes this mapping, in the words of nats-server; empty if it does."""
    if len(dest) > MAX_MAPPING_CHARACTERS:
        return f"invalid mapping destination: longer than {MAX_MAPPING_CHARACTERS} characters"
    if dest and not is_valid(without_functions(dest)):
        return "invalid mapping destination: invalid transform"
    sources, targets = (src or ">").encode().split(b"."), dest.encode().split(b".")
    if dest and (ANY_TOKEN in targets or (ANY_TAIL in sources) != (ANY_TAIL in targets)):
        return "invalid subject"
    wildcards = sources.count(ANY_TOKEN)
    for token in targets:
        if problem := _Token(token).problem(wildcards):
            return f"invalid mapping destination: {problem} in {token[:_SHOWN_BYTES].decode()}"
    return ""


def without_functions(dest: str) -> bytes:
    """A subject that has a plain token for each function of ``dest``, such as ``{{wildcard(1)}}``."""
    return _ANY_FUNCTION.sub(b"x", dest.encode())


class _Token:
    """One token of a ``dest``."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        found = _FUNCTION.fullmatch(token)
        name = found[1].lower().decode() if found else ""
        self._arguments = [one.strip() for one in found[2].split(b",")] if found else []
        self._function = name if name in _FUNCTIONS else ""
        self._is_unknown = bool(name) and name != "wildcard" and not self._function

    def filled(self, stars: Sequence[bytes], tail: Sequence[bytes]) -> Sequence[bytes]:
        """The tokens in its place. ``stars`` and ``tail``: what the wildcards of ``src`` match."""
        if self._token == ANY_TAIL:
            return tail
        if self._function:
            return _FUNCTIONS[self._function](stars, self._arguments)
        return [_WILDCARD.sub(lambda found: _star(stars, _wildcard_number(found)), self._token)]

    def problem(self, wildcards: int) -> str:
        """Why no server takes it where ``src`` has so many ``*``; empty if it does."""
        if self._is_unknown:
            return "unknown function"
        if self._function and self._arguments_problem():
            return "function argument is invalid or missing"
        numbers = [_wildcard_number(found) for found in _WILDCARD.finditer(self._token)]
        if self._function:
            numbers = [read_number(each) for each in self._references()]
        are_there = all(number is not None and 0 < number <= wildcards for number in numbers)
        return "" if are_there else "wildcard index out of range"

    def _references(self) -> Sequence[bytes]:
        """The arguments that are numbers of wildcards."""
        return self._arguments[1:] if self._function == "partition" else self._arguments[:1]

    def _arguments_problem(self) -> bool:
        if self._function == "partition":
            return len(self._arguments) < 2 or not read_number(self._arguments[0])
        if len(self._arguments) != 2:
            return True
        return not (self._arguments[1] if self._function == "split" else read_number(self._arguments[1]))


def _star(stars: Sequence[bytes], number: int | None) -> bytes:
    return stars[number - 1] if number is not None and 0 < number <= len(stars) else b""


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


# -- functions: of what the wildcards match and their own arguments, the tokens --------------------------


def _partition(stars: Sequence[bytes], arguments: Sequence[bytes]) -> Sequence[bytes]:
    """The number of the partition of some wildcards, one after the other."""
    key = b"".join(_star(stars, read_number(number)) for number in arguments[1:])
    code = _FNV_OFFSET
    for octet in key:
        code = (code ^ octet) * _FNV_PRIME & _32_BITS
    return [b"%d" % (code % (read_number(arguments[0]) or 1))]


def _split(stars: Sequence[bytes], arguments: Sequence[bytes]) -> Sequence[bytes]:
    return [part for part in _token(stars, arguments).split(arguments[1]) if part]


def _split_from_left(stars: Sequence[bytes], arguments: Sequence[bytes]) -> Sequence[bytes]:
    token = _token(stars, arguments)
    return _parts(token, [_size(arguments)])


def _split_from_right(stars: Sequence[bytes], arguments: Sequence[bytes]) -> Sequence[bytes]:
    token = _token(stars, arguments)
    return _parts(token, [len(token) - _size(arguments)])


def _slice_from_left(stars: Sequence[bytes], arguments: Sequence[bytes]) -> Sequence[bytes]:
    token, size = _token(stars, arguments), _size(arguments)
    return _parts(token, range(size, len(token), size))


def _slice_from_right(stars: Sequence[bytes], arguments: Sequence[bytes]) -> Sequence[bytes]:
    token, size = _token(stars, arguments), _size(arguments)
    return _parts(token, range(len(token) % size, len(token), size))


def _token(stars: Sequence[bytes], arguments: Sequence[bytes]) -> bytes:
    return _star(stars, read_number(arguments[0]))


def _size(arguments: Sequence[bytes]) -> int:
    return read_number(arguments[1]) or 1


def _parts(token: bytes, places: Sequence[int]) -> Sequence[bytes]:
    """``token`` cut at these places; a place that is not inside cuts nothing."""
    inside = [place for place in places if 0 < place < len(token)]
    return [token[start:end] for start, end in zip([0, *inside], [*inside, len(token)], strict=True)]


_FUNCTIONS: dict[str, Callable[[Sequence[bytes], Sequence[bytes]], Sequence[bytes]]] = {
    "partition": _partition,
    "split": _split,
    "splitfromleft": _split_from_left,
    "splitfromright": _split_from_right,
    "slicefromleft": _slice_from_left,
    "slicefromright": _slice_from_right,
}
