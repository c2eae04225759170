"""Streams and consumers that a node of a cluster may not know of yet.

The server that leads answers that something is created, and tells the other nodes so on other connections.
So for a while the node that a client asks may answer that there is no such stream, or 503 to a pull request
or a message for a stream, since no subscription took it (docs.nats.io, "Request-Reply", "No responders").
Nothing was done then, and it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plumbline.conformance.nats.statuses import status_code
from plumbline.wire.errors import ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats import HMsg, HPub, Msg, Operation, Pub
from plumbline.wire.nats.jetstream import API_PREFIX, NO_RESPONDERS, STREAM_NOT_FOUND, ApiError
from plumbline.wire.nats.subjects import covers

LEARNS_WITHIN_S = 4.0  # less than a stage waits for an answer: what is refused for longer is the answer
_CREATES = (f"{API_PREFIX}.CONSUMER.CREATE.", f"{API_PREFIX}.CONSUMER.DURABLE.CREATE.")
_PULLS = f"{API_PREFIX}.CONSUMER.MSG.NEXT."
_LISTENS = (f"{API_PREFIX}.STREAM.CREATE.", f"{API_PREFIX}.STREAM.UPDATE.")
_ENDS_CONSUMER = f"{API_PREFIX}.CONSUMER.DELETE."
_ENDS_STREAM = (f"{API_PREFIX}.STREAM.DELETE.", f"{API_PREFIX}.STREAM.RESTORE.")


class NewInCluster:
    """Those of one check. All times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._streams: dict[str, float] = {}  # when one was created for the check
        self._consumers: dict[str, float] = {}  # when a consumer of this stream was created last
        self._listening: dict[str, tuple[float, tuple[str, ...]]] = {}  # by stream: since when, its subjects
        self._requests: dict[str, Pub | HPub] = {}  # by reply subject, the last one

    def on_stream(self, at: float, name: str) -> None:
        """A stream was created."""
        self._streams[name] = at

    def on_sent(self, at: float, operation: Operation) -> None:
        """A client sends something."""
        if not isinstance(operation, Pub | HPub):
            return
        subject = operation.subject
        if stream := _named(subject, _LISTENS):
            self._listening[stream] = at, _subjects(operation)
        if stream := _named(subject, _CREATES):
            self._consumers[stream] = at
        if stream := _named(subject, (_ENDS_CONSUMER, *_ENDS_STREAM)):
            self._consumers.pop(stream, None)
        if stream := _named(subject, _ENDS_STREAM):
            self._streams.pop(stream, None)
            self._listening.pop(stream, None)
        if operation.reply:
            self._requests[operation.reply] = operation

    def to_repeat(self, at: float, answer: Operation) -> Pub | HPub | None:
        """The request to which this is the answer of a node that may not know what it names yet."""
        request = self._requests.get(answer.subject) if isinstance(answer, Msg | HMsg) else None
        if request is None:
            return None
        created: list[float] = []
        if isinstance(answer, HMsg) and status_code(answer) == NO_RESPONDERS.code and not answer.payload:
            created = _known(self._consumers, [_named(request.subject, (_PULLS,))])
            created += [
                since
                for since, subjects in self._listening.values()
                if any(covers(subject, request.subject) for subject in subjects)
            ]
        elif isinstance(answer, Msg) and (code := _err_code(answer)) is not None:
            if code == STREAM_NOT_FOUND:
                created = _known(self._streams, request.subject.split("."))
            self._listening.pop(_named(request.subject, _LISTENS), None)  # refused
        return request if any(at < moment + LEARNS_WITHIN_S for moment in created) else None


def _known(created: Mapping[str, float], names: Iterable[str]) -> list[float]:
    return [created[name] for name in names if name in created]


def _err_code(answer: Msg) -> int | None:
    """Of an error; None of what is none."""
    try:
        error = ApiError.of(json_object(answer.payload))
    except ProtocolError:
        return None
    return error.err_code if error is not None else None


def _subjects(request: Pub | HPub) -> tuple[str, ...]:
    """What a stream is to listen on; nothing if the request cannot be read."""
    try:
        subjects = json_object(request.payload).get("subjects")
    except ProtocolError:
        return ()
    return tuple(each for each in subjects if isinstance(each, str)) if isinstance(subjects, list) else ()


def _named(subject: str, prefixes: tuple[str, ...]) -> str:
    """The stream that is named behind one of the prefixes; or nothing."""
    found = next((prefix for prefix in prefixes if subject.startswith(prefix)), None)
    return subject[len(found) :].partition(".")[0] if found else ""
