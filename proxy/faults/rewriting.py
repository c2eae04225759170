"""Changes fields of an operation, for the fault ``rewrite``; all other bytes stay the same.

    set payload="other"  set subject=b  set json.tls_required=true  set header.A="x"      NATS
    set redelivered=false  set delivery_tag=7  set property.priority=3  set payload="x"   AMQP

Fields have the names that filters and ``plumbline show`` use. ``null`` takes away what need not be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.errors import UNDECODABLE
from plumbline.proxy import info
from plumbline.wire import amqp, nats
from plumbline.wire.errors import ProtocolError

Changes = Mapping[str, Any]
_PAIR = re.compile(r'\s*(?P<name>[A-Za-z_][\w.-]*)=(?P<value>"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^\s",]+)\s*,?')


def parse_changes(text: str) -> dict[str, Any]:
    """Reads ``name=value name=value``. Raises ``ValueError``: what was expected, and where."""
    changes: dict[str, Any] = {}
    at = 0
    while at < len(text.rstrip()):
        found = _PAIR.match(text, at)
        if found is None:
            raise ValueError(f'expected name=value, such as payload="x", at {text[at:]!r}')
        changes[found["name"]] = _value(found["value"])
        at = found.end()
    if not changes:
        raise ValueError('expected name=value, such as payload="x"')
    return changes


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except UNDECODABLE:
        return text


def rewritten(operation: Any, changes: Changes) -> bytes:
    """The bytes of ``operation`` with these fields. Raises ``ValueError`` if it has no such field."""
    try:
        match operation:
            case amqp.Method():
                return _method(operation, changes)
            case nats.JsonOperation():
                return _json(operation, changes)
            case nats.Payload():
                return _payload(operation, changes)
            case nats.Sub():
                return _of(nats.Sub.make, operation, ("subject", "sid", "queue"), changes)
            case nats.Unsub():
                return _of(nats.Unsub.make, operation, ("sid", "max_msgs"), changes)
            case nats.Err():
                return _of(nats.Err.make, operation, ("message",), changes)
    except (TypeError, KeyError, AttributeError, ProtocolError) as error:
        raise ValueError(str(error)) from None
    raise ValueError("it has no fields")


def _of(make: Callable[..., Any], operation: Any, names: tuple[str, ...], changes: Changes) -> bytes:
    fields = {name: getattr(operation, name) for name in names}
    _known(changes, fields)
    return bytes(make(**fields | dict(changes)).raw)


def _known(changes: Changes, fields: Mapping[str, Any]) -> None:
    unknown = changes.keys() - fields.keys()
    if unknown:
        raise ValueError(f"it has no {', '.join(sorted(unknown))}; it has {', '.join(fields)}")


def _json(operation: nats.JsonOperation, changes: Changes) -> bytes:
    named = {name.removeprefix("json."): value for name, value in changes.items()}
    if isinstance(operation, nats.Info):
        return info.rewrite_info(operation.raw, named)
    fields = {name: value for name, value in {**operation.fields, **named}.items() if value is not None}
    return nats.Connect.make(fields).raw


def _payload(operation: nats.Payload, changes: Changes) -> bytes:
    headers = {name.removeprefix("header."): changes[name] for name in changes if name.startswith("header.")}
    fields: dict[str, Any] = {
        "subject": operation.subject,
        "reply": operation.reply,
        "payload": operation.payload,
    }
    if isinstance(operation, nats.Msg | nats.HMsg):
        fields["sid"] = operation.sid
    plain = {name: value for name, value in changes.items() if not name.startswith("header.")}
    _known(plain, fields)
    fields |= plain
    if isinstance(fields["payload"], str):
        fields["payload"] = fields["payload"].encode("utf-8", "surrogateescape")
    if isinstance(operation, nats.HPub | nats.HMsg):
        fields["headers"] = _headers(operation.header_block, headers)
    elif headers:
        raise ValueError(f"{operation.verb} has no headers")
    makers: dict[str, Callable[..., Any]] = {
        "PUB": nats.Pub.make, "HPUB": nats.HPub.make, "MSG": nats.Msg.make, "HMSG": nats.HMsg.make
    }  # fmt: skip
    return bytes(makers[operation.verb](**fields).raw)


def _headers(block: bytes, changes: Changes) -> bytes:
    """The block with these headers set, each at its place or at the end; None takes one away."""
    first, *lines = block.removesuffix(b"\r\n\r\n").split(b"\r\n")
    for name, value in changes.items():
        line = [] if value is None else [f"{name}: {value}".encode()]
        at = [place for place, old in enumerate(lines) if old.partition(b":")[0] == name.encode()]
        lines = [old for place, old in enumerate(lines) if place not in at]
        place = at[0] if at else len(lines)
        lines[place:place] = line
    return b"\r\n".join([first, *lines, b"", b""])


def _method(operation: amqp.Method, changes: Changes) -> bytes:
    arguments, properties = dict(operation.arguments), dict(operation.properties or {})
    body = operation.body
    for name, value in changes.items():
        if name == "payload" and operation.properties is not None:
            body = str(value).encode("utf-8", "surrogateescape")
        elif name.startswith("header.") and operation.properties is not None:
            headers = {**properties.get("headers", {}), name.removeprefix("header."): value}
            properties["headers"] = {key: held for key, held in headers.items() if held is not None}
        elif name.startswith("property.") and operation.properties is not None:
            properties[name.removeprefix("property.")] = value
        elif name in arguments:
            arguments[name] = value
        else:
            raise ValueError(f"it has no {name}; it has {', '.join(arguments)}")
    remaining = {name: value for name, value in properties.items() if value is not None}
    return amqp.Method.make(
        operation.method,
        operation.channel,
        properties=remaining if operation.properties is not None else None,
        body=body,
        **arguments,
    ).raw
