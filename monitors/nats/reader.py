"""Reads the operations of one NATS connection, in their order, into facts.

It knows what only this connection's own past can tell: which subscription hears an inbox, and which request a
message answers. A reader that begins in the middle says less, and never guesses. Its state is serialisable,
so that a stream of captures can be read on where it stopped.
Sources: docs.nats.io, "Client Protocol"; ADR-13, "Pull Subscribe internals"; ADR-15, "JS Ack".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from zlib import crc32

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.nats import facts
from plumbline.monitors.nats.queries import PendingQuery, query_of, stated
from plumbline.monitors.observation import Observation, Place
from plumbline.wire import nats
from plumbline.wire.errors import ProtocolError
from plumbline.wire.json_text import json_object
from plumbline.wire.nats import jetstream
from plumbline.wire.nats.secrets import SECRETS
from plumbline.wire.nats.subjects import covers

BATCH_ID, COUNTER_INCREMENT, MESSAGE_SIZE = "Nats-Batch-Id", "Nats-Incr", "Nats-Msg-Size"
# Requests that were never answered are forgotten, the oldest first.
MAX_REQUESTS = 10_000
# STREAM.* and CONSUMER.* verbs after which sequences, counts or acknowledgements may start again.
_CHANGING = ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "DURABLE.CREATE", "RESET", "UNPIN")


class _PendingAck(Struct, frozen=True, tag="ack"):
    place: Place
    stream: str
    domain: str
    consumer: str
    stream_seq: int
    consumer_seq: int
    kind: str


class _PendingPublish(Struct, frozen=True, tag="publish"):
    place: Place
    checksum: int | None
    msg_id: str


_Pending = _PendingAck | _PendingPublish | PendingQuery


class ReaderState(Struct):
    """``domain``: of JetStream, as INFO has it. ``login``: see ``_login``. ``subjects``: of each live sid.
    ``pending_replies``: by reply subject, what an answer to it would answer."""

    domain: str = ""
    asks_for_certificate: bool = False
    login: str = ""
    subjects: dict[str, str] = {}
    pull_inboxes: dict[str, int] = {}  # inbox -> requests made on it that no status ended
    pending_replies: dict[str, _Pending] = {}


class NatsReader:
    """Observations of one connection in, facts out."""

    def __init__(self, state: ReaderState | None = None) -> None:
        self.state = state or ReaderState()

    def read(self, observation: Observation) -> Iterator[Fact]:
        """The facts that ``observation`` adds. Never raises: what cannot be read says nothing."""
        operation = observation.operation
        if isinstance(operation, nats.Operation) and type(operation) in _READERS:
            yield from _READERS[type(operation)](self, observation, operation)

    def _info(self, seen: Observation, operation: nats.Info) -> Iterator[Fact]:
        """Its domain is that of the API, acknowledgements and deliveries that name none. With tls_verify the
        certificate of the client may be its user."""
        with suppress(ProtocolError):
            self.state.domain = str(operation.fields.get("domain") or "")
            self.state.asks_for_certificate = bool(operation.fields.get("tls_verify"))
        yield from ()

    # -- what clients send --

    def _connect(self, seen: Observation, operation: nats.Connect) -> Iterator[Fact]:
        try:
            fields = operation.fields
        except ProtocolError:
            fields = {}
        self.state.login = "" if self.state.asks_for_certificate else _login(fields)
        library = f"{fields.get('lang', '')} {fields.get('version', '')}".strip()
        yield facts.ClientConnected(**_at(seen), library=library, name=str(fields.get("name") or ""))

    def _ping(self, seen: Observation, _: nats.Ping) -> Iterator[Fact]:
        if seen.sender is nats.Sender.CLIENT:
            yield facts.Pinged(**_at(seen))

    def _pong(self, seen: Observation, _: nats.Pong) -> Iterator[Fact]:
        if seen.sender is nats.Sender.SERVER:
            yield facts.Ponged(**_at(seen))

    def _sub(self, seen: Observation, operation: nats.Sub) -> Iterator[Fact]:
        # A second SUB with a live sid changes nothing (CORE-093).
        self.state.subjects.setdefault(operation.sid, operation.subject)
        yield facts.Subscribed(
            **_at(seen), sid=operation.sid, subject=operation.subject, queue=operation.queue or ""
        )

    def _unsub(self, seen: Observation, operation: nats.Unsub) -> Iterator[Fact]:
        if not operation.max_msgs:
            self.state.subjects.pop(operation.sid, None)
        yield facts.Unsubscribed(**_at(seen), sid=operation.sid, max_msgs=operation.max_msgs or None)

    def _publish(self, seen: Observation, operation: nats.Pub | nats.HPub) -> Iterator[Fact]:
        subject, reply = operation.subject, operation.reply or ""
        if subject.startswith(f"{jetstream.ACK_PREFIX}."):
            yield from self._acknowledge(seen, operation, subject, reply)
        elif subject.startswith("$JS."):
            yield from self._request(seen, operation, subject, reply)
        else:
            msg_id = _message_id(operation)
            if reply:
                self._remember_request(
                    reply, _PendingPublish(seen.place, _published_checksum(operation), msg_id)
                )
            yield facts.NatsPublish(
                **_at(seen), subject=subject, reply=reply, msg_id=msg_id, size=_size(operation)
            )

    def _acknowledge(
        self, seen: Observation, operation: nats.Payload, subject: str, reply: str
    ) -> Iterator[Fact]:
        try:
            ack = jetstream.AckSubject.parse(subject)
        except ProtocolError:
            return
        payload = jetstream.Ack.parse(operation.payload)
        domain = ack.domain or self.state.domain
        about: dict[str, Any] = {"stream": ack.stream, "domain": domain, "consumer": ack.consumer}
        login = self.state.login
        sequences: dict[str, Any] = {"stream_seq": ack.stream_seq, "consumer_seq": ack.consumer_seq}
        yield facts.JetStreamAck(
            **_at(seen), **about, **sequences, login=login, delivered=ack.delivered,
            kind=payload.kind.value, reply=reply,
        )  # fmt: skip
        if not reply:
            return
        if payload.kind is not jetstream.AckKind.NEXT:
            self._remember_request(
                reply, _PendingAck(seen.place, **about, **sequences, kind=payload.kind.value)
            )
            return
        request = _pull_request(payload.argument)
        if request is not None:
            yield self._pulled(seen, ack.stream, ack.consumer, domain, reply, request)

    def _request(
        self, seen: Observation, operation: nats.Payload, subject: str, reply: str
    ) -> Iterator[Fact]:
        """A request to the API: ``$JS.API.<verb>...`` or ``$JS.<domain>.API.<verb>...``."""
        tokens = subject.split(".")
        domain, tokens = (self.state.domain, tokens[2:]) if tokens[1] == "API" else (tokens[1], tokens[3:])
        if tokens[:3] == ["CONSUMER", "MSG", "NEXT"] and len(tokens) == 5:
            request = _pull_request(operation.payload)
            if reply and request is not None:
                yield self._pulled(seen, tokens[3], tokens[4], domain, reply, request)
            return
        query = query_of(tokens, seen.place, domain) if reply else None
        if query is not None:
            self._remember_request(reply, query)
        about = _changed_asset(tokens)
        if about is not None:
            verb, stream, consumer = about
            yield facts.AssetChanged(
                **_at(seen),
                verb=verb,
                stream=stream,
                domain=domain,
                login=self.state.login,
                consumer=consumer,
            )

    def _pulled(
        self,
        seen: Observation,
        stream: str,
        consumer: str,
        domain: str,
        inbox: str,
        request: jetstream.PullRequest,
    ) -> Fact:
        self.state.pull_inboxes[inbox] = self.state.pull_inboxes.pop(inbox, 0) + 1
        _forget_oldest(self.state.pull_inboxes)
        heard_by = (sid for sid, subject in self.state.subjects.items() if covers(subject, inbox))
        return facts.PullRequested(
            **_at(seen), stream=stream, consumer=consumer, domain=domain, login=self.state.login, inbox=inbox,
            sid=next(heard_by, None), batch=max(request.batch, 1), expires=request.expires,
            no_wait=request.no_wait, max_bytes=request.max_bytes, idle_heartbeat=request.idle_heartbeat,
        )  # fmt: skip

    def _remember_request(self, reply: str, request: _Pending) -> None:
        self.state.pending_replies[reply] = request
        _forget_oldest(self.state.pending_replies)

    # -- what servers send --

    def _message(self, seen: Observation, operation: nats.Msg | nats.HMsg) -> Iterator[Fact]:
        status, pending = _status(operation)
        delivery = _delivery(operation)
        yield facts.MessageReceived(
            **_at(seen), sid=operation.sid, subject=operation.subject, size=_size(operation),
            status=None if status is None else status.code, delivery=delivery is not None,
        )  # fmt: skip
        if delivery is not None:
            yield facts.JetStreamDelivery(
                **_at(seen), sid=operation.sid, subject=operation.subject, size=_size(operation),
                stream=delivery.stream, domain=delivery.domain or self.state.domain, login=self.state.login,
                consumer=delivery.consumer, delivered=delivery.delivered, stream_seq=delivery.stream_seq,
                consumer_seq=delivery.consumer_seq, timestamp=delivery.timestamp, pending=delivery.pending,
                checksum=_delivered_checksum(operation),
            )  # fmt: skip
        elif status is not None and operation.subject in self.state.pull_inboxes:
            yield self._pull_status(seen, operation, status, pending)
        else:
            yield from self._answer(seen, operation, status)

    def _pull_status(
        self, seen: Observation, operation: nats.HMsg | nats.Msg, status: Any, pending: int | None
    ) -> Fact:
        inbox = operation.subject
        if status.code != 100:
            left = self.state.pull_inboxes.pop(inbox) - 1
            if left:
                self.state.pull_inboxes[inbox] = left
        return facts.PullStatus(
            **_at(seen), sid=operation.sid, inbox=inbox, code=status.code, description=status.description,
            pending=pending,
        )  # fmt: skip

    def _answer(self, seen: Observation, operation: nats.Msg | nats.HMsg, status: Any) -> Iterator[Fact]:
        request = self.state.pending_replies.pop(operation.subject, None)
        if request is None or status is not None:
            return
        if isinstance(request, _PendingAck):
            yield facts.AckConfirmed(
                **_at(seen), stream=request.stream, domain=request.domain, login=self.state.login,
                consumer=request.consumer, stream_seq=request.stream_seq, consumer_seq=request.consumer_seq,
                kind=request.kind, requested_at=request.place,
            )  # fmt: skip
            return
        if isinstance(request, PendingQuery):
            about = {**_at(seen), "login": self.state.login}
            with suppress(ProtocolError):
                fact = stated(request, operation, about)
                if fact is not None:
                    yield fact
            return
        try:
            reply = json_object(operation.payload)
            refused, ack = jetstream.ApiError.of(reply), jetstream.PubAck.of(reply)
        except ProtocolError:
            return  # a service's answer
        if refused is not None:
            return
        yield facts.PublishStored(
            **_at(seen), stream=ack.stream, domain=ack.domain or self.state.domain, login=self.state.login,
            seq=ack.seq, duplicate=ack.duplicate, requested_at=request.place,
            checksum=None if ack.duplicate or ack.batch or ack.val else request.checksum,
            msg_id="" if ack.batch else request.msg_id,
        )  # fmt: skip


_READERS: dict[type[nats.Operation], Callable[[NatsReader, Observation, Any], Iterator[Fact]]] = {
    nats.Info: NatsReader._info,
    nats.Connect: NatsReader._connect,
    nats.Ping: NatsReader._ping,
    nats.Pong: NatsReader._pong,
    nats.Sub: NatsReader._sub,
    nats.Unsub: NatsReader._unsub,
    nats.Pub: NatsReader._publish,
    nats.HPub: NatsReader._publish,
    nats.Msg: NatsReader._message,
    nats.HMsg: NatsReader._message,
}


def _at(seen: Observation) -> dict[str, Any]:
    return {"place": seen.place, "server": seen.server}


def _login(fields: dict[str, Any]) -> str:
    """The user of a CONNECT, if nothing else decides about its account, else empty: captures mask tokens,
    NKeys and JWTs. A user is in one account: docs.nats.io, "Accounts"."""
    if any(fields.get(name) for name in SECRETS if name != "pass"):
        return ""
    user = fields.get("user")
    return f"user {user}" if user else "no user"


def _size(operation: nats.Payload) -> int:
    """Bytes of headers and payload."""
    return len(operation.body)


def _delivery(operation: nats.Payload) -> jetstream.AckSubject | None:
    reply = operation.reply
    if reply is None or not reply.startswith(f"{jetstream.ACK_PREFIX}."):
        return None
    try:
        return jetstream.AckSubject.parse(reply)
    except ProtocolError:
        return None


def _headers(operation: nats.Payload) -> Any:
    try:
        return operation.headers
    except ProtocolError:
        return None


def _status(operation: nats.Payload) -> tuple[Any, int | None]:
    headers = _headers(operation)
    if headers is None or headers.status is None:
        return None, None
    pending = headers.get(jetstream.PENDING_MESSAGES)
    return headers.status, int(pending) if pending is not None and pending.isdigit() else None


def _message_id(operation: nats.Payload) -> str:
    headers = _headers(operation)
    return "" if headers is None else headers.get("Nats-Msg-Id") or ""


def _published_checksum(operation: nats.Payload) -> int | None:
    """None if the stream may store another payload: a counter (ADR-49), a batch (ADR-50)."""
    headers = _headers(operation)
    if headers is not None and (headers.get(COUNTER_INCREMENT) or headers.get(BATCH_ID)):
        return None
    return crc32(operation.payload)


def _delivered_checksum(operation: nats.Payload) -> int | None:
    """None if the consumer leaves payloads out (headers_only)."""
    headers = _headers(operation)
    return None if headers is not None and headers.get(MESSAGE_SIZE) else crc32(operation.payload)


def _pull_request(body: bytes) -> jetstream.PullRequest | None:
    try:
        return jetstream.PullRequest.parse(body)
    except ProtocolError:
        return None  # the server answers 400


def _changed_asset(tokens: list[str]) -> tuple[str, str, str | None] | None:
    """(verb, stream, consumer or None) of an API subject that changes something, else None."""
    if tokens[:1] not in (["STREAM"], ["CONSUMER"]):
        return None
    for verb in _CHANGING:
        verb_tokens = [tokens[0], *verb.split(".")]
        names = tokens[len(verb_tokens) :]
        if tokens[: len(verb_tokens)] == verb_tokens and names:
            consumer = names[1] if tokens[0] == "CONSUMER" and len(names) > 1 else None
            return ".".join(verb_tokens), names[0], consumer
    return None


def _forget_oldest(requests: dict[str, Any]) -> None:
    while len(requests) > MAX_REQUESTS:
        del requests[next(iter(requests))]
