"""Requests to JetStream: the subjects of its API and the body of a pull request.

Sources: docs.nats.io, "JetStream wire API Reference"; ADR-13, "Pull Subscribe internals"; ADR-37, "JetStream
Simplification"; ADR-42, "Pull Consumer Priority Groups".
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from plumbline.wire.json_text import json_object, shaped

API_PREFIX = "$JS.API"

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


def api_subject(verb: str, *names: str) -> str:
    """``api_subject("CONSUMER.INFO", "ORDERS", "DISPATCH")`` -> ``$JS.API.CONSUMER.INFO.ORDERS.DISPATCH``."""
    return ".".join((API_PREFIX, verb, *names))


def next_subject(stream: str, consumer: str) -> str:
    """Where a pull request for ``consumer`` goes (ADR-13, "Context")."""
    return api_subject("CONSUMER.MSG.NEXT", stream, consumer)


class PullRequest(Struct, frozen=True, omit_defaults=True):
    """The body of a pull request; durations in nanoseconds.

    Values are what the body says: a negative ``batch`` or ``expires`` stays negative. Only a ``batch`` of 0
    reads as 1 (ADR-13, "batch": the minimum is 1; servers do the same).
    """

    batch: Int64 = 1
    expires: Int64 = 0
    no_wait: bool = False
    max_bytes: Int64 = 0
    idle_heartbeat: Int64 = 0
    # ADR-42; servers before 2.11 ignore them.
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int64 = 0  # 2.12

    @classmethod
    def parse(cls, body: bytes) -> PullRequest:
        """Read a body: nothing, a bare integer, or JSON; any other text asks for one message (servers).

        In JSON unknown keys are ignored and null is the default. Raises ``ProtocolError`` (``JSON``) for text
        that starts as an object and is no request: servers answer 400 Bad Request.
        """
        text = body.strip()
        if text.startswith(b"{"):
            fields = {key: value for key, value in json_object(text).items() if value is not None}
            request = shaped(fields, cls, "pull request")
            return msgspec.structs.replace(request, batch=1) if request.batch == 0 else request
        return cls(batch=_int64(text) or 1)

    def encode(self) -> bytes:
        """JSON with the fields that differ from their default; ``{}`` if none does."""
        return msgspec.json.encode(self)


def _int64(text: bytes) -> int | None:
    """A signed decimal number that fits 64 bits, else None."""
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    significant = digits.lstrip(b"0")  # int() refuses thousands of digits, zeros or not
    if not digits.isdigit() or len(significant) > 19:
        return None
    value = int(significant or b"0")
    signed = -value if text[:1] == b"-" else value
    return signed if -(2**63) <= signed < 2**63 else None
