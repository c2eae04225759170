"""Masks secrets in a copy of what an AMQP client sends: SASL responses and secrets that replace them.

Follows the frames, not what is in them, save for the methods that carry a secret. NUL bytes stay, so a
PLAIN response still has its three parts.
Sources: AMQP 0-9-1, sections 4.2.3 and 1.4 (connection.start-ok, secure-ok); RabbitMQ, update-secret.
"""

from __future__ import annotations

import struct

from plumbline.captures.nats.redaction import NatsRedactor
from plumbline.captures.redaction import MASK, Redactor
from plumbline.wire.amqp import SHAPES
from plumbline.wire.amqp.secrets import SECRETS

_HEADER_BYTES = 8  # of the protocol header
_FRAME = struct.Struct(">BHI")
_HEAD = struct.Struct(">BHIHH")  # with class and method of a method frame
_END_BYTES = 1
_METHOD = 1

# What a method's arguments are: how many bytes a length has, and whether what it measures is secret.
_Argument = tuple[int, bool]
_LENGTH_BYTES = {"shortstr": 1, "longstr": 4, "table": 4}


def _up_to_secret(method: str, secret: str) -> tuple[_Argument, ...]:
    """The arguments of a method as far as they are followed. Each of them begins with its length."""
    names = list(SHAPES[method].arguments.items())
    return tuple(
        (_LENGTH_BYTES[kind], name == secret)
        for name, kind in names[: [name for name, _ in names].index(secret) + 1]
    )


_SECRET_METHODS: dict[tuple[int, int], tuple[_Argument, ...]] = {
    (SHAPES[method].class_id, SHAPES[method].method_id): _up_to_secret(method, secret)
    for method, secret in SECRETS.items()
}
_SECRET_CLASSES = {class_id for class_id, _ in _SECRET_METHODS}


class AmqpRedactor:
    """The client's side of one connection. ``masked`` counts bytes."""

    def __init__(self) -> None:
        self.masked = 0
        self._skip = _HEADER_BYTES  # bytes before the next frame, or before the next argument
        self._head = b""  # the beginning of a frame, cut by a segment's end
        self._secret: _SecretMethod | None = None

    def feed(self, data: bytes) -> bytes:
        """``data``, or a copy of it with secrets masked."""
        out: bytearray | None = None
        at, size, unpack = 0, len(data), _HEAD.unpack_from
        while at < size:
            if self._skip:
                step = min(self._skip, size - at)
                self._skip -= step
                at += step
            elif self._secret is not None:
                out = bytearray(data) if out is None else out
                at = self._secret.mask(out, at)
                if self._secret.remaining == 0:
                    self.masked += self._secret.masked
                    self._secret = None
            elif not self._head and size - at >= _HEAD.size:
                kind, _, length, class_id, method_id = unpack(data, at)
                if (
                    kind == _METHOD
                    and class_id in _SECRET_CLASSES
                    and (class_id, method_id) in _SECRET_METHODS
                ):
                    self._secret = _SecretMethod(
                        _SECRET_METHODS[class_id, method_id], length - 4 + _END_BYTES
                    )
                    at += _HEAD.size
                else:
                    at += _FRAME.size
                    self._skip = length + _END_BYTES
            else:
                at = self._collect_head(data, at)
        return data if out is None else bytes(out)

    def _collect_head(self, data: bytes, at: int) -> int:
        """Collects the head of a frame from several segments; none of it is secret."""
        head_size = _FRAME.size if len(self._head) < _FRAME.size else _HEAD.size
        taken = data[at : at + head_size - len(self._head)]
        self._head += taken
        if len(self._head) == _FRAME.size:
            kind, _, length = _FRAME.unpack(self._head)
            if kind != _METHOD or length < _HEAD.size - _FRAME.size:
                self._skip, self._head = length + _END_BYTES, b""
        elif len(self._head) == _HEAD.size:
            _, _, length, class_id, method_id = _HEAD.unpack(self._head)
            self._head = b""
            rest = length - 4 + _END_BYTES
            arguments = _SECRET_METHODS.get((class_id, method_id))
            if arguments is None:
                self._skip = rest
            else:
                self._secret = _SecretMethod(arguments, rest)
        return at + len(taken)


class EitherRedactor:
    """Where the protocol is not known: AMQP, if it begins so, else lines as NATS has them."""

    def __init__(self) -> None:
        self._redactor: Redactor | None = None

    @property
    def masked(self) -> int:
        """Bytes so far."""
        return self._redactor.masked if self._redactor else 0

    def feed(self, data: bytes) -> bytes:
        """``data``, or a copy of it with secrets masked."""
        if self._redactor is None:
            self._redactor = AmqpRedactor() if b"AMQP".startswith(data[:4]) else NatsRedactor()
        return self._redactor.feed(data)


class _SecretMethod:
    """The rest of a method frame with a secret in it. ``remaining``: bytes to its end."""

    def __init__(self, arguments: tuple[_Argument, ...], left: int) -> None:
        self.remaining = max(left, 0)
        self.masked = 0
        self._arguments = list(arguments)
        self._length = 0  # of the argument, as far as it is read
        self._length_bytes = arguments[0][0]
        self._rest = 0  # of the argument's bytes

    def mask(self, out: bytearray, at: int) -> int:
        """Masks in place from ``at`` to the end of the frame or of ``out``; returns where it stopped."""
        end = min(len(out), at + self.remaining)
        self.remaining -= end - at
        for place in range(at, end):
            byte = out[place]
            if self._rest:
                self._rest -= 1
                if self._arguments[0][1] and byte:
                    out[place] = MASK
                    self.masked += 1
                if not self._rest:
                    self._next()
            elif self._arguments:
                self._length = self._length << 8 | byte
                self._length_bytes -= 1
                if not self._length_bytes:
                    self._rest = self._length
                    if not self._rest:
                        self._next()
        return end

    def _next(self) -> None:
        self._arguments.pop(0)
        self._length = 0
        if self._arguments:
            self._length_bytes = self._arguments[0][0]
