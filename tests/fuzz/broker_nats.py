"""The NATS broker core: clients that do anything, in any order; after each step its state agrees with itself.

The bytes are decisions, see ``Choices``: which client does what. Streams are in files that are a dict, so
a restart can happen at any step, and gives what was there.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.position import deliveries_pending
from plumbline.reference_broker.nats.jetstream.streams.store import StoredMessage
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats import Decoder, HMsg, HPub, Info, Limits, Msg, Operation, Pub, Sender, Sub, Unsub
from plumbline.wire.nats.subjects import covers
from tests.fuzz.choices import Choices, decided
from tests.fuzz.target import Target
from tests.reference_broker.jetstream.disk import Kept
from tests.reference_broker.virtual import Client

MOST_STEPS = 50
CLIENTS = 3
SECOND = 1_000_000_000
LITERALS = ("s.a", "s.b", "a", "a.b", "a.b.c", "t.x", "_I.1", "_I.2", "$JS.API.INFO", "a..b", "", "$SYS.x")
PATTERNS = (*LITERALS, "s.*", "s.>", "*", ">", "a.*.c", "*.b", "a.>", "_I.*", "a.>.c", "$JS.API.>", "*.*")
STREAMS, CONSUMERS = ("S", "T", "M"), ("C", "D")
REPLIES = (None, "_I.1", "_I.2", "s.a", "unused")
PAYLOADS = (b"", b"x", b"+ACK", b"hello" * 20)
HEADERS: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("Nats-Msg-Id", "1"),),
    (("Nats-Msg-Id", "2"),),
    (("Nats-Expected-Last-Sequence", "1"),),
    (("Nats-Expected-Last-Subject-Sequence", "0"),),
    (("Nats-TTL", "1s"),),
    (("Nats-TTL", "never"),),
    (("Nats-Rollup", "sub"),),
    (("Nats-Rollup", "all"),),
    (("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1")),
    (("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "2"), ("Nats-Batch-Commit", "1")),
    (("Nats-Incr", "+1"),),
    (("Nats-Expected-Stream", "S"), ("A", "b")),
    (("Nats-Schedule", "@at 2030-01-01T00:00:00Z"),),
)
STREAM_FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"max_msgs": 3},
    {"max_bytes": 200},
    {"max_age": 2 * SECOND},
    {"max_msgs_per_subject": 1},
    {"discard": "new", "max_msgs": 2},
    {"retention": "workqueue"},
    {"retention": "interest"},
    {"storage": "memory"},
    {"allow_msg_ttl": True},
    {"allow_rollup_hdrs": True},
    {"allow_atomic": True},
    {"duplicate_window": SECOND},
    {"allow_direct": True},
    {"max_msg_size": 5},
    {"max_consumers": 1},
    {"deny_delete": True},
    {"sealed": True},
    {"no_ack": True},
    {"first_seq": 5},
    {"republish": {"src": "s.>", "dest": "r.>"}},
    {"subject_transform": {"src": "s.*", "dest": "s.{{wildcard(1)}}"}},
    {"allow_msg_counter": True},
    {"discard_new_per_subject": True, "discard": "new", "max_msgs_per_subject": 1},
    {"subject_delete_marker_ttl": SECOND, "allow_rollup_hdrs": True, "max_age": SECOND},
)
CONSUMER_FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"ack_policy": "explicit"},
    {"ack_policy": "all"},
    {"ack_policy": "none"},
    {"ack_policy": "explicit", "ack_wait": SECOND},
    {"ack_policy": "explicit", "max_deliver": 2, "ack_wait": SECOND},
    {"ack_policy": "explicit", "max_ack_pending": 1},
    {"ack_policy": "explicit", "filter_subject": "s.a"},
    {"ack_policy": "explicit", "deliver_subject": "_I.2"},
    {"deliver_subject": "_I.1", "ack_policy": "none"},
    {"ack_policy": "explicit", "deliver_policy": "new"},
    {"ack_policy": "explicit", "deliver_policy": "last_per_subject"},
    {"ack_policy": "explicit", "backoff": [SECOND, 2 * SECOND], "max_deliver": 3},
    {"ack_policy": "explicit", "deliver_policy": "by_start_sequence", "opt_start_seq": 3},
    {"ack_policy": "explicit", "filter_subjects": ["s.a", "s.b"]},
    {"ack_policy": "explicit", "max_waiting": 1},
    {"ack_policy": "explicit", "deliver_subject": "_I.1", "flow_control": True, "idle_heartbeat": SECOND},
    {"ack_policy": "explicit", "inactive_threshold": SECOND},
    {"ack_policy": "explicit", "mem_storage": True},
    {"ack_policy": "explicit", "priority_policy": "pinned_client", "priority_groups": ["g"]},
    {"ack_policy": "explicit", "headers_only": True},
    {"ack_policy": "explicit", "rate_limit_bps": 8000, "deliver_subject": "_I.2"},
    {"ack_policy": "explicit", "sample_freq": "50%"},
)
PULLS: tuple[dict[str, Any], ...] = (
    {},
    {"batch": 3},
    {"batch": 2, "no_wait": True},
    {"batch": 5, "expires": SECOND},
    {"batch": 1, "max_bytes": 30},
    {"batch": 2, "expires": 2 * SECOND, "idle_heartbeat": SECOND // 2},
    {"batch": 1, "group": "g", "expires": SECOND},
    {"batch": 2, "no_wait": True, "expires": SECOND},
    {"batch": 0},
    {"batch": -1},
    {"min_pending": 2},
)
ACKS = (
    b"",
    b"+ACK",
    b"-NAK",
    b'-NAK {"delay":1000000000}',
    b"+WPI",
    b"+TERM",
    b"+TERM why",
    b"+NXT",
    b'+NXT {"batch":2}',
    b"junk",
    b"+OK",
)
PURGES: tuple[dict[str, Any], ...] = (
    {},
    {"keep": 1},
    {"filter": "s.a"},
    {"seq": 3},
    {"filter": "s.b", "keep": 1},
)
SUBJECTS_OF = {"S": ["s.*"], "T": ["t.>"]}
APIS = (
    "STREAM.CREATE.S",
    "STREAM.UPDATE.S",
    "CONSUMER.CREATE.S",
    "CONSUMER.CREATE.S.C",
    "CONSUMER.CREATE.S.C.s.a",
    "CONSUMER.DURABLE.CREATE.S.C",
    "STREAM.MSG.GET.S",
    "DIRECT.GET.S",
    "DIRECT.GET.S.s.a",
    "STREAM.NAMES",
    "STREAM.LIST",
    "CONSUMER.NAMES.S",
    "CONSUMER.LIST.S",
    "STREAM.INFO.S",
    "CONSUMER.INFO.S.C",
    "INFO",
    "CONSUMER.PAUSE.S.C",
    "CONSUMER.RESET.S.C",
    "CONSUMER.UNPIN.S.C",
    "CONSUMER.MSG.NEXT.S.C",
    "STREAM.SNAPSHOT.S",
    "STREAM.PURGE.S",
    "STREAM.MSG.DELETE.S",
    "ACCOUNT.PURGE.x",
    "META.LEADER.STEPDOWN",
)


class Sends(Protocol):
    """A client that requests are written to."""

    def send(self, data: bytes) -> object: ...


class Requests:
    """What clients ask the API, as the choices decide."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices

    def api(self, client: Sends, subject: str, body: object) -> None:
        client.send(Pub.make(f"$JS.API.{subject}", json.dumps(body).encode(), "_I.1").raw)

    def stream(self, client: Sends, what: str) -> None:
        choices = self.choices
        name = choices.one_of(STREAMS)
        body: dict[str, Any] = {"name": name} | choices.one_of(STREAM_FIELDS) | choices.one_of(STREAM_FIELDS)
        if name == "M":
            body |= choices.one_of(({"mirror": {"name": "S"}}, {"sources": [{"name": "S"}, {"name": "T"}]}))
        else:
            body["subjects"] = SUBJECTS_OF[name]
        self.api(client, f"STREAM.{what}.{name}", body)

    def consumer(self, client: Sends) -> None:
        choices = self.choices
        stream, name = choices.one_of(STREAMS), choices.one_of(CONSUMERS)
        config = choices.one_of(CONSUMER_FIELDS) | choices.one_of(CONSUMER_FIELDS)
        if choices.flag():
            config = config | {"durable_name": name}
        subject = f"CONSUMER.CREATE.{stream}.{name}"
        self.api(client, subject, {"stream_name": stream, "config": config | {"name": name}})

    def other(self, client: Sends) -> None:
        """Deletions, and requests with a body that need not be JSON."""
        choices = self.choices
        stream, consumer = choices.one_of(STREAMS), choices.one_of(CONSUMERS)
        match choices.number(4):
            case 0:
                self.api(client, f"STREAM.DELETE.{stream}", None)
            case 1:
                self.api(client, f"CONSUMER.DELETE.{stream}.{consumer}", None)
            case _:
                subject = f"$JS.API.{choices.one_of(APIS)}"
                client.send(Pub.make(subject, choices.data(120), "_I.1").raw)


class Session(Requests):
    """A broker, its clients, and what they were delivered."""

    def __init__(self, data: bytes) -> None:
        super().__init__(Choices(data))
        self.kept = Kept()
        self.clients = [self._client() for _ in range(CLIENTS)]
        self.deliveries: list[str] = []  # ack subjects

    def _client(self) -> Client:
        client = self.kept.client()
        client.send(Sub.make("_I.*", 1).raw)
        return client

    def run(self) -> None:
        for _ in range(MOST_STEPS):
            if not self.choices:
                break
            self.step()
            self.collect()
            self.check()
        self.restart()

    # What clients do

    def step(self) -> None:
        choices = self.choices
        who = choices.number(CLIENTS)
        client = self.clients[who]
        match choices.number(20):
            case 0:
                client.send(choices.data(80))
            case 1 | 2:
                queue = choices.one_of((None, None, "q", "r"))
                client.send(Sub.make(choices.one_of(PATTERNS) or "x", choices.number(8), queue).raw)
            case 3:
                client.send(Unsub.make(choices.number(8), choices.one_of((None, 0, 1, 2))).raw)
            case 4 | 5 | 6:
                subject, reply = choices.one_of(LITERALS) or "x", choices.one_of(REPLIES)
                client.send(Pub.make(subject, choices.one_of(PAYLOADS), reply).raw)
            case 7:
                subject, reply = choices.one_of(LITERALS) or "x", choices.one_of(REPLIES)
                headers, payload = choices.one_of(HEADERS), choices.one_of(PAYLOADS)
                client.send(HPub.make(subject, headers, payload, reply).raw)
            case 8:
                self.stream(client, choices.one_of(("CREATE", "CREATE", "UPDATE")))
            case 9:
                self.consumer(client)
            case 10 | 11:
                subject = f"CONSUMER.MSG.NEXT.{choices.one_of(STREAMS)}.{choices.one_of(CONSUMERS)}"
                self.api(client, subject, choices.one_of(PULLS))
            case 12 | 13:
                if self.deliveries:
                    subject = choices.one_of(self.deliveries)
                    client.send(Pub.make(subject, choices.one_of(ACKS), choices.one_of(REPLIES)).raw)
            case 14:
                self.kept.pass_time(choices.one_of((0.1, 0.5, 1, 3, 40)))
            case 15:
                client.leave()
                self.clients[who] = self._client()
            case 16:
                self.api(client, f"STREAM.MSG.DELETE.{choices.one_of(STREAMS)}", {"seq": choices.number(12)})
            case 17:
                self.api(client, f"STREAM.PURGE.{choices.one_of(STREAMS)}", choices.one_of(PURGES))
            case 18:
                self.other(client)
            case _:
                self.restart()
        if client.number in self.kept.ended:
            client.leave()
            self.clients[who] = self._client()

    def collect(self) -> None:
        """What came; every byte of it is the protocol, or the decoder raises."""
        for client in self.clients:
            for operation in self._taken(client):
                if isinstance(operation, Msg | HMsg) and (operation.reply or "").startswith("$JS.ACK."):
                    self.deliveries.append(operation.reply or "")
        del self.deliveries[:-200]

    def _taken(self, client: Client) -> list[Operation]:
        operations = Decoder(Sender.SERVER, Limits(max_payload=1 << 24)).feed(client.take_bytes())
        assert all(isinstance(one.fields, dict) for one in operations if isinstance(one, Info))
        return operations

    # What has to hold

    def check(self) -> None:
        self.check_subscriptions()
        for stream in self.kept.service.streams.values():
            check_store(stream)
            for consumer in stream.consumers.values():
                check_consumer(consumer)

    def check_subscriptions(self) -> None:
        broker = self.kept.broker
        router = broker.router
        held = [one for client in broker.connections.values() for one in client.subscriptions.values()]
        for one in held:
            assert one.connection.subscriptions[one.sid] is one
            assert not one.max_msgs or one.delivered < one.max_msgs
        for literal in LITERALS:
            subject = literal.encode()
            tokens = subject.split(b".")
            wanted = {one for one in held if b"" not in tokens and covers(one.subject, subject)}
            wanted |= {one for one in held if one.subject == subject}
            found = router.subscriptions.match(subject)
            assert len(found) == len(set(found))
            assert set(found) == wanted, (
                f"the list of subscriptions and the connections differ on {subject!r}"
            )
            if subject in router.routes:
                kept, fresh = router.routes[subject], router.find_route(subject)
                assert kept.plain == fresh.plain
                assert kept.groups == fresh.groups

    def restart(self) -> None:
        """Another broker takes up the files: no warning, and the same messages and counters."""
        before = self.kept
        after = Kept(before.files, now=before.now)
        assert not after.warnings, after.warnings
        expected = {name: one for name, one in before.service.streams.items() if one.files is not None}
        assert set(after.service.streams) == set(expected)
        for name, stream in expected.items():
            again = after.service.streams[name]
            assert list(again.store.messages()) == list(stream.store.messages()), f"stream {name} differs"
            assert again.store.last_seq == stream.store.last_seq
            for consumer in stream.consumers.values():
                if consumer.log is not None:
                    _check_same_consumer(consumer, again.consumers[consumer.name])
        self.kept = after
        self.clients = [self._client() for _ in range(CLIENTS)]
        self.check()


def check_store(stream: Stream) -> None:
    """Counters and indexes of a store equal what its messages give."""
    store = stream.store
    messages: list[StoredMessage] = list(store.messages())
    assert len(messages) == len(store)
    sizes = [store.size_of(one.subject, one.header_block, one.payload) for one in messages]
    assert store.size == sum(sizes)
    assert [one.seq for one in messages] == sorted({one.seq for one in messages})
    if messages:
        assert (store.first_seq, messages[-1].seq <= store.last_seq) == (messages[0].seq, True)
    else:
        assert store.first_seq in (store.last_seq + 1, 0)
    by_subject: dict[bytes, list[int]] = {}
    for one in messages:
        by_subject.setdefault(one.subject, []).append(one.seq)
    assert set(store.subjects()) == set(by_subject)
    for subject, seqs in by_subject.items():
        first, last = store.first_of(subject), store.last_of(subject)
        assert (store.count_of(subject), first and first.seq, last and last.seq) == (
            len(seqs),
            seqs[0],
            seqs[-1],
        )
    config = stream.config
    if config.max_msgs > 0:
        assert len(store) <= config.max_msgs
    if config.max_bytes > 0:
        assert store.size <= config.max_bytes
    if config.max_msgs_per_subject > 0:
        assert all(len(seqs) <= config.max_msgs_per_subject for seqs in by_subject.values())


def check_consumer(consumer: Consumer) -> None:
    """Counters of a consumer agree with each other and with the stream."""
    acks, store = consumer.acks, consumer.stream.store
    pending = deliveries_pending(consumer.position, store, consumer.subject_filter)
    assert consumer.num_pending == pending, "num_pending"
    assert acks.floor.consumer <= acks.delivered.consumer
    last = max(
        store.last_seq, (consumer.config.opt_start_seq or 1) - 1
    )  # a consumer may begin beyond the end
    assert acks.delivered.stream <= last
    assert acks.floor.stream <= last
    assert all(store.load(seq) for seq in acks.pending), "what waits for its acknowledgement is not stored"
    assert all(seq <= acks.delivered.stream for seq in acks.pending)
    assert set(acks.queue) <= set(acks.pending)
    assert list(acks.pending) == sorted(acks.pending)
    waiting = consumer.waiting.requests
    assert len(waiting) <= max(consumer.config.max_waiting, 0) or not consumer.config.is_pull
    if consumer.config.ack_policy == "none":
        assert not acks.pending


def _check_same_consumer(consumer: Consumer, again: Consumer) -> None:
    one, other = consumer.acks, again.acks
    assert other.delivered == one.delivered
    assert other.floor == one.floor
    assert list(other.pending) == list(one.pending)
    assert other.redelivered == one.redelivered
    assert again.num_pending == consumer.num_pending


def core(data: bytes) -> None:
    """Clients do what ``data`` decides."""
    Session(data).run()


def _seeds() -> list[bytes]:
    create, consume, publish = (0, 8, 0, 0, 0, 0), (0, 9, 0, 0, 1, 0, 1), (1, 4, 0, 1, 1)
    pull, ack, wait, delete, restart = (1, 10, 0, 0, 1), (1, 12, 0, 1, 1), (0, 14, 3), (0, 16, 0, 2), (0, 19)
    common = (create, consume, publish, publish, pull, ack, wait)
    seeds = [decided(*common), decided(*common, delete, restart, publish, pull)]
    for number in range(len(STREAM_FIELDS)):
        made, with_headers = (0, 8, 0, 0, number, 0), (1, 7, 0, 1, number % len(HEADERS), 1)
        used = (publish, with_headers, with_headers, pull, ack, delete, wait, publish)
        seeds.append(decided(made, consume, *used))
    for number in range(len(CONSUMER_FIELDS)):
        configured = (0, 9, 0, 0, number, 0, 1)
        seeds.append(
            decided(create, publish, publish, configured, publish, pull, wait, ack, ack, wait, restart)
        )
    for place in range(len(PATTERNS)):
        subscribe = (1, 1, 0, place, 1)
        seeds.append(decided(subscribe, (1, 2, 0, 1, 1), (1, 2, place, 1)))
    asked = [decided(create, (0, 18, 0, 0, 2, place, 2)) + b"{}" for place in range(len(APIS))]
    mirror = (0, 8, 0, 2, 0, 0, 0)
    return [*seeds, *asked, decided(create, mirror, publish, publish, delete, restart)]


TARGETS = [Target("nats-core", core, _seeds, (), 120)]
