"""Prepares streams and consumers over the JetStream API, and reads their state.

``Untestable`` says that the stage could not be set; ``Failed`` is raised only by the ``expect_*``
methods, which are evidence. State is polled up to a deadline: servers process acknowledgements
asynchronously, so the first answer may still show the state before.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from plumbline.conformance.limits import DEFAULT_WITHIN_S
from plumbline.conformance.nats.statuses import status_code
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported, Untestable
from plumbline.conformance.sessions.polling import POLL_INTERVAL_S, poll_state
from plumbline.conformance.targets.unanswered import answers_now
from plumbline.untrusted import BadInputError, parse_json
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats import Err, HMsg, HPub, Msg, Pub, Sub
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.nats.jetstream import API_PREFIX, NO_RESPONDERS, STREAM_NOT_FOUND, ApiError, api_subject

if TYPE_CHECKING:
    from plumbline.conformance.nats.connection import NatsConnection
    from plumbline.conformance.nats.session import NatsSession

REQUEST_WITHIN_S = 5.0
CREATES_CONSUMER = "CONSUMER.DURABLE.CREATE"
SERVER_ERROR_CODE = 500  # codes from here on are as HTTP's: not the request's fault


class _Request(Struct, frozen=True):
    """A message that asks for an answer."""

    subject: str
    payload: bytes
    headers: tuple[tuple[str, str], ...]
    within: float  # seconds

    @property
    def api(self) -> str:
        """What is asked for: ``STREAM.CREATE``, or that a message be stored."""
        if not self.subject.startswith(f"{API_PREFIX}."):
            return "publishing to a stream"
        tokens = self.subject.removeprefix(f"{API_PREFIX}.").split(".")
        return ".".join(itertools.takewhile(lambda token: token.isalpha() and token.isupper(), tokens))


class JetStreamStage:
    """JetStream requests, one at a time, on a connection of their own.

    ``server``: which server the connection goes to, if not to the target itself. ``is_silent``: a request
    got no answer.
    """

    def __init__(self, session: NatsSession, connection: NatsConnection, server: str = "") -> None:
        self.is_silent = False
        self._server = f" of {server}" if server else ""
        self._session = session
        self._connection = connection
        self._inbox = session.inbox("stage")
        self._numbers = itertools.count(1)
        connection.send(Sub.make(f"{self._inbox}.*", 1))

    # -- requests ----------------------------------------------------------------------------

    def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Iterable[tuple[str, str]] = (),
        within: float = REQUEST_WITHIN_S,
    ) -> Msg | HMsg:
        """Publish with a reply subject and wait for the answer. Raises ``Untestable``, ``Inconclusive``."""
        return self._request_all([_Request(subject, payload, tuple(headers), within)])[0]

    def _request_all(self, asked: Sequence[_Request]) -> list[Msg | HMsg]:
        """Publish all, then wait for the answers: on a slow link one wait. Raises as ``request``."""
        apis = [f"{one.api}{self._server}" for one in asked]
        for one, api in zip(asked, apis, strict=True):
            self._require_room(one)
            if reason := self._session.unanswered.given_up(api):
                self.is_silent = True
                raise Untestable(reason)
        places = {self._send_request(one): place for place, one in enumerate(asked)}
        answers: dict[int, Msg | HMsg] = {}
        while (left := next((place for place in places.values() if place not in answers), None)) is not None:
            operation = self._reply(asked[left], apis[left])
            if isinstance(operation, Err):
                raise Untestable(f"{asked[left].subject} was refused", actual=str(operation))
            place = places.get(operation.subject)
            if place is not None:
                self._session.unanswered.record_answer(apis[place])
                answers[place] = operation
        return [answers[place] for place in range(len(asked))]

    def _reply(self, asked: _Request, api: str) -> Msg | HMsg | Err:
        """The next answer, to any request, or error. Raises ``Untestable`` if none comes in time."""
        try:
            return self._next_reply(asked)
        except Failed as error:
            if not self._connection.has_ended:
                self.is_silent = True
                self._session.unanswered.record_silence(
                    api, lambda: answers_now(self._connection, lambda: self._answer_to(asked))
                )
            raise Untestable(
                f"{asked.subject} got no answer", expected=error.expected, actual=error.actual
            ) from None

    def _send_request(self, asked: _Request) -> str:
        """The reply subject."""
        reply = f"{self._inbox}.{next(self._numbers)}"
        self._connection.send(
            HPub.make(asked.subject, asked.headers, asked.payload, reply)
            if asked.headers
            else Pub.make(asked.subject, asked.payload, reply)
        )
        return reply

    def _next_reply(self, asked: _Request) -> Msg | HMsg | Err:
        """The same. Raises ``Failed`` if none comes in time."""
        moment = self._session.moment
        while True:
            operation = self._connection.arrival(
                asked.within, f"an answer to {asked.subject}", since=moment
            ).operation
            if isinstance(operation, Msg | HMsg | Err):
                return operation

    def _answer_to(self, asked: _Request) -> Msg | HMsg | Err:
        self._send_request(asked)
        return self._next_reply(asked)

    def _require_room(self, asked: _Request) -> None:
        """Raises ``Unsupported`` for a message that INFO's max_payload does not allow."""
        size = len(asked.payload) + (len(encode_headers(asked.headers)) if asked.headers else 0)
        most = self._session.max_payload
        if size > most:
            raise Unsupported(f"INFO allows a max_payload of {most} bytes, and the check needs {size}")

    def answer(
        self, verb: str, *names: str, body: dict[str, Any] | None = None, within: float = REQUEST_WITHIN_S
    ) -> dict[str, Any]:
        """The decoded answer to ``$JS.API.<verb>.<names>``, an error answer included."""
        asked = _api_request(verb, names, body, within)
        return _api_answer(verb, self._request_all([asked])[0])

    def api(self, verb: str, *names: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The same, for a request that must succeed.

        Raises ``Untestable`` with the error of the answer; ``Inconclusive`` if it is the server's own trouble
        (nats-server may fail to create a file store while it deletes another: 500, then fine).
        """
        reply = self.answer(verb, *names, body=body)
        _require_success(reply, f"{verb} {' '.join(names)}")
        return reply

    def api_all(self, verb: str, requests: Iterable[tuple[tuple[str, ...], dict[str, Any]]]) -> None:
        """The same for each of these names in the subject and bodies, with one wait for all answers."""
        requests = list(requests)
        asked = [_api_request(verb, names, body, REQUEST_WITHIN_S) for names, body in requests]
        for (names, _), answer in zip(requests, self._request_all(asked), strict=True):
            _require_success(_api_answer(verb, answer), f"{verb} {' '.join(names)}")

    def page(self, verb: str, *names: str, total: int, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """A page of a list of ``total`` streams or consumers, which are made already.

        In a cluster the leader of the metadata lists them, and may apply what is made after the node that
        answered the client: it is asked again for a while.
        """
        deadline = time.monotonic() + REQUEST_WITHIN_S
        answer = self.answer(verb, *names, body=body)
        while self._in_cluster and answer.get("total") != total and time.monotonic() < deadline:
            self._session.pause(POLL_INTERVAL_S)
            answer = self.answer(verb, *names, body=body)
        return answer

    @property
    def _in_cluster(self) -> bool:
        return self._session.target.is_cluster

    # -- objects -----------------------------------------------------------------------------

    def stream(self, label: str, subjects: Iterable[str], **config: Any) -> str:
        """Create a stream (in memory unless ``storage``, the run or the account demands files); its name.

        ``subjects`` are used as they are: make them from ``session.name``.
        """
        name = self._session.name(label)
        place = {"storage": self._session.target.storage, **self._session.target.grants.stream_options}
        if not self._server and self._session.target.dimensions.replicas:
            place["num_replicas"] = self._session.target.dimensions.replicas
        if "storage" in config:
            self._session.streams_as_named.add(name)
        body = {"name": name, "subjects": list(subjects), **place, **config}
        self.api("STREAM.CREATE", name, body=body)
        if self._session.new_in_cluster is not None:
            self._session.new_in_cluster.on_stream(time.monotonic(), name)
        return name

    def consumer(self, stream: str, label: str, **config: Any) -> str:
        """Create a durable consumer of the stream of that name on the target; its own name there."""
        name = self._session.name(label)
        body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit", **config}}
        self.api(CREATES_CONSUMER, stream, name, body=body)
        return name

    def publish(
        self, subject: str, payload: bytes = b"", headers: Iterable[tuple[str, str]] = ()
    ) -> dict[str, Any]:
        """Publish and wait for the PubAck. Raises ``Untestable`` if it is an error.

        In a cluster a node may learn of a new stream after the client has. Its 503 says that nothing was
        stored, so the message is published again (docs.nats.io, "Publishing to Streams").
        """
        operation = self.request(subject, payload, headers)
        deadline = time.monotonic() + REQUEST_WITHIN_S
        while (
            self._in_cluster and status_code(operation) == NO_RESPONDERS.code and time.monotonic() < deadline
        ):
            self._session.pause(POLL_INTERVAL_S)
            operation = self.request(subject, payload, headers)
        if isinstance(operation, HMsg):
            raise Untestable(f"publishing on {subject} got no PubAck", actual=str(operation))
        reply = _decoded(operation)
        if "error" in reply:
            raise Untestable(
                f"publishing on {subject} was refused: {_error_of(reply)}", actual=json.dumps(reply)
            )
        return reply

    def delete_streams(self, names: Sequence[str], within: float = REQUEST_WITHIN_S) -> None:
        """Delete streams; one that is not there is no error. Raises ``Untestable``."""
        asked = [_api_request("STREAM.DELETE", (name,), None, within) for name in names]
        for name, answer in zip(names, self._request_all(asked), strict=True):
            error = _error_of(_api_answer("STREAM.DELETE", answer))
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
        self,
        stream: str,
        consumer: str,
        within: float = DEFAULT_WITHIN_S,
        *,
        after: float = 0.0,
        stays: float = 0.0,
        **fields: Any,
    ) -> dict[str, Any]:
        """As ``await_consumer``, but evidence: raises ``Failed``, and counts as an observation.

        ``after`` and ``stays`` are those of ``poll_state``.
        """
        info = poll_state(
            self._session,
            lambda: self.consumer_info(stream, consumer),
            fields,
            within,
            Failed,
            consumer_shows,
            after=after,
            stays=stays,
        )
        self._session.count_observation()
        return info

    def expect_stream(
        self,
        stream: str,
        within: float = DEFAULT_WITHIN_S,
        *,
        after: float = 0.0,
        stays: float = 0.0,
        **fields: Any,
    ) -> dict[str, Any]:
        """As ``await_stream``, but evidence; see ``expect_consumer``."""
        info = poll_state(
            self._session,
            lambda: self.stream_info(stream),
            fields,
            within,
            Failed,
            stream_shows,
            after=after,
            stays=stays,
        )
        self._session.count_observation()
        return info


def _api_request(verb: str, names: tuple[str, ...], body: dict[str, Any] | None, within: float) -> _Request:
    payload = json.dumps(body).encode() if body is not None else b""
    return _Request(api_subject(verb, *names), payload, (), within)


def _api_answer(verb: str, answer: Msg | HMsg) -> dict[str, Any]:
    """Decoded."""
    if isinstance(answer, HMsg):
        raise Untestable(f"{verb} is not answered by JetStream", actual=str(answer))
    return _decoded(answer)


def consumer_shows(info: dict[str, Any], name: str) -> Any:
    """A field of a consumer info answer; ``ack_floor.stream_seq`` is a field inside one.

    The sequence pairs are ``consumer_seq/stream_seq``.
    """
    name, _, inner = name.partition(".")
    if inner:
        return _section(info, name).get(inner)
    value = info.get(name)
    if name in ("delivered", "ack_floor") and isinstance(value, dict):
        return f"{value.get('consumer_seq')}/{value.get('stream_seq')}"
    return _section(info, "config").get(name) if value is None else value


def stream_shows(info: dict[str, Any], name: str) -> Any:
    """A field of a stream info answer: of its ``state``, else of its ``config``."""
    state = _section(info, "state")
    return state[name] if name in state else _section(info, "config").get(name)


def _section(info: dict[str, Any], name: str) -> dict[str, Any]:
    """An object in an answer; empty if the answer has none of that name."""
    found = info.get(name)
    return found if isinstance(found, dict) else {}


def _require_success(reply: dict[str, Any], request: str) -> None:
    """Raises as ``JetStreamStage.api``."""
    if error := _error_of(reply):
        trouble = Inconclusive if error.code >= SERVER_ERROR_CODE else Untestable
        raise trouble(f"{request} was refused: {error}", actual=json.dumps(reply))


def _error_of(reply: dict[str, Any]) -> ApiError | None:
    try:
        return ApiError.of(reply)
    except ProtocolError as error:
        raise Untestable(
            f"the error of an answer is not valid: {error.message}", actual=json.dumps(reply)
        ) from None


def _decoded(operation: Msg | HMsg) -> dict[str, Any]:
    try:
        return parse_json(operation.payload, dict[str, Any])
    except BadInputError:
        raise Untestable("the answer is not a JSON object", actual=str(operation)) from None
