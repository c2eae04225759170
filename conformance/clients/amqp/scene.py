"""What an AMQP scenario uses: Plumbline's own connection to the broker, and the operations by channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from msgspec import Struct

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.amqp.stage import AmqpStage
from plumbline.conformance.clients.client_under_test import ClientUnderTest
from plumbline.conformance.clients.direct_access import broker_target
from plumbline.conformance.clients.protocol import AdapterEvent, AdapterMessage
from plumbline.conformance.clients.scenario_broker import ScenarioBroker
from plumbline.conformance.clients.scene import Scene
from plumbline.conformance.outcomes import Untestable
from plumbline.conformance.sessions.session import BaseSession
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.monitors import Observation
from plumbline.wire.amqp import Method, Operation

QUEUE = "orders"
ONE_AND_NO_MORE = {"x-max-length": 1, "x-overflow": "reject-publish"}  # arguments of a queue
SETTLING = ("basic.ack", "basic.nack", "basic.reject")
LOST_WITHIN_S = 5.0  # until a library has reported that its connection is gone
SENT_WITHIN_S = 1.0  # until a library has sent what it was asked for


class ObservedPublish(Struct, frozen=True):
    """A message that the client published: its number among those of a confirming channel, from 1."""

    observation: Observation
    method: Method
    tag: int


class _DirectAmqpSession(AmqpSession):
    """The broker is ours alone: names stay as they are written, and end with it."""

    def name(self, label: str) -> str:
        return label

    def _on_sent(self, at: float, operation: Operation) -> None:
        BaseSession._on_sent(self, at, operation)

    def _clean_up(self) -> None:
        pass


class AmqpScene(Scene):
    """One play of one AMQP scenario. The client counts its channels from 1, whatever they are on the wire."""

    def __init__(self, client: ClientUnderTest, broker: ScenarioBroker) -> None:
        super().__init__(client, broker)
        self._backstage: _DirectAmqpSession | None = None
        self._wants_confirms = False

    # -- setting the stage -------------------------------------------------------------------

    @property
    def stage(self) -> AmqpStage:
        """Declarations, publishes and looks behind the client's back."""
        if self._backstage is None:
            self._backstage = _DirectAmqpSession(broker_target(AmqpUrl.parse(self.broker.broker)))
        return self._backstage.stage

    def queue(self, *messages: str, name: str = QUEUE, arguments: Mapping[str, Any] | None = None) -> None:
        """A queue with these messages in it; ``arguments`` are those of the declaration."""
        self.stage.queue(name, arguments=dict(arguments or {}))
        for data in messages:
            self.stage.publish(name, data.encode())

    def open(self, *channels: int, confirms: bool = False, **connecting: Any) -> None:
        """Let the client connect and open channels (1), with confirms if wanted."""
        self.connect(**connecting)
        for channel in channels or (1,):
            self.run_command("channel", channel=channel)
            if confirms:
                self.select_confirms(channel)

    def select_confirms(self, channel: int = 1) -> None:
        """Confirm mode, as the way to what the scenario is about."""
        self._wants_confirms = True
        self.run_command("confirm", channel=channel)

    def close(self) -> None:
        if self._backstage is not None:
            self._backstage.close()

    # -- the client --------------------------------------------------------------------------

    def publish(self, number: int, *, key: str = QUEUE, channel: int = 1, **fields: Any) -> None:
        """Publish ``message-NUMBER``; with ``count``, several at once."""
        data = "message" if "count" in fields else f"message-{number}"
        command = {"exchange": "", "routing_key": key, "data": data, **fields}
        self.run_command("publish", within=LOST_WITHIN_S, channel=channel, publish=number, **command)

    @property
    def features(self) -> frozenset[str]:
        """What the adapter says it can do."""
        return self.client.hello().features

    def get(self, **fields: Any) -> AdapterMessage | None:
        """basic.get from the queue."""
        answer = self.run_command("get", channel=1, queue=QUEUE, **fields)
        return answer.ok.message if answer.ok is not None else None

    def consume(
        self, *expected: str, subscription: str = "s", channel: int = 1, **fields: Any
    ) -> list[AdapterMessage]:
        """Consume from the queue until these came, as the way to what the scenario is about."""
        fields.setdefault("queue", QUEUE)
        self.run_command("consume", channel=channel, subscription=subscription, **fields)
        return self.await_messages(subscription, *expected)

    def await_messages(self, subscription: str, *expected: str) -> list[AdapterMessage]:
        """All that was handed over for it, once it is as much as expected. Raises ``Failed``."""
        self.await_events(lambda: len(self.messages(subscription)) >= len(expected))
        messages = self.messages(subscription)
        if [message.data for message in messages] != list(expected):
            self.fail(
                "the messages passed to the application differ from those delivered",
                expected=str(list(expected)),
                actual=[message.data for message in messages],
            )
        return messages

    def confirms(self) -> dict[int, list[bool]]:
        """What the client reported of its publishes, by their numbers."""
        found: dict[int, list[bool]] = {}
        for event in self.events_named("confirmed"):
            if event.publish is not None and event.ack is not None:
                found.setdefault(event.publish, []).append(event.ack)
        return found

    def expect_confirms(self, expected: Mapping[int, bool], within: float = LOST_WITHIN_S) -> None:
        """Evidence: exactly these were reported, each once, none before the broker had sent it."""
        self.expect_reports(expected, within)
        self.expect_no_confirm_ahead()

    def expect_reports(self, expected: Mapping[int, bool], within: float = LOST_WITHIN_S) -> None:
        """Evidence: exactly these were reported, each once."""
        self.await_events(lambda: set(self.confirms()) >= set(expected), within)
        confirms = self.confirms()
        self.require(
            confirms == {number: [ack] for number, ack in expected.items()},
            "the reported confirms differ from those that the broker sent",
            expected=_describe_confirms({number: [ack] for number, ack in expected.items()}),
            actual=_describe_confirms(confirms),
        )

    def expect_no_confirm_ahead(self) -> None:
        """Evidence: no publish was reported as confirmed before its basic.ack was on the wire."""
        for number, at in self._confirmed_at():
            acks = [
                seen
                for seen in self.received_methods("basic.ack")
                if number in self._publishes_confirmed_by(seen)
            ]
            first = min((seen.at for seen in acks), default=None)
            self.require(
                first is not None and first <= at,
                f"publish {number} was reported as confirmed before any basic.ack for it",
                expected=f"basic.ack for publish {number} first",
                actual="no basic.ack for it"
                if first is None
                else f"basic.ack {(first - at) / 1e6:.0f} ms later",
            )

    def _confirmed_at(self) -> list[tuple[int, int]]:
        """Publish and time of every ``confirmed`` event that says so."""
        events = zip(self.client.events, self.client.event_times, strict=True)
        return [
            (event.publish, at)
            for event, at in events
            if event.event == "confirmed" and event.ack and event.publish is not None
        ]

    def _publishes_confirmed_by(self, ack: Observation) -> set[int]:
        """The client's numbers of the publishes that a basic.ack confirms: bodies end with them."""
        operation = method_of(ack)
        tag, multiple = operation.arguments["delivery_tag"], operation.arguments["multiple"]
        published = [one for one in self.publishes() if same_channel(one.observation, ack)]
        covered = [one for one in published if one.tag == tag or (multiple and one.tag < tag)]
        return {number_of(one.method) for one in covered}

    def fail(self, message: str, *, expected: str, actual: object, at: Observation | None = None) -> NoReturn:
        """As ``Scene.fail``. Where confirms were wanted and confirm.select was not sent, which
        CLIENT-CONFIRM-001 judges, nothing else can be: raises ``Untestable`` then."""
        if self._wants_confirms and not self.sent_methods("confirm.select"):
            raise Untestable(f"confirm.select was not sent; {message}", actual=str(actual) or "nothing")
        super().fail(message, expected=expected, actual=actual, at=at)

    # -- the wire ----------------------------------------------------------------------------

    def sent_methods(self, *names: str) -> list[Observation]:
        """The methods of these names that the client sent, in order."""
        return [seen for seen in self.sent_operations(Method) if method_of(seen).method in names]

    def received_methods(self, *names: str) -> list[Observation]:
        """The methods of these names that the client was sent, in order."""
        return [seen for seen in self.received_operations(Method) if method_of(seen).method in names]

    def publishes(self) -> list[ObservedPublish]:
        """What the client published, counted again on each channel with confirm.select."""
        counts: dict[tuple[str, int], int] = {}
        found = []
        for seen in self.sent_methods("channel.open", "confirm.select", "basic.publish"):
            operation = method_of(seen)
            key = (seen.connection, operation.channel)
            if operation.method == "channel.open":
                counts.pop(key, None)
            elif operation.method == "confirm.select":
                counts.setdefault(key, 0)
            else:
                if key in counts:
                    counts[key] += 1
                found.append(ObservedPublish(seen, operation, counts.get(key, 0)))
        return found

    def settlements(self) -> list[Observation]:
        """basic.ack, basic.nack and basic.reject of the client."""
        return self.sent_methods(*SETTLING)

    def deliveries(self) -> list[Observation]:
        """basic.deliver and basic.get-ok to the client."""
        return self.received_methods("basic.deliver", "basic.get-ok")

    def delivery_of(self, data: str) -> Observation:
        """The first delivery of the message with that body."""
        return next(seen for seen in self.deliveries() if method_of(seen).body == data.encode())

    def expect_settlement(self, count: int, expected: str, message: str) -> Method:
        """Evidence: the client has settled ``count`` times; the last of them, for a closer look."""
        self.await_wire(lambda: len(self.settlements()) >= count)
        settled = self.settlements()
        self.require(
            len(settled) == count,
            message,
            expected=expected,
            actual=describe_observations(settled),
            at=settled[-1] if settled else None,
        )
        return method_of(settled[-1])

    def barrier(self, channel: int = 1, *, may_fail: bool = False) -> None:
        """Returns once the client's channel has had an answer to whatever it sent before, or after a
        while if the library cannot declare. Raises ``Failed`` if it could before and cannot any more, unless
        it ``may_fail``."""
        if "declare" in self.features:
            declare = self.try_command if may_fail else self.run_command
            declare("declare", channel=channel, queue=f"barrier.{len(self.client.spoken)}")
        else:
            self.await_wire(lambda: False, SENT_WITHIN_S)

    def disconnect_events(self) -> list[AdapterEvent]:
        """What the client reported of its connection's end."""
        return self.events_named("disconnected", "closed")


def method_of(seen: Observation) -> Method:
    """The operation of an observation that is known to be a method."""
    assert isinstance(seen.operation, Method)
    return seen.operation


def same_channel(one: Observation, other: Observation) -> bool:
    """Whether both passed on the same channel of the same connection."""
    return (one.connection, method_of(one).channel) == (other.connection, method_of(other).channel)


def number_of(publish: Method) -> int:
    """The client's own number of a publish: what its body ends with, or 1."""
    digits = publish.body.rpartition(b"-")[2]
    return int(digits) if digits.isdigit() else 1


def describe_observations(observations: list[Observation]) -> str:
    """For reports: what was seen, in words."""
    return "; ".join(f"connection {seen.connection}: {seen.operation}" for seen in observations) or "nothing"


def _describe_confirms(confirms: Mapping[int, list[bool]]) -> str:
    labels = {True: "confirmed", False: "not confirmed"}
    descriptions = [
        f"{number} {' and '.join(labels[ack] for ack in acks)}" for number, acks in sorted(confirms.items())
    ]
    return ", ".join(descriptions) or "nothing"
