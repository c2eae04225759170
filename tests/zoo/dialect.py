"""A relay that makes another dialect of a NATS server's answers: same meaning, other text.

A server that is not written in Go writes flags that are false, or leaves them out where nats-server writes
them; it has descriptions, identifiers and offsets of times of its own. Nothing of that is wrong, so what the
relay makes of a conformant server is conformant.
"""

from __future__ import annotations

import json
import re
import uuid
from contextlib import AbstractContextManager
from typing import Any

from plumbline.wire.nats import HMsg, Msg, Operation
from tests.zoo.relay import relay

_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_NO_DESCRIPTION = b"NATS/1.0 503\r\n"


def other_dialect(host: str, port: int) -> AbstractContextManager[str]:
    """``host:port`` of a relay to the server there."""
    return relay("nats", (host, port), lambda: translated)


def translated(operation: Operation) -> bytes:
    """The bytes of an operation of a server in the other dialect."""
    if isinstance(operation, HMsg):
        block = operation.raw[operation.head :][: int(operation.args[-2])]
        if not block.startswith(_NO_DESCRIPTION):
            return operation.raw
        block = b"NATS/1.0 503 No Responders\r\n" + block[len(_NO_DESCRIPTION) :]
        words = [
            b"HMSG",
            *operation.args[:-2],
            b"%d" % len(block),
            b"%d" % (len(block) + len(operation.payload)),
        ]
        return b" ".join(words) + b"\r\n" + block + operation.payload + b"\r\n"
    if not isinstance(operation, Msg) or not operation.payload.startswith(b"{"):
        return operation.raw
    try:
        body = json.loads(operation.payload)
    except ValueError:
        return operation.raw
    if "type" not in body and not {"stream", "seq"} <= body.keys() and "error" not in body:
        return operation.raw  # the payload of a client
    payload = json.dumps(_other(body)).encode()
    words = [b"MSG", *operation.args[:-1], b"%d" % len(payload)]
    return b" ".join(words) + b"\r\n" + payload + b"\r\n"


def _other(body: dict[str, Any]) -> dict[str, Any]:
    if {"stream", "seq"} <= body.keys() and "error" not in body:
        body.setdefault("duplicate", False)
    if "deliver_subject" in body.get("config", {}):
        body.setdefault("push_bound", False)
    if "error" in body:
        body["error"]["description"] = f"the request is refused for reason {body['error'].get('err_code')}"
    if "id" in body and "timestamp" in body:
        body["id"] = str(uuid.uuid4())
    changed: dict[str, Any] = _values(body)
    return changed


def _values(value: Any) -> Any:
    """Flags that are false are left out below the first level, times have an offset."""
    if isinstance(value, dict):
        return {
            key: _values(child if key != "config" else {k: v for k, v in child.items() if v is not False})
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_values(item) for item in value]
    return value[:-1] + "+00:00" if isinstance(value, str) and _UTC.fullmatch(value) else value
