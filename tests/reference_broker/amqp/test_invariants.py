"""Whatever clients do, in any order: nothing is lost, doubled or overtaken, other clients are not harmed."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from plumbline.wire.amqp import SHAPES, Method, frame
from tests.reference_broker.amqp.virtual import Virtual

SENDABLE = sorted(name for name in SHAPES if not name.startswith("connection."))
NAMES = st.sampled_from(["", "q", "x", "amq.direct", "amq.topic", "amq.gen-", "é"])
TABLE = ["max-length", "message-ttl", "expires", "overflow", "max-priority", "priority", "match"]
VALUES = {
    "bit": st.booleans(),
    "shortstr": NAMES,
    "longstr": NAMES,
    "octet": st.integers(0, 255),
    "short": st.integers(0, 65535),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)),
    "table": st.dictionaries(
        st.sampled_from([f"x-{name}" for name in TABLE]),
        st.one_of(st.integers(-2, 300), st.sampled_from(["reject-publish", "any", ""]), st.booleans()),
        max_size=2,
    ),
}


@st.composite
def methods(draw: st.DrawFn) -> Method:
    """Any method with any arguments on one of two channels."""
    shape = SHAPES[draw(st.sampled_from(SENDABLE))]
    arguments: dict[str, Any] = {name: draw(VALUES[kind]) for name, kind in shape.arguments.items()}
    arguments |= {"body": draw(st.binary(max_size=5))} if shape.has_content else {}
    return Method.make(shape.name, draw(st.sampled_from([1, 1, 1, 2])), **arguments)


@given(st.lists(methods(), max_size=30), st.lists(st.floats(0, 2), max_size=5))
def test_no_method_harms_the_broker_or_another_connection(sent: list[Method], pauses: list[float]) -> None:
    virtual = Virtual(files={})
    witness, client = virtual.client(), virtual.client()
    witness.ask("queue.declare", queue="mine", exclusive=True)
    for place, operation in enumerate(sent):
        if client.is_ended:
            break
        client.raw(operation.raw)
        if place < len(pauses):
            virtual.pass_time(pauses[place])
    client.take()
    witness.publish("mine", "still here")
    assert witness.get("mine") == ("still here", False)
    client.leave()
    Virtual(files=virtual.files).client()


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 2))
def test_no_bytes_harm_the_broker_or_another_connection(data: bytes, kind: int, channel: int) -> None:
    virtual = Virtual()
    witness = virtual.client()
    for client in (virtual.stranger(), virtual.client()):
        client.raw(data)
        if not client.is_ended:
            client.raw(frame(kind, channel, data))
        virtual.pass_time(0.1)
        client.leave()
    assert [one.method for one in witness.ask("basic.qos")] == ["basic.qos-ok"]


class Messages(RuleBasedStateMachine):
    """One queue, two clients, and a model of where each message is."""

    def __init__(self) -> None:
        super().__init__()
        self.virtual = Virtual()
        self.clients = [self.virtual.client(), self.virtual.client()]
        self.clients[0].ask("queue.declare", queue="q")
        self.ready: list[tuple[int, bool]] = []  # number of the message, redelivered
        self.held: list[dict[int, int]] = [{}, {}]  # by delivery tag
        self.tags = [0, 0]
        self.published = 0

    who = st.integers(0, 1)

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.published += 1
            self.clients[0].publish("q", str(self.published))
            self.ready.append((self.published, False))

    @rule(who=who, no_ack=st.booleans())
    def get(self, who: int, no_ack: bool) -> None:
        got = self.clients[who].get("q", no_ack=no_ack)
        if not self.ready:
            assert got is None
            return
        number, redelivered = self.ready.pop(0)
        assert got == (str(number), redelivered)
        self.tags[who] += 1
        if not no_ack:
            self.held[who][self.tags[who]] = number

    def settle(self, who: int, choice: int, method: str, **bits: bool) -> list[int]:
        """Settle a delivery, or all up to it; the numbers of the messages."""
        tags = sorted(self.held[who])
        tag = tags[choice % len(tags)]
        settled = [one for one in tags if one <= tag] if bits.get("multiple") else [tag]
        self.clients[who].send(method, delivery_tag=tag, **bits)
        return [self.held[who].pop(one) for one in settled]

    @precondition(lambda self: self.held[0])
    @rule(choice=st.integers(0, 9), multiple=st.booleans())
    def ack(self, choice: int, multiple: bool) -> None:
        self.settle(0, choice, "basic.ack", multiple=multiple)

    @precondition(lambda self: self.held[1])
    @rule(choice=st.integers(0, 9), multiple=st.booleans(), requeue=st.booleans())
    def nack(self, choice: int, multiple: bool, requeue: bool) -> None:
        numbers = self.settle(1, choice, "basic.nack", multiple=multiple, requeue=requeue)
        if requeue:
            self.requeued(numbers)

    @rule(who=who)
    def recover(self, who: int) -> None:
        assert self.clients[who].ask("basic.recover", requeue=True)[-1].method == "basic.recover-ok"
        self.requeued(list(self.held[who].values()))
        self.held[who].clear()

    @rule(who=who)
    def lose(self, who: int) -> None:
        self.clients[who].leave()
        self.clients[who] = self.virtual.client()
        self.requeued(list(self.held[who].values()))
        self.held[who].clear()
        self.tags[who] = 0

    @rule()
    def purge(self) -> None:
        (answer,) = self.clients[0].ask("queue.purge", queue="q")
        assert isinstance(answer, Method)
        assert answer.arguments["message_count"] == len(self.ready)
        self.ready.clear()

    def requeued(self, numbers: list[int]) -> None:
        self.ready = sorted([*self.ready, *((number, True) for number in numbers)])

    @invariant()
    def counts_agree(self) -> None:
        queue = self.virtual.broker.vhosts["/"].queues["q"]
        assert len(queue.ready) == len(self.ready)


TestMessages = Messages.TestCase
TestMessages.settings = settings(max_examples=150, stateful_step_count=30)


@given(st.lists(st.sampled_from(["publish", "ack", "nack", "requeue"]), max_size=60), st.integers(1, 4))
def test_prefetch_is_respected_and_all_messages_delivered(steps: list[str], prefetch: int) -> None:
    virtual = Virtual()
    client = virtual.client()
    client.send("queue.declare", queue="q")
    client.send("basic.qos", prefetch_count=prefetch)
    client.send("basic.consume", queue="q", consumer_tag="c")
    client.take()
    published = 0
    held: list[int] = []
    settled: list[str] = []
    bodies: dict[int, str] = {}
    for step in steps + ["ack"] * 100:
        if step == "publish":
            published += 1
            client.publish("q", str(published))
        elif held:
            tag = held.pop(0)
            if step == "ack":
                client.send("basic.ack", delivery_tag=tag)
            else:
                client.send("basic.nack", delivery_tag=tag, requeue=step == "requeue")
            if step != "requeue":
                settled.append(bodies[tag])
        for one in client.take():
            assert isinstance(one, Method)
            held.append(one.arguments["delivery_tag"])
            bodies[held[-1]] = one.body.decode()
        assert len(held) <= prefetch
    assert sorted(settled, key=int) == [str(number + 1) for number in range(published)]
    assert list(bodies) == list(range(1, len(bodies) + 1))
