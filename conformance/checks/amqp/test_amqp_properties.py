"""AMQP: content properties travel as they are: every property, every type of header, empty values too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.wire.amqp import Decimal, Float, Integer, Method, Timestamp, encode_properties

SOURCE = "AMQP 0-9-1, section 4.2.5.5 (Field Tables) and 4.2.6.1 (The Content Header)"
HEADERS: Mapping[str, Mapping[str, Any]] = {
    "booleans": {"yes": True, "no": False},
    "small integers": {"b": Integer(-128, "b"), "B": Integer(255, "B"), "s": Integer(-32768, "s")},
    "integers": {"I": -(2**31), "zero": 0, "short": Integer(32767, "s")},
    "large integers": {
        "l": Integer(-(2**63), "l"),
        "high": Integer(2**63 - 1, "l"),
        "small": Integer(7, "l"),
    },
    "unsigned integers": {"u": Integer(65535, "u"), "i": Integer(2**32 - 1, "i")},
    "numbers": {"f": Float(0.5), "d": 0.1, "negative": -1e300},
    "decimals": {"D": Decimal(2, 314)},
    "times": {"T": Timestamp(1795245889), "first": Timestamp(0)},
    "texts": {"S": "text", "empty": "", "long": "x" * 300, "not ASCII": "äöü ☃"},
    "bytes": {"x": b"\x00\xff\xce", "empty": b""},
    "void": {"V": None},
    "arrays": {"A": [1, "two", True, None, Integer(3, "s"), [4, []]], "empty": []},
    "tables": {"F": {"in": {"deeper": {"deepest": Integer(1, "l")}}, "list": [{"n": 1}]}, "empty": {}},
    "an empty table": {},
    "no order": {"z": 1, "a": 2, "m": 3, "A": 4, "": 5, "é": 6},
}


def _all_properties(session: AmqpSession) -> dict[str, Any]:
    url = session.url(session.variant)
    assert isinstance(url, AmqpUrl)
    return {
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "headers": {"h": 1},
        "delivery_mode": 1,
        "priority": 7,
        "correlation_id": "c" * 255,
        "reply_to": "äöü",
        "expiration": "600000",
        "message_id": "m-1",
        "timestamp": 2**33,
        "type": "t",
        # The broker compares it with the login, and with EXTERNAL only the broker knows which user that is.
        **({"user_id": url.user} if url.mechanism != "EXTERNAL" else {}),
        "app_id": "a",
        "cluster_id": "",
    }


def _cases(session: AmqpSession) -> dict[str, dict[str, Any]]:
    whole = _all_properties(session)
    empty = dict.fromkeys(("content_type", "correlation_id", "message_id", "type"), "")
    return {
        "all properties": whole,
        "no properties": {},
        "empty properties": empty | {"delivery_mode": 1, "priority": 0, "timestamp": 0},
        **{f"{name} alone": {name: value} for name, value in whole.items()},
        **{f"headers: {name}": {"headers": dict(table)} for name, table in HEADERS.items()},
    }


def _sorted(value: Any) -> Any:
    """The same with the names of tables in their order."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _travelled(session: AmqpSession, cases: Mapping[str, dict[str, Any]]) -> dict[str, Method]:
    """What basic.get gives of messages with these properties."""
    client = session.connect()
    queue = session.name("ORDERS")
    client.call("queue.declare", 1, queue=queue, exclusive=True)
    found = {}
    for name, properties in cases.items():
        sent = Method.make("basic.publish", 1, routing_key=queue, properties=properties, body=name.encode())
        client.send(sent, Method.make("basic.get", 1, queue=queue, no_ack=True))
        found[name] = client.expect("basic.get-ok", body=name.encode())
    return found


@verifies("AMQP-PUB-011", "AMQP-PUB-017", source=SOURCE)
def test_types_of_properties_and_headers(session: AmqpSession) -> None:
    """Every property and every type of header arrives with its type and value, empty ones too."""
    cases = _cases(session)
    for name, arrived in _travelled(session, cases).items():
        got, sent = _sorted(dict(arrived.properties or {})), _sorted(cases[name])
        session.require(
            encode_properties(got) == encode_properties(sent),
            f"{name}: changed on the way",
            expected=repr(sent)[:400],
            actual=repr(got)[:400],
        )


@verifies("AMQP-PUB-018", source=SOURCE)
def test_bytes_of_properties(session: AmqpSession) -> None:
    """The properties arrive byte for byte, with headers in their order."""
    cases = _cases(session)
    for name, arrived in _travelled(session, cases).items():
        expected = encode_properties(cases[name])
        session.require(
            arrived.raw_properties == expected,
            f"{name}: other bytes than were published",
            expected=expected[:200].hex(" "),
            actual=arrived.raw_properties[:200].hex(" "),
        )


def _returned(client: AmqpConnection, exchange: str, name: str, properties: dict[str, Any]) -> Method:
    client.send(
        Method.make(
            "basic.publish",
            1,
            exchange=exchange,
            mandatory=True,
            properties=properties,
            body=name.encode(),
        )
    )
    return client.expect("basic.return", reply_code=312, body=name.encode())


@verifies("AMQP-PUB-005", source="AMQP 0-9-1 XML, method basic.return")
def test_types_of_returned_properties(session: AmqpSession) -> None:
    """A message is returned with every property and header as it was published."""
    exchange = session.stage.exchange("NOWHERE")
    client = session.connect()
    for name, properties in _cases(session).items():
        got = _sorted(dict(_returned(client, exchange, name, properties).properties or {}))
        sent = _sorted(properties)
        session.require(
            encode_properties(got) == encode_properties(sent),
            f"{name}: changed on the way",
            expected=repr(sent)[:400],
            actual=repr(got)[:400],
        )
