"""Operations that go on with other fields: the n-th that matches, and every INFO where it was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest

from plumbline.captures.files import read
from plumbline.proxy.faults.language import FaultError, FaultKind, parse_fault
from plumbline.proxy.faults.rewriting import rewritten
from plumbline.proxy.info import rewrite_info as info_rewritten
from plumbline.proxy.record import recorded
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.wire.amqp import Method
from plumbline.wire.nats import Err, HMsg, HPub, Info, Msg, Operation, Ping, Pub, Sub, Unsub
from plumbline.wire.sender import Direction
from tests.captures.test_amqp_trace import connected, get
from tests.proxy.peers import connect, receive
from tests.proxy.test_faults import disturbed, notes, numbered


@pytest.mark.parametrize(
    ("operation", "changes", "expected"),
    [
        (Pub.make("a", b"x", "r"), {"subject": "b", "payload": "long"}, Pub.make("b", b"long", "r")),
        (Pub.make("a", b"x", "r"), {"reply": None}, Pub.make("a", b"x")),
        (Msg.make("a", 1, b"x"), {"sid": 7, "reply": "r"}, Msg.make("a", 7, b"x", "r")),
        (
            HPub.make("a", b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n", b"x"),
            {"header.A": 3, "header.B": None, "header.C": "4"},
            HPub.make("a", b"NATS/1.0\r\nA: 3\r\nC: 4\r\n\r\n", b"x"),
        ),
        (
            HMsg.make("a", 1, b"NATS/1.0 404 None\r\n\r\n", b""),
            {"payload": "x"},
            HMsg.make("a", 1, b"NATS/1.0 404 None\r\n\r\n", b"x"),
        ),
        (Sub.make("a", 1), {"queue": "q"}, Sub.make("a", 1, "q")),
        (Unsub.make(1, 5), {"max_msgs": 6}, Unsub.make(1, 6)),
        (Err.make("gone"), {"message": "other"}, Err.make("other")),
        (Info.make({"a": 1, "b": 2}), {"json.a": 3, "b": None}, Info.make({"a": 3})),
    ],
)
def test_of_nats(operation: Operation, changes: dict[str, Any], expected: Operation) -> None:
    assert rewritten(operation, changes) == expected.raw


def test_of_amqp() -> None:
    deliver = Method.make(
        "basic.deliver", 1, consumer_tag="c", delivery_tag=7, routing_key="q", properties={"priority": 1},
        body=b"x",
    )  # fmt: skip
    changes = {
        "delivery_tag": 8,
        "property.priority": None,
        "header.a": 1,
        "payload": "y",
        "redelivered": True,
    }
    expected = Method.make(
        "basic.deliver", 1, consumer_tag="c", delivery_tag=8, redelivered=True, routing_key="q",
        properties={"headers": {"a": 1}}, body=b"y",
    )  # fmt: skip
    assert rewritten(deliver, changes) == expected.raw


@pytest.mark.parametrize(
    ("operation", "changes", "message"),
    [
        (Pub.make("a"), {"queue": "q"}, "it has no queue; it has subject, reply, payload"),
        (Pub.make("a"), {"header.A": "q"}, "PUB has no headers"),
        (Ping.make(), {"a": 1}, "it has no fields"),
        (Method.make("tx.select", 1), {"payload": "x"}, "it has no payload"),
        (
            Method.make("basic.ack", 1),
            {"delivery_tag": "x"},
            "delivery_tag: required argument is not an integer",
        ),
    ],
)
def test_unknown_field_is_rejected(operation: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rewritten(operation, changes)


def test_the_third_that_matches_is_rewritten(tmp_path: Path) -> None:
    fault = 'rewrite PUB the 3rd set payload="other" subject=b on upstream'
    with disturbed(tmp_path, fault) as (_, client):
        client.sendall(numbered(1, 2, 3, 4))
        expected = numbered(1, 2) + Pub.make("b", b"other").raw + numbered(4)
        assert receive(client, len(expected)) == expected
    (note,) = notes(tmp_path)
    assert note.startswith(f"plumbline: fault 1: {fault} operation 3: PUB a ")
    sent = [row.operation.raw for row in read([tmp_path], "nats") if row.sender == "client" and row.number]
    assert b"".join(sent) == numbered(
        1, 2, 3, 4
    )  # the record has the bytes of the client; the note, the change


def test_failed_rewrite_is_forwarded_with_comment(tmp_path: Path) -> None:
    with disturbed(tmp_path, "rewrite PUB set sid=3 on upstream") as (_, client):
        client.sendall(numbered(1))
        assert receive(client, len(numbered(1))) == numbered(1)
    assert any("was not rewritten: it has no sid" in note for note in notes(tmp_path))


def test_a_delivery_of_amqp_is_rewritten(tmp_path: Path) -> None:
    fault = 'rewrite basic.get-ok the 2nd set redelivered=true payload="not what was sent"'
    with (
        AmqpBroker.in_thread() as url,
        recorded(url, tmp_path, faults=[fault]) as proxy,
        connected(proxy.url) as channel,
    ):
        channel.queue_declare("q", auto_delete=True)
        for body in (b"one", b"two"):
            channel.basic_publish("", "q", body)
        first, second = get(channel, "q"), get(channel, "q")
    assert (first[0].redelivered, first[2]) == (False, b"one")
    assert (second[0].redelivered, second[2]) == (True, b"not what was sent")


def test_the_language() -> None:
    fault = parse_fault(
        'rewrite MSG where subject ~ "a.*" set payload="x y", reply=null on downstream the 2nd'
    )
    assert (fault.kind, fault.only, fault.direction) == (FaultKind.REWRITE, 2, Direction.TO_CLIENT)
    assert fault.changes == {"payload": "x y", "reply": None}
    assert fault.where({"op": "MSG", "subject": "a.b"})
    assert not fault.where({"op": "MSG", "subject": "b"})
    for text in ("rewrite MSG", "drop MSG set payload=x"):
        with pytest.raises(FaultError):
            parse_fault(text)


def test_rewritten_info_adds_no_connect_urls() -> None:
    changes = {"host": "proxy", "port": 1, "connect_urls": ["proxy:1"], "tls_required": True}
    info = info_rewritten(Info.make({"host": "a", "connect_urls": ["b:2", "c:3"]}).raw, changes)
    assert info == Info.make({"host": "proxy", "connect_urls": ["proxy:1"], "tls_required": True}).raw
    bare = Info.make({"max_payload": 1}).raw
    assert info_rewritten(bare, {"host": "proxy"}) == bare


@pytest.mark.parametrize("info_address", ["here", "proxy.example:4999"])
def test_info_sends_clients_to_the_proxy(
    server_binary: ServerBinary, tmp_path: Path, info_address: str
) -> None:
    config = {"jetstream": False, "client_advertise": "elsewhere.example:4242"}
    with (
        NatsServer(server_binary.path, config) as real,
        recorded(real.url, tmp_path, info_address=info_address) as proxy,
        connect(proxy.relay.address) as client,
    ):
        address = str(proxy.relay.address) if info_address == "here" else info_address
        received = b""
        while not received.endswith(b"\r\n"):
            received += client.recv(65536)
        (host, port) = address.rsplit(":", 1)
        assert f'"host":"{host}","port":{port}' in received.decode()
        assert "elsewhere.example" not in received.decode()

        async def talk() -> None:
            async with await nats.connect(proxy.url) as other:
                await other.flush()
                assert all("elsewhere" not in str(server) for server in other.discovered_servers)

        asyncio.run(talk())
    infos = [row for row in read([tmp_path]) if row.fields["op"] == "INFO"]
    assert any("elsewhere.example" in str(row) for row in infos)  # as the server sent it
    assert any(
        note.startswith("plumbline: fault rewrite-info: rewrite INFO set host=") for note in notes(tmp_path)
    )
