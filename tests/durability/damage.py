"""Small stores with every kind of file, and what has to hold when one of their files is damaged.

What a broker acknowledged is there after a restart, unless a warning names the file. One damage cannot be
seen: a file that ends exactly where one record ended before; it looks like a file that was never longer.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.reference_broker.amqp.storage.records import JOURNAL, decode_frames
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.wire.nats import Decoder, HMsg, HPub, Msg, Pub, Sender, Sub
from tests.reference_broker.amqp.virtual import Virtual as VirtualAmqp
from tests.reference_broker.jetstream.disk import Files, Kept
from tests.reference_broker.virtual import Client


def flipped(data: bytes, bit: int) -> bytes:
    """``data`` with one bit changed."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def damages(data: bytes) -> Iterator[bytes]:
    """Every beginning of ``data``, and ``data`` with each of its bits changed."""
    for size in range(len(data)):
        yield data[:size]
    for bit in range(len(data) * 8):
        yield flipped(data, bit)


# NATS


class NatsStore(Struct):
    """A store as its broker left it, and what was ever in it."""

    files: Files
    now: int
    messages: dict[str, dict[int, StoredMessage]]  # what is there, by stream
    ever: dict[str, dict[int, StoredMessage]]  # also what was removed
    acknowledged: dict[tuple[str, str], set[int]]  # by stream and consumer


def nats_store() -> NatsStore:
    """A stream with limits and a work queue, each with a consumer; some messages are acknowledged."""
    kept = Kept()
    client = kept.client()
    client.send(Sub.make("_I.*", 1).raw)
    ever: dict[str, dict[int, StoredMessage]] = {"L": {}, "W": {}}
    acknowledged: dict[tuple[str, str], set[int]] = {("L", "C"): set(), ("W", "C"): set()}
    for name, retention in (("L", "limits"), ("W", "workqueue")):
        config = f'{{"name":"{name}","subjects":["{name}.*"],"retention":"{retention}"}}'
        _ask(client, f"STREAM.CREATE.{name}", config)
        consumer = '{"durable_name":"C","ack_policy":"explicit"}'
        _ask(client, f"CONSUMER.DURABLE.CREATE.{name}.C", f'{{"stream_name":"{name}","config":{consumer}}}')
        for number in range(4):
            client.send(HPub.make(f"{name}.a", [("Nats-Msg-Id", str(number))], b"%d" % number, "_I.p").raw)
            client.send(Pub.make(f"{name}.b", b"payload", "_I.p").raw)
            for message in kept.service.streams[name].store.messages():
                ever[name][message.seq] = message
        for answer in _ask(client, f"CONSUMER.MSG.NEXT.{name}.C", '{"batch":4,"no_wait":true}'):
            seq = int((answer.reply or "").split(".")[5])
            if seq % 2:
                client.send(Pub.make(answer.reply or "", b"+ACK").raw)
                acknowledged[name, "C"].add(seq)
    _ask(client, "STREAM.MSG.DELETE.L", '{"seq":6}')
    messages = {
        name: {one.seq: one for one in stream.store.messages()}
        for name, stream in kept.service.streams.items()
    }
    return NatsStore(dict(kept.files), kept.now, messages, ever, acknowledged)


def _ask(client: Client, subject: str, body: str) -> list[Msg | HMsg]:
    client.take_bytes()
    client.send(Pub.make(f"$JS.API.{subject}", body.encode(), "_I.1").raw)
    return [one for one in Decoder(Sender.SERVER).feed(client.take_bytes()) if isinstance(one, Msg | HMsg)]


def check_nats(store: NatsStore, path: str, data: bytes) -> None:
    """``path`` holds ``data``: the state and the output of the next broker."""
    original = store.files[path]
    again = Kept({**store.files, path: data}, now=store.now)
    unseen = original.startswith(data)  # cut: perhaps between two records
    assert all(path in warning for warning in again.warnings)
    assert len(again.warnings) <= 1
    warned = bool(again.warnings)
    assert warned or unseen or data == original, "damage without a warning"
    streams = again.service.streams
    for name, messages in store.messages.items():
        of_this = path.startswith(f"streams/{name}/")
        if name not in streams:
            assert of_this
            assert warned, f"stream {name} is gone without a warning"
            continue
        there = {one.seq: one for one in streams[name].store.messages()}
        assert all(store.ever[name].get(seq) == one for seq, one in there.items()), (
            "served what was never stored"
        )
        if not of_this:
            assert there == messages, f"damage of {path} changed stream {name}"
        lost = messages.keys() - there.keys()
        assert not lost or warned or (unseen and path.endswith(".blk")), (
            f"{sorted(lost)} are lost without a warning"
        )
        consumer = streams[name].consumers.get("C")
        if consumer is None:
            assert of_this
            assert warned, "a consumer is gone without a warning"
            continue
        open_ = {*consumer.acks.pending, *range(consumer.position.next_seq, streams[name].store.last_seq + 1)}
        again_open = open_ & store.acknowledged[name, "C"] & there.keys()
        assert not again_open or warned or (unseen and path.endswith((".log", ".blk"))), (
            "acknowledgements are lost"
        )
    second = Kept(again.files, now=store.now)
    assert not second.warnings, "the damage was not mended"
    for name, stream in streams.items():
        assert list(second.service.streams[name].store.messages()) == list(stream.store.messages())


# AMQP


class AmqpStore(Struct):
    """A journal, and the bodies of the messages in it."""

    journal: bytes
    messages: list[bytes]
    ever: set[bytes]
    now: int


def amqp_store() -> AmqpStore:
    """Queues, exchanges and bindings; messages, some of them acknowledged, one of them by a transaction."""
    virtual = VirtualAmqp(files={})
    client = virtual.client()
    client.send("exchange.declare", exchange="e", type="topic", durable=True)
    client.send("queue.declare", queue="q", durable=True, arguments={"x-max-priority": 3})
    client.send("queue.bind", queue="q", exchange="e", routing_key="a.#")
    bodies = [f"message {number}" for number in range(6)]
    for place, body in enumerate(bodies):
        properties = {"delivery_mode": 2, "headers": {"n": place}}
        client.send(
            "basic.publish", exchange="e", routing_key="a.b", body=body.encode(), properties=properties
        )
    for _ in range(3):
        client.get("q", no_ack=False)
    client.send("basic.ack", delivery_tag=2)
    queue = virtual.broker.vhosts["/"].queues["q"]
    messages = [one.message.operation.body for one in queue.durable_entries.values()]
    return AmqpStore(virtual.files[JOURNAL], messages, {body.encode() for body in bodies}, virtual.now)


def check_amqp(store: AmqpStore, data: bytes) -> None:
    """The journal holds ``data``: the state and the output of the next broker."""
    again = VirtualAmqp(files={JOURNAL: data}, now=store.now)
    unseen = store.journal.startswith(data) and decode_frames(data)[1] == len(data)
    assert bool(again.warnings) == (data != store.journal and not unseen), "damage and warnings do not agree"
    queue = again.broker.vhosts["/"].queues.get("q")
    there = [one.message.operation.body for one in queue.durable_entries.values()] if queue else []
    assert set(there) <= store.ever, "served what was never stored"
    assert len(there) == len(set(there))
    if not (again.warnings or unseen):
        assert there == store.messages
    second = VirtualAmqp(files=again.files, now=store.now)
    assert not second.warnings, "the damage was not mended"
