"""What a NATS scenario uses: Plumbline's own connection to the broker, and the operations as JetStream
requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from plumbline.conformance.clients.client_under_test import ClientUnderTest
from plumbline.conformance.clients.direct_access import broker_target
from plumbline.conformance.clients.protocol import AdapterAnswer, AdapterMessage, ErrorReport
from plumbline.conformance.clients.scenario_broker import ScenarioBroker
from plumbline.conformance.clients.scene import Scene
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.nats.stage import JetStreamStage
from plumbline.conformance.targets.urls import NatsUrl
from plumbline.monitors import Observation
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import HMsg, HPub, Msg, Payload, Pub, Sub
from plumbline.wire.nats.jetstream import ACK_PREFIX, API_PREFIX, Ack, PullRequest
from plumbline.wire.nats.subjects import covers

STREAM, CONSUMER = "ORDERS", "DISPATCH"
SUBJECT = "orders.new"
EMPTY_FETCHES = 2  # after which nothing more is expected
NEXT = f"{API_PREFIX}.CONSUMER.MSG.NEXT."


class FetchResult(Struct, frozen=True):
    """One fetch: what the library handed over, the error that it reported, and the wire meanwhile."""

    messages: tuple[AdapterMessage, ...]
    error: ErrorReport | None
    wire: tuple[Observation, ...]

    @property
    def data(self) -> list[str]:
        return [message.data for message in self.messages]


class ObservedPull(Struct, frozen=True):
    """A pull request on the wire."""

    observation: Observation
    request: PullRequest
    inbox: str


class _DirectNatsSession(NatsSession):
    """The broker is ours alone: names stay as they are written, and end with it."""

    def name(self, label: str) -> str:
        return label

    def _refuse_foreign_subject(self, subject: str) -> None:
        pass

    def _clean_up(self) -> None:
        pass


class NatsScene(Scene):
    """One play of one NATS scenario."""

    def __init__(self, client: ClientUnderTest, broker: ScenarioBroker) -> None:
        super().__init__(client, broker)
        self._backstage: _DirectNatsSession | None = None

    # -- setting the stage -------------------------------------------------------------------

    @property
    def direct_session(self) -> NatsSession:
        """Plumbline's own session with the broker."""
        if self._backstage is None:
            self._backstage = _DirectNatsSession(broker_target(NatsUrl.parse(self.broker.broker)))
        return self._backstage

    @property
    def stage(self) -> JetStreamStage:
        """JetStream requests behind the client's back."""
        return self.direct_session.stage

    def orders(self, *messages: str, **consumer: Any) -> None:
        """A stream ORDERS of ``orders.>`` with these messages and a pull consumer DISPATCH; then connect."""
        self.stage.stream(STREAM, ["orders.>"])
        self.stage.consumer(STREAM, CONSUMER, **consumer)
        self.publish(*messages)
        self.connect()

    def publish(self, *messages: str) -> None:
        """These payloads into the stream, behind the client's back."""
        for data in messages:
            self.stage.publish(SUBJECT, data.encode())

    def close(self) -> None:
        if self._backstage is not None:
            self._backstage.close()

    # -- the client --------------------------------------------------------------------------

    def fetch(self, batch: int, expires_ms: int = 1000, **fields: Any) -> FetchResult:
        """Fetch from DISPATCH."""
        with self.collect_operations() as passed:
            answer = self.try_command(
                "fetch", stream=STREAM, consumer=CONSUMER, batch=batch, expires_ms=expires_ms, **fields
            )
        messages = answer.ok.messages if answer.ok is not None else ()
        return FetchResult(messages, answer.error, tuple(passed))

    def take(self, *expected: str, expires_ms: int = 2000) -> list[AdapterMessage]:
        """Fetch exactly these messages, as the way to what the scenario is about. Raises ``Failed``."""
        fetched = self.fetch(len(expected), expires_ms)
        if fetched.data != list(expected):
            self.fail(
                "fetch did not return the available messages",
                expected=str(list(expected)),
                actual=f"{fetched.data} {fetched.error or ''}",
            )
        return list(fetched.messages)

    def fetch_all(self, count: int) -> list[AdapterMessage]:
        """So many messages by as many fetches as it takes, since a library may end one with what was there;
        fewer if some of them bring none."""
        found: list[AdapterMessage] = []
        tries = count + EMPTY_FETCHES
        while len(found) < count and tries:
            found += self.fetch(count - len(found)).messages
            tries -= 1
        return found

    # -- the wire ----------------------------------------------------------------------------

    def pulls(self, among: Sequence[Observation] | None = None) -> list[ObservedPull]:
        """The pull requests that the client sent, in order."""
        found = []
        for seen in self.sent_operations(Pub, HPub) if among is None else among:
            operation = seen.operation
            if isinstance(operation, Pub | HPub) and operation.subject.startswith(NEXT):
                try:
                    request = PullRequest.parse(operation.payload)
                except ProtocolError as error:
                    self.fail("an invalid pull request", expected="JSON", actual=error, at=seen)
                found.append(ObservedPull(seen, request, operation.reply or ""))
        return found

    def acks(self) -> list[tuple[Observation, Ack]]:
        """The acknowledgements that the client sent, in order."""
        published = [(seen, payload_of(seen)) for seen in self.sent_operations(Pub, HPub)]
        return [
            (seen, Ack.parse(operation.payload))
            for seen, operation in published
            if operation.subject.startswith(f"{ACK_PREFIX}.")
        ]

    def is_waiting(self) -> bool:
        """Whether the client's last pull request may wait and is not answered yet."""
        last = next(reversed(self.pulls()), None)
        if last is None or not last.request.expires:
            return False
        return not any(seen.index > last.observation.index for seen in self.statuses())

    def sid_of(self, subject: str) -> str:
        """Under which sid the client has subscribed to exactly this subject. Raises ``Failed``."""
        subscriptions = [seen.operation for seen in self.sent_operations(Sub)]
        found = [one.sid for one in subscriptions if isinstance(one, Sub) and one.subject == subject]
        if not found:
            self.fail("the subscription was not sent", expected=f"SUB {subject}", actual="no such SUB")
        return found[0]

    def sid_receiving(self, inbox: str) -> str:
        """The sid of the last subscription of the client under test; empty if there is none."""
        subscriptions = [seen.operation for seen in self.sent_operations(Sub)]
        matching_sids = [
            one.sid for one in subscriptions if isinstance(one, Sub) and covers(one.subject, inbox)
        ]
        return matching_sids[-1] if matching_sids else ""

    def deliveries(self) -> list[Observation]:
        """The messages of consumers that the client was sent, in order."""
        return [
            seen
            for seen in self.received_operations(Msg, HMsg)
            if (payload_of(seen).reply or "").startswith(f"{ACK_PREFIX}.")
        ]

    def statuses(self, code: int | None = None) -> list[Observation]:
        """The statuses (of that code) that the client was sent, in order."""
        return [
            seen
            for seen in self.received_operations(HMsg)
            if status_of(seen) is not None and code in (None, status_of(seen))
        ]


def expect_success(scene: NatsScene, what: str, answer: AdapterAnswer) -> None:
    """Evidence: no error."""
    scene.require(answer.error is None, f"{what} failed", expected="no error", actual=answer.error)


def expect_error(scene: NatsScene, what: str, answer: AdapterAnswer) -> None:
    """Evidence: an error."""
    scene.require(answer.error is not None, f"{what} succeeded", expected="an error", actual=answer.ok)


def payload_of(seen: Observation) -> Payload:
    """The operation, which carries a payload."""
    assert isinstance(seen.operation, Payload)
    return seen.operation


def status_of(seen: Observation) -> int | None:
    """The code of a status; None if the operation is none."""
    if not isinstance(seen.operation, HMsg):
        return None
    try:
        headers = seen.operation.headers
    except ProtocolError:
        return None
    return headers.status.code if headers is not None and headers.status is not None else None
