"""AMQP through the same seams as NATS: secrets masked, operations shown, streams entered in their middle."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.captures.amqp.redaction import AmqpRedactor, EitherRedactor
from plumbline.captures.files import read
from plumbline.captures.filters import parse
from plumbline.captures.operations import OperationReader
from plumbline.captures.segments import ACK, Address, Segment
from plumbline.captures.show import as_json, as_text
from plumbline.proxy.record import recorded
from plumbline.wire.amqp import PROTOCOL_HEADER, Heartbeat, Method
from tests.captures import tshark
from tests.proxy.peers import connect, echo, receive, server

SECRET = b"\0guest\0tr0ub4dor"
START_OK = Method.make(
    "connection.start-ok", 0, client_properties={"product": "x" * 40}, mechanism="PLAIN", response=SECRET,
    locale="en_US",
)  # fmt: skip
UPDATE = Method.make("connection.update-secret", 0, new_secret=b"n3w-secret", reason="expired")
PUBLISH = Method.make(
    "basic.publish", 1, routing_key="orders.new", properties={"headers": {"a": 1}}, body=b"hi"
)
STREAM = [
    PROTOCOL_HEADER,
    START_OK.raw,
    Method.make("connection.secure-ok", 0, response=SECRET).raw,
    Heartbeat.make().raw,
    PUBLISH.raw,
    UPDATE.raw,
    PUBLISH.raw,
]


def masked(data: bytes, cuts: list[int]) -> bytes:
    redactor = AmqpRedactor()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return b"".join(redactor.feed(data[start:end]) for start, end in pairwise(places))


@given(st.lists(st.integers(0, 500), max_size=30))
def test_secrets_are_masked_and_nothing_else_in_any_segments(cuts: list[int]) -> None:
    data = b"".join(STREAM)
    plain = b"\0" + b"*" * 5 + b"\0" + b"*" * 9
    assert masked(data, cuts) == data.replace(SECRET, plain).replace(b"n3w-secret", b"*" * 10)


@pytest.mark.parametrize(
    "data", [b"".join(STREAM), b'CONNECT {"pass":"tr0ub4dor"}\r\n'], ids=["amqp", "nats"]
)
@pytest.mark.parametrize("cut", [1, 3, 9])
def test_secrets_are_masked_for_unknown_protocol(data: bytes, cut: int) -> None:
    redactor = EitherRedactor()
    shown = redactor.feed(data[:cut]) + redactor.feed(data[cut:])
    assert len(shown) == len(data)
    assert b"tr0ub4dor" not in shown
    assert redactor.masked >= len(b"tr0ub4dor")


def test_the_length_of_a_secret_may_be_nothing() -> None:
    empty = PROTOCOL_HEADER + Method.make("connection.secure-ok", 0, response=b"").raw + UPDATE.raw
    assert masked(empty, []) == empty.replace(b"n3w-secret", b"*" * 10)


def exchange(place: Path) -> str:
    """Records a session in which the server echoes, part by part; returns its port."""
    with (
        server(echo) as url,
        recorded(url.replace("tcp", "amqp"), place) as proxy,
        connect(proxy.relay.address) as client,
    ):
        for part in STREAM:
            client.sendall(part)
            assert receive(client, len(part)) == part
    return url.rpartition(":")[2]


def test_a_recording_is_without_secrets_and_shows_methods(tmp_path: Path) -> None:
    exchange(tmp_path)
    wanted = parse('routing_key ~ "orders.#" and sender = client and header.a = 1')
    found = [row for row in read([tmp_path]) if wanted(row.fields)]
    assert [row.operation.raw for row in found] == [PUBLISH.raw] * 2
    assert as_text(found[0]).endswith(f"1 > {PUBLISH}")
    assert '"op":"basic.publish","channel":1' in as_json(found[0])
    (file,) = tmp_path.iterdir()
    kept = file.read_bytes()
    assert kept.count(b"tr0ub4dor") == 2  # those that a server, of all peers, sent back
    assert kept.count(b"n3w-secret") == 1


def test_wireshark_names_the_methods(tmp_path: Path) -> None:
    tshark.require()
    port = exchange(tmp_path)
    (file,) = tmp_path.iterdir()
    rows = tshark.fields(file, "_ws.col.Info", where="amqp", options=["-d", f"tcp.port=={port},amqp"])
    shown = " ".join(info for (info,) in rows)
    for method in ("Connection.Start-Ok", "Heartbeat", "Basic.Publish x= rk=orders.new"):
        assert method in shown


@pytest.mark.parametrize("skipped", [1, 9, 40])
def test_a_stream_is_entered_in_its_middle(skipped: int) -> None:
    deliver = Method.make(
        "basic.deliver", 1, consumer_tag="c", delivery_tag=7, exchange="", routing_key="q", body=b"hi"
    ).raw
    data = (deliver + Heartbeat.make().raw) * 3
    broker, client = Address("10.0.0.1", 5672), Address("10.0.0.2", 40000)
    segment = Segment(broker, client, 1, 1, ACK, data[skipped:], 0, 0, ())
    rows = list(OperationReader().feed(segment))
    tags = [row.fields.get("delivery_tag") for row in rows if row.number]
    assert tags == [7, None, 7, None]
    assert [row.fields["op"] for row in rows if not row.number] == ["opened", "entered"]
