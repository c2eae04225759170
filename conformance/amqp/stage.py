"""Prepares queues and exchanges over AMQP, and reads the state of a queue.

``Untestable`` says that the stage could not be set; ``Unsupported`` that the target refuses arguments which
are RabbitMQ's own, and does not say that it is RabbitMQ. ``Failed`` is raised only by ``expect_queue``, which
is evidence. Counts are polled up to a deadline: brokers settle acknowledgements asynchronously, so the first
answer may still show the state before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from plumbline.conformance.amqp.probe import is_rabbitmq
from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.outcomes import Failed, Unsupported, Untestable
from plumbline.conformance.sessions.polling import poll_state
from plumbline.conformance.targets.unanswered import answers_now
from plumbline.wire.amqp import Method, Operation

if TYPE_CHECKING:
    from plumbline.conformance.amqp.connection import AmqpConnection
    from plumbline.conformance.amqp.session import AmqpSession

REQUEST_WITHIN_S = 5.0
EXTENSION = "x-"  # how RabbitMQ's own arguments of queues begin
FLAGS = ("auto_delete", "internal")  # of exchanges; AMQP 0-9-1 itself has taken them out
EXISTS = "exists"
COUNTS = ("message_count", "consumer_count")


class Reply(IntEnum):
    """Reply codes of a passive queue.declare that is refused."""

    NOT_FOUND = 404
    RESOURCE_LOCKED = 405


class AmqpStage:
    """Requests, one at a time, each on a fresh channel: an error closes no other's.

    ``server``: which server the connection goes to, if not to the target itself. ``is_silent``: a request
    got no answer.
    """

    def __init__(self, session: AmqpSession, connection: AmqpConnection, server: str = "") -> None:
        self.is_silent = False
        self._server = f" of {server}" if server else ""
        self._session = session
        self._connection = connection
        self._channel = 0
        self._confirming = 0
        self._last_channel = 0
        self._closed: list[int] = []  # channels whose numbers are free again

    # -- requests ----------------------------------------------------------------------------

    def request(self, method: str, **arguments: Any) -> Method:
        """A method that must succeed. Raises ``Untestable`` with the refusal, ``Inconclusive``."""
        answer = self.answer(method, **arguments)
        if answer.method == "channel.close":
            text = answer.arguments["reply_text"]
            raise Untestable(f"{method} was refused: {text}", actual=str(answer))
        return answer

    def answer(self, method: str, **arguments: Any) -> Method:
        """Its ``-ok``, or the channel.close of a refusal. Raises ``Untestable``, ``Inconclusive``."""
        return next(self._answers([(method, arguments)]))

    def _answers(self, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Method]:
        """The same for each of these methods and their arguments, which are sent at once: on a slow link that
        is one wait. A refusal is the last answer."""
        channel = self._channel = self._channel or self._reopen_channel() or self._new_channel()
        questions = [
            (Method.make(method, channel, **arguments), f"an answer to {method}")
            for method, arguments in requests
        ]
        for (method, _), answer in zip(requests, self._ask_all(questions), strict=True):
            if answer.method == "channel.close":
                self._connection.send(Method.make("channel.close-ok", channel))
                self._closed.append(channel)
                self._channel = 0
            elif answer.method != f"{method}-ok":
                raise Untestable(
                    f"{method} got an unexpected answer", expected=f"{method}-ok", actual=str(answer)
                )
            yield answer
            if not self._channel:
                return

    def _new_channel(self) -> int:
        """Opened when it is first used."""
        self._last_channel += 1
        return self._last_channel

    def _reopen_channel(self) -> int:
        """A channel that an error had closed, since a server has room for so many numbers; or 0."""
        if not self._closed:
            return 0
        channel = self._closed.pop()
        answer = self._ask(Method.make("channel.open", channel), "channel.open-ok")
        if answer.method != "channel.open-ok":
            raise Untestable("a channel cannot be reopened", expected="channel.open-ok", actual=str(answer))
        return channel

    def _ask(self, asked: Method, expected: str) -> Method:
        """Send it; what comes on its channel. Raises ``Untestable``, ``Inconclusive``."""
        return next(self._ask_all([(asked, expected)]))

    def _ask_all(self, questions: Sequence[tuple[Method, str]]) -> Iterator[Method]:
        """The same for methods on one channel, and what is expected for each: all are sent at once."""
        unanswered = self._session.unanswered
        apis = [f"{asked.method}{self._server}" for asked, _ in questions]
        for api in dict.fromkeys(apis):
            if reason := unanswered.given_up(api):
                self.is_silent = True
                raise Untestable(reason)
        unsent = [asked for asked, _ in questions]
        for (asked, expected), api in zip(questions, apis, strict=True):
            answer = self._sent_and_answered(unsent, asked, expected, api)
            unanswered.record_answer(api)
            yield answer
            unsent = []

    def _sent_and_answered(self, unsent: Sequence[Method], asked: Method, expected: str, api: str) -> Method:
        """The answer to ``asked``, once ``unsent`` is sent, which opens the channel first."""
        try:
            self._connection.send(*unsent)
            operation = self._next_answer(asked, expected)
        except Failed as error:
            if not self._connection.has_ended:
                self.is_silent = True
                self._session.unanswered.record_silence(
                    api, lambda: answers_now(self._connection, lambda: self._answer_to(asked, expected))
                )
            raise Untestable(error.message, expected=error.expected, actual=error.actual) from None
        if operation.method == "connection.close":
            raise Untestable("the stage connection was closed", expected=expected, actual=str(operation))
        assert isinstance(operation, Method)
        return operation

    def _answer_to(self, asked: Method, expected: str) -> Operation:
        """Send it; what comes on its channel. Raises ``Failed`` if nothing comes, also to channel.open."""
        self._connection.send(asked)
        return self._next_answer(asked, expected)

    def _next_answer(self, asked: Method, expected: str) -> Operation:
        moment = self._session.moment
        arrival = self._connection.arrival(REQUEST_WITHIN_S, expected, since=moment, stream=asked.channel)
        operation: Operation = arrival.operation
        return operation

    # -- objects -----------------------------------------------------------------------------

    def queue(self, label: str, **arguments: Any) -> str:
        """Declare a queue, durable by default, since some brokers refuse others; its name there."""
        name = self._session.name(label)
        extensions = [name for name in arguments.get("arguments", {}) if name.startswith(EXTENSION)]
        self._declare("queue", extensions, **{"queue": name, "durable": True, **arguments})
        return name

    def exchange(self, label: str, **arguments: Any) -> str:
        """Declare an exchange (by default direct and durable); its name on the target."""
        name = self._session.name(label)
        extensions = [*arguments.get("arguments", {}), *(flag for flag in FLAGS if arguments.get(flag))]
        declared = {"exchange": name, "type": "direct", "durable": True, **arguments}
        self._declare("exchange", extensions, **declared)
        return name

    def _declare(self, kind: str, extensions: Sequence[str], **arguments: Any) -> None:
        """Raises ``Unsupported`` if another server than RabbitMQ refuses ``extensions``, its own ones."""
        try:
            self.request(f"{kind}.declare", **arguments)
        except Untestable as refused:
            if not extensions or is_rabbitmq(self._session.target.target.features):
                raise
            raise Unsupported(
                f"{kind}.declare with {', '.join(extensions)} is refused: {refused.actual}"
            ) from None

    def bind(self, queue: str, exchange: str, routing_key: str = "", **arguments: Any) -> None:
        """Bind a queue of that name on the target to an exchange of that name there."""
        self.request("queue.bind", queue=queue, exchange=exchange, routing_key=routing_key, **arguments)

    def publish(
        self,
        routing_key: str,
        body: bytes = b"",
        properties: Mapping[str, Any] | None = None,
        exchange: str = "",
    ) -> None:
        """Publish and wait for the confirm. Raises ``Untestable`` without one."""
        if not self._confirming:
            self._confirming = self._new_channel()
            answer = self._ask(Method.make("confirm.select", self._confirming), "confirm.select-ok")
            if answer.method != "confirm.select-ok":
                raise Untestable(
                    "confirms are not available", expected="confirm.select-ok", actual=str(answer)
                )
        message = Method.make(
            "basic.publish",
            self._confirming,
            exchange=exchange,
            routing_key=routing_key,
            mandatory=True,
            properties=dict(properties or {}),
            body=body,
        )
        answer = self._ask(message, "basic.ack")
        if answer.method != "basic.ack":
            raise Untestable("publishing was not confirmed", expected="basic.ack", actual=str(answer))

    def delete(self, kind: str, name: str) -> None:
        """Delete a ``queue`` or ``exchange``; one that is gone, or goes with its connection, is no error."""
        self.delete_all([(kind, name)])

    def delete_all(self, objects: Sequence[tuple[str, str]]) -> None:
        """The same for objects by their kind and name."""
        left = [(f"{kind}.delete", {kind: name}) for kind, name in objects]
        while left:  # a refusal closes the channel, so what was sent behind it is not answered
            left = left[sum(1 for _ in self._answers(left)) :]

    # -- state -------------------------------------------------------------------------------

    def queue_state(self, name: str) -> dict[str, Any]:
        """``exists``, and if so ``message_count`` (of those ready) and ``consumer_count``.

        Of another connection's exclusive queue only ``exists``. Raises ``Untestable`` if the broker refuses
        to say.
        """
        answer = self.answer("queue.declare", queue=name, passive=True)
        if answer.method == "queue.declare-ok":
            return {EXISTS: True, **{count: answer.arguments[count] for count in COUNTS}}
        match answer.arguments["reply_code"]:
            case Reply.NOT_FOUND:
                return {EXISTS: False}
            case Reply.RESOURCE_LOCKED:
                return {EXISTS: True}
        raise Untestable(f"queue {name}: its state is not available", actual=str(answer))

    def await_queue(self, name: str, within: float = 5.0, **fields: Any) -> None:
        """Poll until the queue shows these. Raises ``Untestable`` if it never does."""
        poll_state(self._session, lambda: self.queue_state(name), fields, within, Untestable)

    def expect_queue(
        self,
        name: str,
        within: float = DEFAULT_WITHIN_S,
        *,
        after: float = 0.0,
        stays: float = 0.0,
        **fields: Any,
    ) -> None:
        """As ``await_queue``, but evidence: raises ``Failed``, and counts as an observation.

        ``after`` and ``stays`` are those of ``poll_state``.
        """
        read = lambda: self.queue_state(name)  # noqa: E731
        poll_state(self._session, read, fields, within, Failed, after=after, stays=stays)
        self._session.count_observation()
