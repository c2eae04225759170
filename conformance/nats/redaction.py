"""Masks the secrets of CONNECT, at equal length, before an operation reaches a report."""

from __future__ import annotations

import re

from plumbline.wire.nats import Connect, Operation
from plumbline.wire.nats.secrets import SECRETS

_NAMES = "|".join(SECRETS).encode()
_SECRET = re.compile(rb'("(?:%b)"\s*:\s*")((?:[^"\\]|\\.)*)(")' % _NAMES)


def redacted(operation: Operation) -> Operation:
    """``operation``, or a copy of a CONNECT whose secrets are asterisks."""
    if not isinstance(operation, Connect):
        return operation
    raw = _SECRET.sub(lambda match: match[1] + b"*" * len(match[2]) + match[3], operation.raw)
    return Connect(raw, raw.split()[1:], operation.head)
