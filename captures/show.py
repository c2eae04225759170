"""Rows for people and for programs: one line each, as text or as JSON.

    12:17:11.123456789  3 > PUB ORDERS.new 5 | hello
    12:17:11.123999000  3 ! closed

``>`` was sent by the client, ``<`` by the server, ``!`` is a remark on the traffic.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec

from plumbline.captures.operations import OperationRow
from plumbline.captures.plain import plain, plain_text
from plumbline.wire.nats import printable


def clock(time: int, form: str = "%H:%M:%S") -> str:
    """Nanoseconds since the epoch as UTC, to the nanosecond."""
    seconds, nanoseconds = divmod(time, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC).strftime(form)}.{nanoseconds:09}"


def as_text(row: OperationRow) -> str:
    """One line."""
    start, text = f"{clock(row.time)} {row.connection.number:>2}", plain_text(str(row))
    if row.operation is None:
        sender = f" ({row.sender})" if row.sender else ""
        return f"{start} ! {printable(text.encode())}{sender}"
    assert row.direction is not None
    return f"{start} {row.direction.arrow} {text}"


def as_json(row: OperationRow) -> str:
    """One JSON object. Text that is no UTF-8 is in base64 under ``NAME_base64``."""
    fields: dict[str, Any] = {"time": clock(row.time, "%Y-%m-%dT%H:%M:%S") + "Z"}
    for name, value in row.fields.items():
        if name != "time":
            fields |= _json_field(name, value)
    try:
        return msgspec.json.encode(fields, enc_hook=str).decode()
    except (UnicodeEncodeError, RecursionError, OverflowError):
        return msgspec.json.encode(plain(fields), enc_hook=str).decode()


def _json_field(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str) and not _is_text(value):
        value = value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return {f"{name}_base64": base64.b64encode(value).decode()}
    return {name: value}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
