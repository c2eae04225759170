"""Masks secrets in a copy of what a NATS client sends, byte for byte as it comes, at equal length.

A line that begins with CONNECT and a brace, with or without blanks or control characters between them, is the
operation. A machine reads the JSON on it and decides on each byte when it sees it: a key comes before its
value, so nothing needs to be held back, however the line is cut into segments. What is not the JSON that a
server would take is masked to the end of its line. A payload with a line of its own that begins like that is
masked too: better too much than a secret on disk.
Source: docs.nats.io, "Client Protocol", CONNECT; servers match keys without their case.
"""

from __future__ import annotations

import re
from enum import Enum, auto

import msgspec

from plumbline.captures.redaction import MASK
from plumbline.errors import UNDECODABLE
from plumbline.wire.nats.secrets import SECRETS

MASK_SCALAR = ord("1")  # of a number: the JSON stays JSON
MAX_KEY_BYTES = 256

_VERB = b"connect"
_LINE = re.compile(rb"\n[cC]")  # the common segment has none, and is looked at no closer
_FIRST = frozenset(b"Cc")
_BLANK = frozenset(b" \t\r")
_BEFORE_JSON = frozenset(range(ord(" ") + 1)) - {ord("\n")}  # also what no server takes for a blank
_SCALAR = frozenset(b"+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LF, _QUOTE, _BACKSLASH = ord("\n"), ord('"'), ord("\\")
_OPEN_OBJECT, _OPEN_ARRAY, _CLOSE, _COLON, _COMMA = ord("{"), ord("["), frozenset(b"}]"), ord(":"), ord(",")


def _may_begin(data: bytes) -> bool:
    """Whether a CONNECT may begin within ``data``, not counting its first line."""
    if b"{" in data:
        return _LINE.search(data) is not None
    # Only the last line can have its brace in what follows. Most segments end here: nothing is quicker.
    last = data.rfind(b"\n") + 1
    return 0 < last < len(data) and data[last] in _FIRST


class NatsRedactor:
    """The client's side of one connection. ``masked`` counts bytes."""

    def __init__(self) -> None:
        self.masked = 0
        self._matched: int | None = 0  # letters of the verb since the line's start; None: not such a line
        self._json: _JsonMask | None = None

    def feed(self, data: bytes) -> bytes:
        """``data``, or a copy of it with secrets masked."""
        is_apart = self._matched is None or (self._matched == 0 and data[0] not in _FIRST)
        if self._json is None and is_apart and not _may_begin(data):
            self._matched = 0 if data[-1] == _LF else None
            return data
        return self._masked_copy(data)

    def _masked_copy(self, data: bytes) -> bytes:
        out = bytearray(data)
        at, size = 0, len(data)
        while at < size:
            if self._json is not None:
                byte = out[at]
                masked = self._json.step(byte)
                if masked != byte:
                    out[at] = masked
                    self.masked += 1
                if byte == _LF:
                    self._json, self._matched = None, 0
                at += 1
            elif self._matched is None:
                at = data.find(b"\n", at) + 1
                if at == 0:
                    break
                self._matched = 0
            elif self._matched == len(_VERB):
                if data[at] == _OPEN_OBJECT:
                    self._json = _JsonMask()
                elif data[at] in _BEFORE_JSON:
                    at += 1
                else:
                    self._matched = None  # no JSON object: a payload that begins like this, or refused anyway
            elif data[at] | 0x20 == _VERB[self._matched]:
                self._matched += 1
                at += 1
            else:
                self._matched = None
        return bytes(out)


class _JsonState(Enum):
    STRUCTURE = auto()
    KEY = auto()
    TEXT = auto()
    REFUSED = auto()  # not JSON: everything to the line's end is masked


class _JsonMask:
    """Goes through one line of JSON, byte by byte, and says what may be shown of each."""

    def __init__(self) -> None:
        self._in = _JsonState.STRUCTURE
        self._escaped = False
        self._key = bytearray()
        self._is_key_next = False
        self._is_secret = False
        self._is_over = False  # the object is closed
        self._nesting: list[tuple[bool, bool]] = []  # is it an object; is all of it secret

    def step(self, byte: int) -> int:
        """``byte``, or its mask."""
        if byte == _LF or (byte in _BLANK and self._in is not _JsonState.TEXT):
            return byte
        match self._in:
            case _JsonState.STRUCTURE:
                return self._structure(byte)
            case _JsonState.KEY:
                return self._key_byte(byte)
            case _JsonState.TEXT:
                return self._text_byte(byte)
            case _JsonState.REFUSED:
                return MASK

    def _structure(self, byte: int) -> int:
        if not self._nesting and (self._is_over or byte != _OPEN_OBJECT):
            return self._refuse()
        if byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            self._nesting.append((byte == _OPEN_OBJECT, self._is_secret))
            self._is_key_next = byte == _OPEN_OBJECT
        elif byte == _QUOTE:
            self._in = _JsonState.KEY if self._is_key_next else _JsonState.TEXT
            self._key.clear()
        elif byte == _COLON:
            self._is_key_next = False
        elif byte == _COMMA:
            self._is_key_next, self._is_secret = self._nesting[-1]
        elif byte in _CLOSE:
            _, self._is_secret = self._nesting.pop()
            self._is_over = not self._nesting
            self._is_key_next = False
        elif byte not in _SCALAR or self._is_key_next:
            return self._refuse()
        elif self._is_secret:
            return MASK_SCALAR
        return byte

    def _key_byte(self, byte: int) -> int:
        if self._escaped or byte != _QUOTE:
            self._escaped = not self._escaped and byte == _BACKSLASH
            self._key.append(byte)
            if len(self._key) > MAX_KEY_BYTES:
                return self._refuse()
            return byte
        self._in = _JsonState.STRUCTURE
        self._is_key_next = False
        inherited = self._nesting[-1][1]
        self._is_secret = inherited or _is_secret(bytes(self._key))
        return byte

    def _text_byte(self, byte: int) -> int:
        if not self._escaped and byte == _QUOTE:
            self._in = _JsonState.STRUCTURE
            return byte
        self._escaped = not self._escaped and byte == _BACKSLASH
        return MASK if self._is_secret and byte != ord("\r") else byte

    def _refuse(self) -> int:
        self._in = _JsonState.REFUSED
        return MASK


def _is_secret(key: bytes) -> bool:
    """Whether a server would take this key for one of the secret ones. A key that is no text is one."""
    try:
        name = msgspec.json.decode(b'"' + key + b'"', type=str)
    except UNDECODABLE:
        return True
    return name.casefold() in SECRETS
