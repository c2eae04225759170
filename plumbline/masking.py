"""Secrets of a command, found by their value and masked at equal length. Imports nothing of Plumbline.

Who knows a password or a token makes a ``Mask`` of it. What leaves the process as text or as bytes passes
that mask: the journal of a check, results, messages. A server may send a secret back, and a check may write
it in a way of its own, so it is found in every spelling: plain, escaped as JSON or Python do,
percent-encoded, and inside base64. The length never changes: frames, size fields and JSON around a secret
stay readable.

A secret that is short, or is printed anyway as part of the target's URL, is weak: to mask it everywhere
would make reports unreadable and hide nothing. It is masked only where a secret is expected: after the user
in a URL or in SASL, and as the value of a field whose name says so.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote

MIN_CHARACTERS = 6  # of a secret; a shorter one is weak
MIN_BASE64 = 7  # characters that are the same whatever comes before and after

_LONGEST_SPELLING = 16  # bytes for one byte of a secret, at most
_MARGIN_BYTES = 64  # what comes before a weak secret
_ESCAPE = r"\\(?:\\){0,3}"  # an escape inside an escape has more backslashes
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\0": "0", '"': '"', "'": "'", "/": "/"}
_IN_BASE64 = {"+": "[+-]", "/": r"(?:\\)?[/_]"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NO_PORT = re.compile(r":(?!\d{0,5}(?:[/?#]|$))[^\]]*$")
_LOGIN = re.compile(  # NAME=URL and --option=URL, too
    r"(?P<before>(?:[\w-]+=)?(?:[A-Za-z][A-Za-z0-9+.-]*:/{1,2})?+)(?P<user>[^\s@:]*):(?P<secret>\S+)@(?P<place>\S*)"
)
_FIELD = r'"(?:pass|password|auth_token|token)\\*"\s*:\s*\\*"'


class Mask:
    """Masks some secrets. ``longest``: bytes that one may take in any spelling; 0 if there is none."""

    def __init__(self, patterns: Iterable[str] = (), longest: int = 0) -> None:
        """Of a pattern with a group, what is in the group stays, and the rest is masked."""
        self._patterns = tuple(dict.fromkeys(patterns))
        self._of_text = [re.compile(pattern) for pattern in self._patterns]
        self._of_bytes = [re.compile(pattern.encode()) for pattern in self._patterns]
        self.longest = longest

    @classmethod
    def of(cls, secret: str | None, *, user: str | None = None, shown: str = "") -> Mask:
        """A mask of the password of ``user``, or of a token. ``shown``: text that is printed in any case,
        such as the URL without its secrets. Of no secret, and of an empty one, nothing is masked."""
        return _mask_of(secret, user or "", shown) if secret else cls()

    def __or__(self, other: Mask) -> Mask:
        """Masks what either masks."""
        if not other._patterns:
            return self
        return Mask((*self._patterns, *other._patterns), max(self.longest, other.longest))

    def text(self, text: str) -> str:
        """``text`` with an asterisk for each character of a secret."""
        for pattern in self._of_text:
            text = pattern.sub(_asterisks, text)
        return text

    def raw(self, data: bytes) -> bytes:
        """``data`` with an asterisk for each byte of a secret."""
        for pattern in self._of_bytes:
            data = pattern.sub(_asterisk_bytes, data)
        return data

    def beginning(self, data: bytes, size: int) -> bytes:
        """The first ``size`` bytes of ``raw(data)``, without a look at the rest."""
        return self.raw(data[: size + self.longest])[:size]


def masked_url(text: str) -> str:
    """What the user wrote as a URL, right or wrong, without what may be a password: everything up to the last
    ``@``, or, where there is none, what should be a port and is none."""
    scheme = _SCHEME.match(text)
    start = scheme.end() if scheme else 0
    _, at, place = text[start:].rpartition("@")
    return text[:start] + (f"***@{place}" if at else _NO_PORT.sub(":***", place))


def mask_of_arguments(arguments: Iterable[str]) -> Mask:
    """A mask of the password of each argument that looks like a URL with a login. Whatever the argument is
    for: an error of a command may repeat what was written in the wrong place."""
    mask = Mask()
    for argument in arguments:
        found = _LOGIN.fullmatch(argument)
        if found is not None and found["user"] != found["secret"]:  # the default of RabbitMQ is no secret
            user, secret = unquote(found["user"]), unquote(found["secret"])
            mask |= Mask.of(secret, user=user, shown=found["before"] + user + found["place"])
    return mask


def _asterisks(found: re.Match[str]) -> str:
    kept = found[1] if found.re.groups else ""
    return kept + "*" * (len(found[0]) - len(kept))


def _asterisk_bytes(found: re.Match[bytes]) -> bytes:
    kept = found[1] if found.re.groups else b""
    return kept + b"*" * (len(found[0]) - len(kept))


@lru_cache
def _mask_of(secret: str, user: str, shown: str) -> Mask:
    is_weak = len(secret) < MIN_CHARACTERS or secret in shown or secret == user
    patterns = _weak_patterns(secret, user) if is_weak else _patterns(secret)
    size = len(_utf8(f"{user}{secret}"))
    return Mask(patterns, size * _LONGEST_SPELLING + _MARGIN_BYTES)


def _patterns(secret: str) -> Iterator[str]:
    yield _spelled(secret)
    for offset in range(3):
        if found := _inside_base64(_utf8(secret), offset):
            yield found


def _weak_patterns(secret: str, user: str) -> Iterator[str]:
    """The places where a secret is expected. Sources: RFC 4616 (PLAIN); RabbitMQ, AMQPLAIN."""
    password, nul = _spelled(secret), _spelled("\0")
    yield rf"((?i:{_FIELD})){password}(?=\\*\")"
    yield rf"(PASSWORDS(?:\\+x[0-9a-fA-F]{{2}}|[\s\S]){{4}}){password}"
    if user:
        yield f"({nul}{_spelled(user)}{nul}){password}"
        yield f"({_spelled(user)}:){password}(?=@)"
        yield from (_base64(b64encode(_utf8(text))) for text in (f"\0{user}\0{secret}", f"{user}:{secret}"))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _spelled(text: str) -> str:
    """A pattern of all spellings of ``text``, character by character. Every alternative begins with a
    literal, so that ``re`` skips quickly over what cannot match."""
    return "".join(map(_spelled_char, text))


def _spelled_char(char: str) -> str:
    data = _utf8(char)
    units = char.encode("utf-16-be", "surrogatepass")
    escaped = [
        _ESCAPE.join(f"u{_hex(units[at : at + 2])}" for at in range(0, len(units), 2)),
        f"U{_hex(ord(char).to_bytes(4))}",
        _ESCAPE.join(f"x{_hex(data[at : at + 1])}" for at in range(len(data))),
    ]
    if len(data) > 1 and ord(char) < 256:  # as Python's ascii() does
        escaped.append(f"x{_hex(bytes([ord(char)]))}")
    if char in _LETTERS:
        escaped.append(_LETTERS[char])
    spellings = [
        re.escape(char) + (r"(?:\\){0,7}" if char == "\\" else ""),
        f"{_ESCAPE}(?:{'|'.join(escaped)})",
        "".join(f"%(?:25)?{_hex(data[at : at + 1])}" for at in range(len(data))),
    ]
    if char == " ":
        spellings.append(r"\+")
    return f"(?:{'|'.join(spellings)})"


def _hex(data: bytes) -> str:
    """A pattern of hexadecimal digits in upper or lower case."""
    return "".join(digit if digit.isdigit() else f"[{digit}{digit.upper()}]" for digit in data.hex())


def _inside_base64(secret: bytes, offset: int) -> str:
    """A pattern of ``secret`` in base64, ``offset`` bytes behind the beginning of a group of three, as far as
    it is the same whatever comes before and after; "" if that is too little."""
    encoded = b64encode(bytes(offset) + secret)
    bits = 8 * (offset + len(secret))
    first, last = -(-8 * offset // 6), bits // 6
    if last - first < MIN_BASE64:
        return ""
    return _base64(encoded[first:last])


def _base64(encoded: bytes) -> str:
    return "".join(_IN_BASE64.get(char, re.escape(char)) for char in encoded.decode())
