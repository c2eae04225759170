"""Prepares streams and consumers over the JetStream API, and reads their state.

``Untestable`` says that the stage could not be set; ``Failed`` is raised only by the ``expect_*``
methods, which are evidence. State is polled up to a deadline: servers process acknowledgements
asynchronously, so the first answer may still show the state before.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.outcomes import Failed, Inconclusive, Untestable
from plumbline.conformance.polling import poll_state
from plumbline.wire.nats import HMsg, HPub, Msg, Pub, Sub
from plumbline.wire.nats.jetstream import ApiError, api_subject

if TYPE_CHECKING:
    from plumbline.conformance.nats.connection import NatsConnection
    from plumbline.conformance.nats.session import NatsSession

REQUEST_WITHIN_S = 5.0
STREAM_NOT_FOUND = 10059
SERVER_ERROR_CODE = 500  # codes from here on are as HTTP's: not the request's fault


class JetStreamStage:
    """JetStream requests, one at a time, on a connection of their own."""

    def __init__(self, session: NatsSession, connection: NatsConnection) -> None:
        self._session = session
        self._connection = connection
        self._inbox = session.inbox("stage")
        self._numbers = itertools.count(1)
        connection.send(Sub.make(f"{self._inbox}.*", 1))

    # -- requests ----------------------------------------------------------------------------

    def request(
        self, subject: str, payload: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> Msg | HMsg:
        """Publish with a reply subject and wait for the answer. Raises ``Untestable``, ``Inconclusive``."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        fields = list(headers)
        self._connection.send(
            HPub.make(subject, fields, payload, reply) if fields else Pub.make(subject, payload, reply)
        )
        moment = self._session.moment
        try:
            while True:
                operation = self._connection.arrival(
                    REQUEST_WITHIN_S, f"an answer to {subject}", since=moment
                ).operation
                if isinstance(operation, Msg | HMsg) and operation.subject == reply:
                    return operation
        except Failed as error:
            raise Untestable(
                f"{subject} got no answer", expected=error.expected, actual=error.actual
            ) from None

    def answer(self, verb: str, *names: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The decoded answer to ``$JS.API.<verb>.<names>``, an error answer included."""
        payload = json.dumps(body).encode() if body is not None else b""
        operation = self.request(api_subject(verb, *names), payload)
        if isinstance(operation, HMsg):
            raise Untestable(f"{verb} is not answered by JetStream", actual=str(operation))
        return _decoded(operation)

    def api(self, verb: str, *names: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The same, for a request that must succeed.

        Raises ``Untestable`` with the error of the answer; ``Inconclusive`` if it is the server's own trouble
        (nats-server may fail to create a file store while it deletes another: 500, then fine).
        """
        reply = self.answer(verb, *names, body=body)
        error = ApiError.of(reply)
        if error is not None:
            trouble = Inconclusive if error.code >= SERVER_ERROR_CODE else Untestable
            raise trouble(f"{verb} {' '.join(names)} was refused: {error}", actual=json.dumps(reply))
        return reply

    # -- objects -----------------------------------------------------------------------------

    def stream(self, label: str, subjects: Iterable[str], **config: Any) -> str:
        """Create a stream (in memory unless ``storage`` says otherwise); its name on the target.

        ``subjects`` are used as they are: make them from ``session.name``.
        """
        name = self._session.name(label)
        body = {"name": name, "subjects": list(subjects), "storage": "memory", **config}
        self.api("STREAM.CREATE", name, body=body)
        return name

    def consumer(self, stream: str, label: str, **config: Any) -> str:
        """Create a durable consumer of the stream of that name on the target; its own name there."""
        name = self._session.name(label)
        body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        self.api("CONSUMER.DURABLE.CREATE", stream, name, body=body)
        return name

    def publish(
        self, subject: str, payload: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        """Publish and wait for the PubAck. Raises ``Untestable`` if it is an error."""
        operation = self.request(subject, payload, headers)
        if isinstance(operation, HMsg):
            raise Untestable(f"publishing on {subject} got no PubAck", actual=str(operation))
        reply = _decoded(operation)
        if "error" in reply:
            raise Untestable(
                f"publishing on {subject} was refused: {ApiError.of(reply)}", actual=json.dumps(reply)
            )
        return reply

    def delete_stream(self, name: str) -> None:
        """Delete a stream; one that is not there is no error. Raises ``Untestable``."""
        error = ApiError.of(self.answer("STREAM.DELETE", name))
        if error is not None and error.err_code != STREAM_NOT_FOUND:
            raise Untestable(f"stream {name} could not be deleted: {error}")

    # -- state -------------------------------------------------------------------------------

    def consumer_info(self, stream: str, consumer: str) -> dict[str, Any]:
        return self.api("CONSUMER.INFO", stream, consumer)

    def stream_info(self, stream: str) -> dict[str, Any]:
        return self.api("STREAM.INFO", stream)

    def await_consumer(
        self, stream: str, consumer: str, within: float = 2.0, **fields: Any
    ) -> dict[str, Any]:
        """Poll CONSUMER.INFO until it shows ``fields``. Raises ``Untestable`` if it never does.

        ``delivered="2/1"`` and ``ack_floor="1/1"`` are consumer_seq/stream_seq; others as in the answer.
        """
        return poll_state(
            self._session,
            lambda: self.consumer_info(stream, consumer),
            fields,
            within,
            Untestable,
            consumer_shows,
        )

    def await_stream(self, stream: str, within: float = 2.0, **fields: Any) -> dict[str, Any]:
        """Poll STREAM.INFO until its ``state`` shows ``fields``. Raises ``Untestable``."""
        return poll_state(
            self._session, lambda: self.stream_info(stream), fields, within, Untestable, stream_shows
        )

    def expect_consumer(
        self, stream: str, consumer: str, within: float = DEFAULT_WITHIN_S, **fields: Any
    ) -> dict[str, Any]:
        """As ``await_consumer``, but evidence: raises ``Failed``, and counts as an observation."""
        info = poll_state(
            self._session,
            lambda: self.consumer_info(stream, consumer),
            fields,
            within,
            Failed,
            consumer_shows,
        )
        self._session.count_observation()
        return info

    def expect_stream(self, stream: str, within: float = DEFAULT_WITHIN_S, **fields: Any) -> dict[str, Any]:
        """As ``await_stream``, but evidence."""
        info = poll_state(
            self._session, lambda: self.stream_info(stream), fields, within, Failed, stream_shows
        )
        self._session.count_observation()
        return info


def consumer_shows(info: dict[str, Any], name: str) -> Any:
    """A field of a consumer info answer; the sequence pairs as ``consumer_seq/stream_seq``."""
    value = info.get(name)
    if name in ("delivered", "ack_floor") and isinstance(value, dict):
        return f"{value.get('consumer_seq')}/{value.get('stream_seq')}"
    return info.get("config", {}).get(name) if value is None else value


def stream_shows(info: dict[str, Any], name: str) -> Any:
    """A field of a stream info answer: of its ``state``, else of its ``config``."""
    state = info.get("state", {})
    return state[name] if name in state else info.get("config", {}).get(name)


def _decoded(operation: Msg | HMsg) -> dict[str, Any]:
    try:
        reply = json.loads(operation.payload)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict):
        raise Untestable("the answer is not a JSON object", actual=str(operation))
    return reply
