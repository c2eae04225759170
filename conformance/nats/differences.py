"""Lists all differences between an operation and the expected one."""

from __future__ import annotations

from typing import Any

from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Operation, Payload


def field_differences(operation: Operation, kind: type[Operation], fields: dict[str, Any]) -> list[str]:
    """Everything in which ``operation`` is not what was asked for, all at once."""
    if not isinstance(operation, kind):
        return [f"expected {kind.verb}, got {operation.verb}"]
    found = {name: _attribute(operation, name) for name in fields}
    return [
        f"{name}: expected {fields[name]!r}, got {value!r}"
        for name, value in found.items()
        if value != fields[name]
    ]


def _attribute(operation: Operation, name: str) -> Any:
    if name in ("status", "status_code"):
        try:
            headers = operation.headers if isinstance(operation, Payload) else None
        except ProtocolError as error:
            return str(error)
        status = headers.status if headers else None
        if name == "status_code":
            return status.code if status else None
        return str(status) if status else None
    return getattr(operation, name)
