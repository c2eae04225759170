"""What must not reach a report: the secrets inside CONNECT, masked at equal length."""

from __future__ import annotations

import re

from plumbline.wire.nats import Connect, Operation

# docs.nats.io, "Client Protocol", CONNECT: the fields that authenticate.
_SECRET = re.compile(rb'("(?:pass|auth_token|jwt|sig|nkey)"\s*:\s*")((?:[^"\\]|\\.)*)(")')


def redacted(operation: Operation) -> Operation:
    """``operation``, or a copy of a CONNECT whose secrets are asterisks."""
    if not isinstance(operation, Connect):
        return operation
    raw = _SECRET.sub(lambda match: match[1] + b"*" * len(match[2]) + match[3], operation.raw)
    return Connect(raw, raw.split()[1:], operation.head)
