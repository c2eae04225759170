"""Bytes from one side of one NATS connection, in any segmentation, to operations.

The grammar is the table below; what is legal depends on which side sent the bytes, and on nothing else.
However the same bytes are cut, the decoder gives the same operations and the same error at the same offset.
Sources: docs.nats.io, "Client Protocol"; ADR-4 for HPUB and HMSG; and where those are silent, what
nats-server 2.9 and 2.15 do, marked "servers".
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from plumbline.wire.errors import EXCERPT_BYTES, ErrorKind, ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats.operations import (
    Connect,
    Err,
    HMsg,
    HPub,
    Info,
    JsonOperation,
    Msg,
    Ok,
    Operation,
    Ping,
    Pong,
    Pub,
    Sub,
    Unsub,
    parse_size,
    split_fields,
)
from plumbline.wire.sender import Sender


class Limits(Struct, frozen=True):
    """The most a decoder holds, in bytes; larger input is a ``ProtocolError``.

    A line counts without its verb, the one blank after that, and its line end (servers). A server's line has
    a limit of its own: MSG may carry all that fits into one PUB and a sid, INFO the addresses of a cluster.
    """

    max_control_line: int = 4096  # nats-server's default; docs.nats.io prints 1024
    max_payload: int = 1024 * 1024  # headers included
    max_server_line: int = 64 * 1024


_ANY = 1 << 30

# What each side may send: verb -> class, fewest fields, most fields, how many of the last are sizes.
# docs.nats.io, "Client Protocol", table "Protocol Messages".
_Shape = tuple[type[Operation], int, int, int]
_SHAPES: dict[Sender, dict[bytes, _Shape]] = {
    Sender.CLIENT: {
        b"PUB": (Pub, 2, 3, 1),
        b"HPUB": (HPub, 3, 4, 2),
        b"SUB": (Sub, 2, 3, 0),
        b"UNSUB": (Unsub, 1, 2, 0),
        b"PING": (Ping, 0, _ANY, 0),  # servers skip the rest of the line
        b"PONG": (Pong, 0, _ANY, 0),
        b"CONNECT": (Connect, 1, _ANY, 0),
    },
    Sender.SERVER: {
        b"MSG": (Msg, 3, 4, 1),
        b"HMSG": (HMsg, 4, 5, 2),
        b"PING": (Ping, 0, 0, 0),
        b"PONG": (Pong, 0, 0, 0),
        b"+OK": (Ok, 0, 0, 0),
        b"-ERR": (Err, 0, _ANY, 0),
        b"INFO": (Info, 1, _ANY, 0),
    },
}
_COMMON_SIZES = {b"%d" % size: size for size in range(2048)}  # a look-up is quicker than parse_size
_SHORTEST_VERB = 3
_LONGEST_VERB = 7  # CONNECT
_LF, _CR = 10, 13


class Decoder:
    """One side of one connection.

    Holds at most one unfinished operation: a line within its limit, and a payload within ``max_payload``.
    After a ``ProtocolError`` the position in the stream is lost: every later ``feed`` raises the same error
    again, without operations. ``limits`` may be replaced between feeds, as when INFO tells ``max_payload``.
    """

    def __init__(self, sender: Sender, limits: Limits | None = None) -> None:
        self.offset = 0  # of the first byte not yet returned inside an operation
        self._sender = sender
        self._shapes = _SHAPES[sender]
        self.limits = limits or Limits()
        self._held = bytearray()
        # Decode again once this many bytes are held, or, inside a control line, once a line feed comes.
        self._need = 1
        self._in_line = True
        self._error: ProtocolError | None = None

    @property
    def limits(self) -> Limits:
        """The most this decoder holds."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        of_client = self._sender is Sender.CLIENT
        self._max_line = limits.max_control_line if of_client else limits.max_server_line

    @property
    def held(self) -> int:
        """How many bytes of an unfinished operation are waiting for the rest."""
        return len(self._held)

    @property
    def unfinished(self) -> bytes:
        """Those bytes."""
        return bytes(self._held)

    def feed(self, data: bytes) -> list[Operation]:
        """The operations that ``data`` completes.

        Raises ``ProtocolError``; its ``operations`` are those completed before the error.
        """
        if self._error is not None:
            raise self._refused(self._error, self._error.excerpt)
        held = self._held
        if held:
            if len(held) + len(data) < self._need and not (self._in_line and _LF in data):
                held += data
                return []
            data = b"".join((held, data))
            held.clear()
        operations: list[Operation] = []
        try:
            used = self._decode(data, operations)
        except ProtocolError as error:
            start = sum(len(operation.raw) for operation in operations)
            self.offset += start
            raise self._refused(error, data[start : start + EXCERPT_BYTES], operations) from None
        self.offset += used
        if used < len(data):
            held += data[used:]
        return operations

    def finish(self) -> None:
        """The stream has ended. Raises ``ProtocolError`` (``TRUNCATED``) inside an operation."""
        if self._held:
            error = ProtocolError(ErrorKind.TRUNCATED, "the stream ended inside an operation")
            raise self._refused(error, bytes(self._held))

    def _refused(
        self, error: ProtocolError, operation: bytes, before: Sequence[Operation] = ()
    ) -> ProtocolError:
        """``error`` with its evidence: where it was, in which bytes, after which operations."""
        self._held.clear()
        kind, message, offset = error.kind, error.message, self.offset
        # Not the object that is raised: its traceback would keep this decoder, and all it holds, until the
        # garbage collector finds the circle.
        self._error = ProtocolError(kind, message, offset=offset, excerpt=operation)
        return ProtocolError(kind, message, offset=offset, excerpt=operation, operations=tuple(before))

    def _decode(self, data: bytes, operations: list[Operation]) -> int:
        """Appends what is complete in ``data``; returns how many bytes that took."""
        # For the common operation no calls but built-in ones: all that is built on this pays for it.
        find, split, join = data.find, bytes.split, b" ".join
        append, shapes, common_sizes = operations.append, self._shapes, _COMMON_SIZES
        max_payload = self._limits.max_payload
        surely_short = self._max_line + _SHORTEST_VERB + len(" \n")
        start, total = 0, len(data)
        while start < total:
            end = find(b"\n", start, start + surely_short)
            if end < 0:
                end = self._end_of_long_line(data, start)
                if end < 0:
                    break
            line = data[start:end]
            args = split(line)  # takes more for a blank than the protocol does, hence the check
            if join(args) + b"\r" != line:
                args = _exact_fields(line)
            verb = args.pop(0) if args else b""
            shape = shapes.get(verb) or shapes.get(verb.upper())
            if shape is None:
                raise ProtocolError(ErrorKind.UNKNOWN_OPERATION, _shown(verb))
            kind, fewest, maximum, sizes = shape
            if not fewest <= len(args) <= maximum:
                raise _wrong_fields(kind, args, line)
            stop = end + 1
            if sizes:
                length = common_sizes.get(args[-1], -1)
                if length < 0 or sizes == 2:
                    length = _announced(kind, args, sizes)
                if length > max_payload:
                    message = f"{length} bytes announced, {max_payload} allowed"
                    raise ProtocolError(ErrorKind.PAYLOAD_SIZE, message)
                stop += length + 2
                if stop > total or data[stop - 1] != _LF or data[stop - 2] != _CR:
                    self._await_payload(start, stop, data[stop - 2 : stop])
                    break
            elif kind is Info or kind is Connect:
                json_object(line[len(kind.verb) :])
            append(kind(data[start:stop], args, end + 1 - start))
            start = stop
        return start

    def _end_of_long_line(self, data: bytes, start: int) -> int:
        """Where the line feed is of a line that is unfinished, or nearly too long; -1 to wait for more."""
        verb = data[start : start + _LONGEST_VERB + 1]
        for end_of_verb in (b" ", b"\t", b"\r"):
            verb = verb.split(end_of_verb, 1)[0]
        whole = len(verb) < min(_LONGEST_VERB + 1, len(data) - start)
        if whole:
            known = verb.upper() in self._shapes
        else:
            known = any(shape.startswith(verb.upper()) for shape in self._shapes)
        if not known:
            raise ProtocolError(ErrorKind.UNKNOWN_OPERATION, _shown(verb))
        longest = len(verb) + len(" ") + self._max_line
        end = data.find(b"\n", start, start + longest + len(b"\r\n"))
        if end < 0:
            self._in_line = True
            self._need = longest + len(b"\r\n") if whole else len(data) - start + 1
            if len(data) - start < self._need:
                return -1
        elif end - start - (data[end - 1] == _CR) <= longest:
            return end
        raise ProtocolError(ErrorKind.CONTROL_LINE, f"more than {self._max_line} bytes")

    def _await_payload(self, start: int, stop: int, line_end: bytes) -> None:
        """The operation from ``start`` to ``stop`` is unfinished, if what is there of its end is right."""
        if line_end not in (b"", b"\r"):
            raise ProtocolError(ErrorKind.PAYLOAD_END, f"the payload is followed by {line_end!r}")
        self._in_line = False
        self._need = stop - start - (not line_end)  # the first byte after the payload may be wrong already


def _exact_fields(line: bytes) -> list[bytes]:
    """Verb and fields of a line; a line that begins with a blank has no verb, and is one field."""
    return [line] if line[:1] in (b" ", b"\t") else split_fields(line.removesuffix(b"\r"))


def _announced(kind: type[Operation], args: list[bytes], sizes: int) -> int:
    """The size of the payload, headers included."""
    length = parse_size(args[-1])
    if length is None:
        raise ProtocolError(ErrorKind.SIZE, f"{kind.verb} size {_shown(args[-1])}")
    headers = parse_size(args[-2]) if sizes == 2 else 0
    if headers is None or headers > length:
        raise ProtocolError(ErrorKind.SIZE, f"{kind.verb} header size {_shown(args[-2])} of {length}")
    return length


def _wrong_fields(kind: type[Operation], args: list[bytes], line: bytes) -> ProtocolError:
    """Servers: a verb that wants fields and has not even a blank behind it is an unknown operation."""
    if line.removesuffix(b"\r").upper() == kind.verb.encode() and not issubclass(kind, JsonOperation):
        return ProtocolError(ErrorKind.UNKNOWN_OPERATION, f"{kind.verb} alone")
    return ProtocolError(ErrorKind.ARGUMENTS, f"{kind.verb} with {len(args)} fields")


def _shown(field: bytes) -> str:
    return repr(field[:EXCERPT_BYTES])
