"""Faults of pulling: CLIENT-STATUS, CLIENT-PULL, CLIENT-CONSUME."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from plumbline.wire.nats import HMsg, Pub
from plumbline.wire.nats.jetstream import PullRequest
from tests.mutation.clients import nats_jetstream
from tests.mutation.clients.defect import defect, of_connection, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import NS, Came, Client, LibraryError, status_of
from tests.mutation.clients.nats_jetstream import Consuming, JetStream, Pull

REST_S = 3.5  # how long the fault waits
LARGE_BATCH = 1000


def _hands_over(which: Callable[[tuple[int, str], int], bool]) -> Callable[[Client, JetStream], None]:
    """``which``: of a status and the number of messages before it."""
    return lambda client, js: replace(js, "is_handed_over", which)


of_connection("hands-100-over", breaks="CLIENT-STATUS-007", summary="100 is handed over as a message")(
    _hands_over(lambda status, before: status[0] == 100)
)
of_connection(
    "hands-408-over", breaks="CLIENT-STATUS-002", summary="408 that ends a batch is handed over with it"
)(_hands_over(lambda status, before: status[0] == 408 and before > 0))
of_connection(
    "hands-409-over",
    breaks="CLIENT-STATUS-004",
    summary="409 Exceeded MaxWaiting is handed over as a message",
)(_hands_over(lambda status, before: status == (409, "Exceeded MaxWaiting")))


@of_connection(
    "hands-404-over",
    breaks="CLIENT-STATUS-001",
    summary="a fetch of several that finds nothing, as one before it, hands 404 over",
)
def _(client: Client, js: JetStream) -> None:
    whole = js.fetch
    nothing_before = False

    def fetch(
        stream: str, consumer: str, batch: int, timeout: float, *, no_wait: bool, heartbeat: float
    ) -> tuple[list[Came], LibraryError | None]:
        nonlocal nothing_before
        found, error = whole(stream, consumer, batch, timeout, no_wait=no_wait, heartbeat=heartbeat)
        if nothing_before and not found and batch > 1:
            return [_status(b"404 No Messages")], None
        nothing_before = not found
        return found, error

    replace(js, "fetch", fetch)


@defect(
    "hands-503-over", breaks="CLIENT-STATUS-005", summary="503 is handed over as a message, with its error"
)
def _(adapter: Adapter) -> None:
    whole = adapter.fetch

    def fetch(command: dict[str, Any]) -> dict[str, Any]:
        try:
            return whole(command)
        except LibraryError as error:
            if error.code == 503:
                error.handed = {"messages": [adapter.handed(_status(b"503"))]}
            raise

    replace(adapter, "fetch", fetch)


def _status(line: bytes) -> HMsg:
    return HMsg.make("_INBOX.twin", 1, b"NATS/1.0 " + line + b"\r\n\r\n")


@of_connection(
    "late-status-ends-fetch",
    breaks="CLIENT-STATUS-003",
    summary="the 408 of a fetch that is over ends the one that waits now",
)
def _(client: Client, js: JetStream) -> None:
    whole = js.open_pull
    waiting: list[Pull] = []

    def open_pull() -> Pull:
        waiting[:] = [whole()]
        return waiting[0]

    def unwanted(operation: Came) -> None:
        status = status_of(operation)
        if status is not None and status[0] == 408 and waiting:
            waiting[0].arrived.put(operation)

    replace(js, "open_pull", open_pull)
    replace(client, "unwanted", unwanted)


@of_connection(
    "status-takes-all", breaks="CLIENT-STATUS-006", summary="messages before a 409 are lost with their batch"
)
def _(client: Client, js: JetStream) -> None:
    whole = js.ended

    def ended(found: list[Came], status: tuple[int, str]) -> tuple[list[Came], LibraryError | None]:
        return whole(found if status[0] in (404, 408) else [], status)

    replace(js, "ended", ended)


@of_connection(
    "deletion-is-silence", breaks="CLIENT-STATUS-008", summary="a deleted consumer looks like an empty one"
)
def _(client: Client, js: JetStream) -> None:
    _without_error(js, 409)


@of_connection(
    "no-responders-is-silence",
    breaks="CLIENT-STATUS-009",
    summary="a missing consumer looks empty",
)
def _(client: Client, js: JetStream) -> None:
    _without_error(js, 503)


def _without_error(js: JetStream, code: int) -> None:
    whole = js.ended

    def ended(found: list[Came], status: tuple[int, str]) -> tuple[list[Came], LibraryError | None]:
        return (found, None) if status[0] == code else whole(found, status)

    replace(js, "ended", ended)


@defect("no-flow-control", breaks="CLIENT-STATUS-010", summary="a FlowControl Request is not answered")
def _(adapter: Adapter) -> None:
    replace(adapter, "answer_flow_control", lambda reply: None)


@of_connection("lingers-at-once", breaks="CLIENT-PULL-001", summary="the first request lingers")
def _(client: Client, js: JetStream) -> None:
    replace(js, "first_request", js.lingering_request)


@of_connection(
    "no-expires",
    breaks="CLIENT-PULL-002",
    summary="for one message, after a fetch of several, a request lingers without expires",
)
def _(client: Client, js: JetStream) -> None:
    whole = js.lingering_request
    last = 1

    def lingering(batch: int, left: float, heartbeat: float) -> PullRequest:
        nonlocal last
        after, last = last, batch
        return PullRequest(batch=batch) if batch == 1 < after else whole(batch, left, heartbeat)

    replace(js, "lingering_request", lingering)


@of_connection("expires-too-late", breaks="CLIENT-PULL-003", summary="expires is the whole time-out")
def _(client: Client, js: JetStream) -> None:
    whole = 0.0  # what is left of it later is shorter on a busy machine

    def first(batch: int, timeout: float, heartbeat: float) -> PullRequest:
        nonlocal whole
        whole = timeout
        return PullRequest(batch=batch, no_wait=True)

    def lingering(batch: int, left: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch, expires=int(whole * NS), idle_heartbeat=int(heartbeat * NS))

    replace(js, "first_request", first)
    replace(js, "lingering_request", lingering)


@of_connection("asks-for-one-more", breaks="CLIENT-PULL-004", summary="a request asks for one more")
def _(client: Client, js: JetStream) -> None:
    def first(batch: int, timeout: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch + 1 if batch < LARGE_BATCH else batch, no_wait=True)

    replace(js, "first_request", first)


@of_connection(
    "asks-before-it-listens", breaks="CLIENT-PULL-005", summary="the inbox is subscribed after the request"
)
def _(client: Client, js: JetStream) -> None:
    whole = js.ask

    def ask(pull: Pull, stream: str, consumer: str, request: PullRequest) -> None:
        if request.no_wait:  # on an inbox that is none yet: no subscription receives the answer
            heard, pull.inbox = pull.inbox, client.inbox()
            whole(pull, stream, consumer, request)
            pull.inbox = heard
        whole(pull, stream, consumer, request)

    replace(js, "ask", ask)


@of_connection("no-auto-unsubscribe", breaks="CLIENT-PULL-006", summary="no UNSUB follows the first status")
def _(client: Client, js: JetStream) -> None:
    whole = client.unsubscribe
    replace(js, "unsubscribe_max", lambda batch: -1)

    def unsubscribe(sid: int, most: int = 0) -> None:
        if most >= 0:
            whole(sid, most)

    replace(client, "unsubscribe", unsubscribe)


@of_connection(
    "unsubscribes-one-too-early",
    breaks="CLIENT-PULL-007",
    summary="a second UNSUB forgets the status: the last message of a batch is lost",
)
def _(client: Client, js: JetStream) -> None:
    whole = client.unsubscribe

    def unsubscribe(sid: int, most: int = 0) -> None:
        whole(sid, most)
        if most > 2 and client.subscriptions[sid].subject.startswith("_INBOX."):  # of a batch of several
            whole(sid, most - 1)

    replace(client, "unsubscribe", unsubscribe)


@of_connection("stays-interested", breaks="CLIENT-PULL-008", summary="leaving early, it stays subscribed")
def _(client: Client, js: JetStream) -> None:
    replace(js, "close_pull", lambda pull: None)


@of_connection(
    "acks-what-nobody-saw", breaks="CLIENT-PULL-009", summary="a late message is acknowledged and dropped"
)
def _(client: Client, js: JetStream) -> None:
    def unwanted(operation: Came) -> None:
        if (operation.reply or "").startswith("$JS.ACK."):
            client.send(Pub.make(operation.reply or "", b"+ACK"))

    replace(client, "unwanted", unwanted)


@of_connection("outlasts-its-time-out", breaks="CLIENT-PULL-010", summary="a fetch waits beyond its end")
def _(client: Client, js: JetStream) -> None:
    whole = js.next_of

    def next_of(pull: Pull, deadline: float) -> Came:
        return whole(pull, deadline + 10)

    replace(js, "next_of", next_of)


@of_connection("waits-for-the-rest", breaks="CLIENT-PULL-011", summary="a status ends no fetch with messages")
def _(client: Client, js: JetStream) -> None:
    whole = js.next_of
    has_messages = False

    def next_of(pull: Pull, deadline: float) -> Came:
        nonlocal has_messages
        operation = whole(pull, deadline)
        if has_messages and status_of(operation) is not None:
            client.over.wait(min(REST_S, max(0, deadline - time.monotonic())))
        has_messages = status_of(operation) is None
        return operation

    replace(js, "next_of", next_of)


_took = Consuming.take


def _goes_on(operation: Came) -> bool:
    """Whether it is anything but the end of a request by its time."""
    status = status_of(operation)
    return status is None or status[0] != 408


def _consuming(name: str, value: Callable[..., None]) -> Callable[[Adapter], None]:
    """Alters the class: the thread that watches begins with the instance."""
    return lambda adapter: replace(nats_jetstream.Consuming, name, value)


defect("deaf-to-silence", breaks="CLIENT-CONSUME-001", summary="missed heartbeats are not reported")(
    _consuming("missed", lambda self: None)
)
defect("asks-once", breaks="CLIENT-CONSUME-002", summary="no request follows one that has expired")(
    _consuming("take", lambda self, operation: _took(self, operation) if _goes_on(operation) else None)
)


@defect("deletion-is-not-reported", breaks="CLIENT-CONSUME-003", summary="a deleted consumer is not reported")
def _(adapter: Adapter) -> None:
    replace(nats_jetstream.Consuming, "deleted", lambda self: self.over.set())


@defect("never-stops", breaks="CLIENT-CONSUME-004", summary="consuming goes on after stop")
def _(adapter: Adapter) -> None:
    def stop(self: Consuming) -> None:
        time.sleep(0)

    replace(nats_jetstream.Consuming, "stop", stop)


@of_connection("no-more-than-256", breaks="CLIENT-PULL-012", summary="a request asks for at most 256")
def _(client: Client, js: JetStream) -> None:
    whole = js.ask

    def ask(pull: Pull, stream: str, consumer: str, request: PullRequest) -> None:
        whole(pull, stream, consumer, msgspec.structs.replace(request, batch=min(request.batch, 256)))

    replace(js, "ask", ask)


@of_connection("one-inbox-for-pulls", breaks="CLIENT-PULL-013", summary="all fetches have the same inbox")
def _(client: Client, js: JetStream) -> None:
    whole = js.open_pull

    def open_pull() -> Pull:
        inbox = client.inbox
        replace(client, "inbox", lambda: "_INBOX.of.all.fetches")
        try:
            return whole()
        finally:
            replace(client, "inbox", inbox)

    replace(js, "open_pull", open_pull)
