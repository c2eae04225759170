"""The AMQP broker core: clients that do anything, in any order; after each step its state agrees with itself.

The bytes are decisions, see ``Choices``. No message may leave a queue unless a client asked for it: each is
ready, or waits for its acknowledgement, in exactly one place, until it is settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from msgspec import Struct

from plumbline.reference_broker.amqp.connections.connection import Channel, UnackedDelivery
from plumbline.reference_broker.amqp.messages.message import QueueEntry
from plumbline.reference_broker.amqp.topology.queues import EntryQueue, Queue
from plumbline.wire.amqp import SHAPES, frame
from tests.fuzz.choices import Choices, decided
from tests.fuzz.target import Target
from tests.reference_broker.amqp.virtual import Client, Virtual

MOST_STEPS = 60
CLIENTS = 2
CHANNELS = (1, 1, 2)
QUEUES = ("q", "d", "p", "x")
EXCHANGES = ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "e")
KEYS = ("q", "d", "p", "x", "a.b", "a.#", "*.b", "")
QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"x-max-length": 2},
    {"x-max-length-bytes": 12},
    {"x-message-ttl": 500},
    {"x-expires": 1000},
    {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "d"},
    {"x-max-priority": 3},
    {"x-single-active-consumer": True},
    {"x-max-length": 2, "x-overflow": "reject-publish"},
    {"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "amq.fanout"},
    {"x-queue-mode": "lazy"},
    {"x-max-length": -1},
    {"x-message-ttl": 0},
)
PROPERTIES: tuple[dict[str, Any], ...] = (
    {},
    {"delivery_mode": 2},
    {"delivery_mode": 2, "priority": 2},
    {"delivery_mode": 2, "expiration": "300"},
    {"priority": 9, "headers": {"a": 1}},
    {"expiration": "x"},
    {"user_id": "guest"},
    {"user_id": "other"},
    {"headers": {"CC": ["d", "p"], "BCC": ["x"]}, "delivery_mode": 2},
    {"expiration": "0"},
)
BODIES = (b"", b"1", b"hello", b"x" * 5000)
SENDABLE = sorted(name for name in SHAPES)


class Place(Struct):
    """Where the messages of a queue are: positions."""

    ready: list[int]
    unacked: set[int]
    last: int
    steady: bool  # nothing leaves this queue by itself

    @property
    def all(self) -> set[int]:
        return {*self.ready, *self.unacked}


class Sends(Protocol):
    """A client that methods are written to."""

    def send(self, method: str, channel: int = 1, **arguments: Any) -> None: ...


class Requests:
    """What clients ask for, as the choices decide."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices

    def declare(self, client: Sends, channel: int) -> None:
        choices = self.choices
        match choices.number(4):
            case 0 | 1:
                client.send(
                    "queue.declare",
                    channel,
                    queue=choices.one_of(QUEUES),
                    durable=choices.flag(),
                    auto_delete=choices.number(4) == 3,
                    exclusive=choices.number(4) == 3,
                    arguments=choices.one_of(QUEUE_ARGUMENTS) | choices.one_of(QUEUE_ARGUMENTS),
                )
            case 2:
                kind = choices.one_of(("direct", "fanout", "topic", "headers", "none"))
                client.send(
                    "exchange.declare",
                    channel,
                    exchange="e",
                    type=kind,
                    durable=choices.flag(),
                    auto_delete=choices.flag(),
                    internal=choices.number(4) == 3,
                )
            case _:
                method = choices.one_of(("queue.bind", "queue.bind", "queue.unbind"))
                client.send(
                    method,
                    channel,
                    queue=choices.one_of(QUEUES),
                    exchange=choices.one_of(EXCHANGES),
                    routing_key=choices.one_of(KEYS),
                )

    def publish(self, client: Sends, channel: int) -> None:
        choices = self.choices
        client.send(
            "basic.publish",
            channel,
            exchange=choices.one_of((*EXCHANGES[:1] * 3, *EXCHANGES)),
            routing_key=choices.one_of(KEYS),
            mandatory=choices.flag(),
            body=choices.one_of(BODIES),
            properties=choices.one_of(PROPERTIES),
            max_frame=choices.one_of((131072, 4096)),
        )

    def consume(self, client: Sends, channel: int) -> None:
        choices = self.choices
        if choices.number(4) == 3:
            client.send("basic.cancel", channel, consumer_tag=choices.one_of(("c", "e", "f")))
            return
        client.send(
            "basic.consume",
            channel,
            queue=choices.one_of(QUEUES),
            consumer_tag=choices.one_of(("c", "e", "f", "")),
            no_ack=choices.number(4) == 3,
            exclusive=choices.number(8) == 7,
            arguments=choices.one_of(({}, {}, {"x-priority": 5})),
        )

    def transaction(self, client: Sends, channel: int) -> str:
        method = self.choices.one_of(("tx.select", "tx.commit", "tx.rollback", "confirm.select"))
        client.send(method, channel)
        return "unacked" if method == "tx.commit" else "none"

    def remove(self, client: Sends, channel: int) -> str:
        choices = self.choices
        queue = choices.one_of(QUEUES)
        match choices.number(4):
            case 0 | 1:
                client.send("queue.purge", channel, queue=queue)
                return "ready"
            case 2:
                client.send(
                    "queue.delete", channel, queue=queue, if_unused=choices.flag(), if_empty=choices.flag()
                )
            case _:
                client.send(
                    "exchange.delete", channel, exchange=choices.one_of(EXCHANGES), if_unused=choices.flag()
                )
        return "none"


class Session(Requests):
    """A broker and its clients."""

    def __init__(self, data: bytes) -> None:
        super().__init__(Choices(data))
        self.virtual = Virtual(files={})
        self.clients = [self._client() for _ in range(CLIENTS)]

    def _client(self) -> Client:
        client = self.virtual.client(publisher_confirms=True, basic__nack=True, consumer_cancel_notify=True)
        client.send("channel.open", 2)
        client.take()
        return client

    def run(self) -> None:
        for _ in range(MOST_STEPS):
            if not self.choices:
                break
            before = self.places()
            removed = self.step()
            self.check(before, removed)
        self.restart()

    # What clients do

    def step(self) -> str:
        """One step; which messages it may remove: ``none``, ``unacked``, ``first``, ``ready`` or ``any``."""
        choices = self.choices
        who = choices.number(CLIENTS)
        client, channel = self.clients[who], choices.one_of(CHANNELS)
        removed = "none"
        match choices.number(20):
            case 0:
                client.raw(choices.data(60))
                removed = "any"
            case 1:
                name = choices.one_of(SENDABLE)
                client.raw(frame(1, channel, SHAPES[name].ids + choices.data(60)))
                removed = "any"
            case 2 | 3:
                self.declare(client, channel)
            case 4 | 5 | 6:
                self.publish(client, channel)
            case 7 | 8:
                no_ack = choices.number(3) == 2
                client.send("basic.get", channel, queue=choices.one_of(QUEUES), no_ack=no_ack)
                removed = "first" if no_ack else "none"
            case 9 | 10:
                tag, multiple = self.tag(client, channel), choices.flag()
                client.send("basic.ack", channel, delivery_tag=tag, multiple=multiple)
                removed = "unacked"
            case 11:
                tag, multiple, requeue = self.tag(client, channel), choices.flag(), choices.flag()
                client.send("basic.nack", channel, delivery_tag=tag, multiple=multiple, requeue=requeue)
                removed = "none" if requeue else "unacked"
            case 12:
                name = choices.one_of(("basic.recover", "basic.recover-async"))
                client.send(name, channel, requeue=True)
            case 13:
                self.consume(client, channel)
                removed = "any"
            case 14:
                client.send(
                    "basic.qos", channel, prefetch_count=choices.number(3), **{"global": choices.flag()}
                )
            case 15:
                removed = self.transaction(client, channel)
            case 16:
                self.virtual.pass_time(choices.one_of((0.1, 0.4, 2)))
                removed = "any"
            case 17:
                removed = self.remove(client, channel)
            case 18:
                client.leave()
                self.clients[who] = self._client()
            case _:
                self.restart()
                removed = "any"
        self.settle(who)
        return removed

    def settle(self, who: int) -> None:
        """Reads what came, and puts a new client in the place of one that was refused."""
        for place, client in enumerate(self.clients):
            client.take()
            if client.is_ended:
                client.leave()
                self.clients[place] = self._client()
        client = self.clients[who]
        held = self.virtual.broker.connections.get(client.number)
        if held is None or client.is_ended:
            return
        for number in (1, 2):
            channel = held.channels.get(number)
            if channel is not None and channel.closing:
                client.send("channel.close-ok", number)
            if number not in held.channels:
                client.send("channel.open", number)
        client.take()

    def tag(self, client: Client, channel: int) -> int:
        """One that is outstanding, mostly."""
        held = self.virtual.broker.connections.get(client.number)
        known = sorted(held.channels[channel].outstanding) if held and channel in held.channels else []
        return self.choices.one_of([*known, 0, 7] if self.choices.number(8) == 7 else known or [1])

    # What has to hold

    def queues(self) -> dict[str, Queue]:
        return self.virtual.broker.vhosts["/"].queues

    def channels(self) -> Iterator[Channel]:
        for connection in self.virtual.broker.connections.values():
            yield from connection.channels.values()

    def unacked(self) -> Iterator[UnackedDelivery]:
        """Deliveries that are not settled, those of transactions included."""
        for channel in self.channels():
            yield from held_by(channel)

    def places(self) -> dict[Queue, Place]:
        found = {
            queue: Place([one.position for one in queue.ready], set(), queue.last_position, _is_steady(queue))
            for queue in self.queues().values()
        }
        for delivery in self.unacked():
            if delivery.queue in found:
                found[delivery.queue].unacked.add(delivery.entry.position)
        return found

    def check(self, before: dict[Queue, Place], removed: str) -> None:
        entries: dict[Queue, list[QueueEntry]] = {
            queue: list(queue.ready) for queue in self.queues().values()
        }
        for delivery in self.unacked():
            if not delivery.queue.deleted:
                entries[delivery.queue].append(delivery.entry)
        for queue, held in entries.items():
            positions = [one.position for one in held]
            assert len(positions) == len(set(positions)), f"a message is in {queue.name} twice"
            assert all(0 < position <= queue.last_position for position in positions)
            durable = {one.position for one in held if queue.number and one.message.persistent}
            assert set(queue.durable_entries) == durable, f"{queue.name}: what a restart gives back differs"
            check_queue(queue)
        for channel in self.channels():
            check_channel(channel)
        after = self.places()
        for queue, was in before.items():
            if queue in after and was.steady and after[queue].steady:
                _check_removed(queue, was, after[queue], removed)

    def restart(self) -> None:
        """Another broker takes up the files: no warning, and what was durable."""
        before = self.virtual
        after = Virtual(files=before.files, now=before.now)
        assert after.warnings == []
        durable = {name: one for name, one in self.queues().items() if one.number}
        again = after.broker.vhosts["/"].queues
        assert set(again) <= set(durable)
        for name, queue in durable.items():
            if name not in again:
                assert queue.auto_delete or queue.expires is not None
                continue
            if not queue.limited and not any(one.expires for one in queue.durable_entries.values()):
                assert _contents(again[name]) == _contents(queue)
        self.virtual = after
        self.clients = [self._client() for _ in range(CLIENTS)]


def held_by(channel: Channel) -> list[UnackedDelivery]:
    """What a channel has not settled for good."""
    found = list(channel.outstanding.values())
    if channel.transaction is not None:
        for deliveries, _ in channel.transaction.settlements:
            found += deliveries.values()
    return found


def check_queue(queue: Queue) -> None:
    """Order, sizes, and nothing that waits without a reason."""
    if isinstance(queue.ready, EntryQueue):
        positions = [one.position for one in queue.ready]
        assert positions == sorted(positions), "requeued messages are not where they were"
    ready = list(queue.ready)
    assert len(queue.ready) == len(ready)
    if ready:
        assert queue.ready.first() is ready[0]
    if queue.max_length_bytes is not None:
        assert queue.bytes_ready == sum(one.message.size for one in ready)
        assert queue.bytes_ready <= queue.max_length_bytes or queue.overflow != "drop-head"
    if queue.max_length is not None and queue.overflow == "drop-head":
        assert len(ready) <= queue.max_length
    assert all(one.active and one in queue.consumers for one in queue.turn)
    assert sum(one.active for one in queue.consumers) == len(queue.turn)
    assert not (queue.turn and ready), "a message is ready and a consumer has its turn"


def check_channel(channel: Channel) -> None:
    """Counts of deliveries, for prefetch."""
    held = held_by(channel)
    assert channel.limited == sum(one.consumer is not None for one in held)
    for consumer in channel.consumers.values():
        assert consumer.outstanding == sum(one.consumer is consumer for one in held)
        assert not consumer.prefetch or consumer.outstanding <= consumer.prefetch
    assert list(channel.outstanding) == sorted(channel.outstanding)
    assert all(tag <= channel.last_tag for tag in channel.outstanding)


def _is_steady(queue: Queue) -> bool:
    """Nothing leaves it by time, length, or a consumer that acknowledges nothing."""
    return not (
        queue.limited or any(one.no_ack for one in queue.consumers) or any(one.expires for one in queue.ready)
    )


def _check_removed(queue: Queue, was: Place, now: Place, removed: str) -> None:
    gone, new = was.all - now.all, now.all - was.all
    assert all(position > was.last for position in new), f"{queue.name}: a message came back that was settled"
    match removed:
        case "none":
            assert not gone, f"{queue.name} has lost {sorted(gone)}"
        case "unacked":
            assert gone <= was.unacked, f"{queue.name} has lost {sorted(gone - was.unacked)}"
        case "first":
            assert gone <= set(was.ready[:1])
        case "ready":
            assert gone in (set(), set(was.ready))


def _contents(queue: Queue) -> list[tuple[int, str, bytes, bytes]]:
    entries = sorted(queue.durable_entries.values(), key=lambda one: one.position)
    return [
        (
            one.position,
            one.message.routing_key,
            one.message.operation.raw_properties,
            one.message.operation.body,
        )
        for one in entries
    ]


def core(data: bytes) -> None:
    """Clients do what ``data`` decides."""
    Session(data).run()


def _seeds() -> list[bytes]:
    publish, get = (0, 0, 4, 0, 0, 0, 1, 1, 0), (1, 0, 7, 0, 0)
    ack, nack, recover = (1, 0, 9, 0, 0, 0), (1, 0, 11, 0, 0, 0, 1), (1, 0, 12, 0)
    consume, wait, leave, restart = (1, 0, 13, 0, 0, 0, 0, 0, 0), (0, 0, 16, 1), (0, 0, 18), (0, 0, 19)
    commit, rollback, purge, delete = (0, 0, 15, 1), (0, 0, 15, 2), (0, 0, 17, 0, 0), (0, 0, 17, 0, 2)
    declare = (0, 0, 2, 0, 0, 1, 0, 0, 0, 0)
    settled = (publish, publish, get, get, ack, nack, publish, recover, consume, wait)
    left = (consume, publish, publish, ack, leave, publish, restart, get)
    seeds = []
    for number in range(len(QUEUE_ARGUMENTS)):
        with_arguments = (0, 0, 2, 0, 0, 1, 0, 0, number, 0)
        seeds += [decided(with_arguments, *settled), decided(with_arguments, *left)]
    for number in range(len(PROPERTIES)):
        with_properties = (0, 0, 4, 0, 0, 0, 1, number, 0)
        seeds.append(decided(declare, with_properties, get, nack, wait, restart))
    for number in range(4):
        mode = (0, 0, 15, number)
        seeds.append(decided(declare, mode, publish, commit, get, ack, rollback, purge, delete))
    any_arguments = [bytes((0, 0, 1, place, 20)) + bytes(20) for place in range(len(SENDABLE))]
    return seeds + any_arguments


TARGETS = [Target("amqp-core", core, _seeds, (), 120)]
