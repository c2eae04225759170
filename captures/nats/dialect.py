"""NATS for readers of captures: how its streams are recognised, entered in their middle, and shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from plumbline.bounds import CAPTURE_OPERATION_BYTES
from plumbline.captures.dialects import StreamDecoder
from plumbline.captures.nats.redaction import NatsRedactor
from plumbline.captures.redaction import redacted_text
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Decoder, Err, JsonOperation, Limits, Operation, Payload, Sub, Unsub
from plumbline.wire.sender import Direction

LIMITS = Limits(
    max_control_line=1024 * 1024, max_payload=CAPTURE_OPERATION_BYTES, max_server_line=16 * 1024 * 1024
)
_CLIENT = re.compile(rb"(?:CONNECT|PUB|HPUB|SUB|UNSUB)[ \t]|(?:PING|PONG)\r\n", re.IGNORECASE)
_SERVER = re.compile(rb"(?:INFO|MSG|HMSG|-ERR)[ \t]|\+OK\r\n", re.IGNORECASE)
_EITHER = re.compile(rb"(?:PING|PONG)\r\n", re.IGNORECASE)
_LINE = re.compile(rb"\r\n(?=[A-Za-z+-]{3})")


class NatsCaptureDialect:
    """See ``dialects.CaptureDialect``."""

    name = "nats"
    ports = frozenset({4222})

    def sent_by_server(self, data: bytes) -> bool | None:
        if _EITHER.match(data):
            return None
        if _SERVER.match(data):
            return True
        return False if _CLIENT.match(data) else None

    def decoder(self, direction: Direction) -> StreamDecoder:
        return Decoder(direction.sender, LIMITS)

    def decoder_from(self, direction: Direction) -> StreamDecoder:
        return self.decoder(direction)

    def starts(self, data: bytes, direction: Direction) -> Sequence[int]:
        verbs = (_CLIENT,) if direction is Direction.TO_SERVER else (_SERVER, _EITHER)
        places = [0, *(found.end() for found in _LINE.finditer(data))]
        return [place for place in places if any(verb.match(data, place) for verb in verbs)]

    def fields(self, operation: Operation) -> dict[str, Any]:
        fields: dict[str, Any] = {"op": operation.verb, "size": len(operation.raw)}
        match operation:
            case Payload():
                fields |= {"subject": operation.subject, "reply": operation.reply}
                sid = getattr(operation, "sid", None)
                fields |= {"sid": sid} if sid is not None else {}
                fields |= _headers(operation)
                fields["payload"] = operation.payload.decode("utf-8", "surrogateescape")
            case Sub():
                fields |= {"subject": operation.subject, "queue": operation.queue, "sid": operation.sid}
            case Unsub():
                fields |= {"sid": operation.sid, "max_msgs": operation.max_msgs}
            case Err():
                fields["message"] = operation.message
            case JsonOperation():
                fields["json"] = operation.fields
        return {name: value for name, value in fields.items() if value is not None}

    def text(self, operation: Operation) -> str:
        return str(operation)

    def redacted_text(self, operation: Operation) -> str:
        return redacted_text(operation, NatsRedactor(), self.decoder(Direction.TO_SERVER))


def _headers(operation: Payload) -> dict[str, Any]:
    try:
        headers = operation.headers
    except ProtocolError as error:
        return {"malformed": str(error)}
    if headers is None:
        return {}
    fields: dict[str, Any] = {f"header.{name}": value for name, value in reversed(headers.fields)}
    if headers.status:
        fields |= {"status": headers.status.code, "description": headers.status.description}
    return fields
