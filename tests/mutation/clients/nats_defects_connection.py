"""Faults of staying connected: CLIENT-CONN."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from plumbline.wire.nats import Msg, Operation, Sub, Unsub
from tests.mutation.clients import nats_client, nats_jetstream
from tests.mutation.clients.defect import defect, of_connection, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import Came, Client, LibraryError, Link, Subscription
from tests.mutation.clients.nats_defects_core import take_any_reply
from tests.mutation.clients.nats_jetstream import JetStream, Pull


class _EndNoted:
    """A connection that notes whether the server closed it; a reset raises instead."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.closed = False

    def recv(self, size: int) -> bytes:
        data = self._link.recv(size)
        self.closed = not data
        return data


@of_connection(
    "reconnects-when-needed",
    breaks="CLIENT-CONN-001",
    summary="an idle connection that its only server closes without -ERR is made again by the next publish",
)
def _(client: Client, js: JetStream) -> None:
    read_all, refused, keep, close = client.read_all, client.refused, client.keep, client.close
    is_needed = threading.Event()

    def note_error(message: str) -> None:
        is_needed.set()
        refused(message)

    def keep_and_connect(operations: tuple[Operation, ...]) -> None:
        is_needed.set()
        keep(operations)

    def close_and_end() -> None:
        is_needed.set()
        close()

    def read_and_note(link: Any) -> None:
        noted: Any = _EndNoted(link)
        read_all(noted)
        if noted.closed and not (client.subscriptions or client.ping_s or client.servers[1:]):
            with client.lock:
                client.is_down = True
            is_needed.wait()

    replace(client, "refused", note_error)
    replace(client, "keep", keep_and_connect)
    replace(client, "close", close_and_end)
    replace(client, "read_all", read_and_note)


def is_plain(subscription: Subscription) -> bool:
    """Without a queue group and without a maximum."""
    return not subscription.group and not subscription.most


def _subscribing_again(
    alter: Callable[[Client, int, Subscription, list[Operation]], list[Operation]],
) -> Callable[[Client, JetStream], None]:
    """What is sent for a subscription of the user after a reconnect, altered."""

    def set_up(client: Client, js: JetStream) -> None:
        whole = client.subscribe_again

        def subscribe_again(sid: int, subscription: Subscription) -> list[Operation]:
            operations = whole(sid, subscription)
            if subscription.subject.startswith("_INBOX."):
                return operations
            return alter(client, sid, subscription, operations)

        replace(client, "subscribe_again", subscribe_again)

    return set_up


of_connection("only-the-last", breaks="CLIENT-CONN-002", summary="one subscription of several comes back")(
    _subscribing_again(
        lambda client, sid, _, operations: operations if sid == max(client.subscriptions) else []
    )
)
of_connection("twice", breaks="CLIENT-CONN-002", summary="subscriptions come back twice")(
    _subscribing_again(
        lambda client, sid, subscription, operations: [
            *operations,
            *([Sub.make(subscription.subject, sid + 1000)] if is_plain(subscription) else []),
        ]
    )
)
of_connection("no-group", breaks="CLIENT-CONN-003", summary="subscriptions come back without their group")(
    _subscribing_again(
        lambda client, sid, subscription, operations: [Sub.make(subscription.subject, sid), *operations[1:]]
    )
)
of_connection("all-of-it-again", breaks="CLIENT-CONN-030", summary="UNSUB has the whole maximum again")(
    _subscribing_again(
        lambda client, sid, subscription, operations: [
            Unsub.make(sid, subscription.most) if isinstance(one, Unsub) else one for one in operations
        ]
    )
)


@of_connection("counts-twice", breaks="CLIENT-CONN-005", summary="what came before the loss is counted twice")
def _(client: Client, js: JetStream) -> None:
    whole = client.resume

    def resume(link: Any) -> None:
        whole(link)
        for subscription in client.subscriptions.values():
            subscription.received *= 2

    replace(client, "resume", resume)


@of_connection("ghosts", breaks="CLIENT-CONN-004", summary="ended subscriptions come back")
def _(client: Client, js: JetStream) -> None:
    ended: dict[int, Subscription] = {}
    forget, resume = client.forget, client.resume

    def remember(sid: int) -> None:
        ended[sid] = client.subscriptions[sid]
        forget(sid)

    def resume_all(link: Any) -> None:
        client.subscriptions.update(ended)
        resume(link)

    replace(client, "forget", remember)
    replace(client, "resume", resume_all)


@of_connection("forgets", breaks="CLIENT-CONN-007", summary="what is published without a connection is gone")
def _(client: Client, js: JetStream) -> None:
    whole = client.resume

    def resume(link: Any) -> None:
        if client.buffer_bytes > 1_000_000:
            client.buffer = []
        whole(link)

    replace(client, "resume", resume)


@of_connection("full-and-mute", breaks="CLIENT-CONN-008", summary="what a full buffer does not take is lost")
def _(client: Client, js: JetStream) -> None:
    replace(client, "buffer_is_full", lambda: None)


@of_connection("one-info-only", breaks="CLIENT-CONN-009", summary="a second INFO ends the connection")
def _(client: Client, js: JetStream) -> None:
    whole = client.informed

    def informed(info: dict[str, Any]) -> None:
        whole(info)
        if info.get("connect_urls") == ["127.0.0.1:4222"]:
            client.close()

    replace(client, "informed", informed)


def _learning(wanted: bool) -> Callable[[Client, JetStream], None]:
    """Only the servers of an INFO with ldm, or only those of one without."""

    def set_up(client: Client, js: JetStream) -> None:
        whole = client.learn
        replace(client, "learn", lambda info: whole(info) if bool(info.get("ldm")) is wanted else None)

    return set_up


of_connection("no-cluster", breaks="CLIENT-CONN-010", summary="connect_urls are not used")(_learning(True))
of_connection("faithful", breaks="CLIENT-CONN-012", summary="connect_urls of a lame duck are not used")(
    _learning(False)
)


@of_connection("never-stale", breaks="CLIENT-CONN-013", summary="unanswered PINGs have no result")
def _(client: Client, js: JetStream) -> None:
    replace(client, "stale", lambda: None)


def _error_that(words: str, act: Callable[[Client, Callable[[str], None], str], None]) -> Any:
    """Another treatment of the errors of a server that have these words."""

    def set_up(client: Client, js: JetStream) -> None:
        whole = client.refused

        def refused(message: str) -> None:
            if words in message:
                act(client, whole, message)
            else:
                whole(message)

        replace(client, "refused", refused)

    return set_up


def _give_up(client: Client, whole: Callable[[str], None], message: str) -> None:
    whole(message)
    client.reconnects = False
    client.cut()


of_connection("silent-refusal", breaks="CLIENT-CONN-014", summary="a Permissions Violation is not reported")(
    _error_that("Permissions", lambda client, whole, message: None)
)
of_connection("offended", breaks="CLIENT-CONN-014", summary="a Permissions Violation ends the connection")(
    _error_that("Permissions", _give_up)
)
of_connection("silent-expiry", breaks="CLIENT-CONN-015", summary="an expired login is not reported")(
    _error_that("Expired", lambda client, whole, message: None)
)
of_connection("stale-for-ever", breaks="CLIENT-CONN-017", summary="Stale Connection is the end")(
    _error_that("Stale", _give_up)
)
of_connection("expired-for-ever", breaks="CLIENT-CONN-028", summary="an expired login is the end")(
    _error_that("Expired", _give_up)
)
of_connection("one-too-many", breaks="CLIENT-CONN-029", summary="too many subscriptions are the end")(
    _error_that("maximum subscriptions", _give_up)
)


@of_connection("any-size", breaks="CLIENT-CONN-016", summary="max_payload is not looked at")
def _(client: Client, js: JetStream) -> None:
    replace(client, "check_size", lambda size: None)


@of_connection("drains-nothing", breaks="CLIENT-CONN-018", summary="a drain sends no UNSUB")
def _(client: Client, js: JetStream) -> None:
    replace(client, "end_subscription", lambda sid: None)


@of_connection("drains-too-fast", breaks="CLIENT-CONN-019", summary="a drain drops what is on its way")
def _(client: Client, js: JetStream) -> None:
    whole = client.end_subscription

    def end_subscription(sid: int) -> None:
        whole(sid)
        client.forget(sid)

    replace(client, "end_subscription", end_subscription)


@of_connection("never-drained", breaks="CLIENT-CONN-020", summary="a drain leaves the connection open")
def _(client: Client, js: JetStream) -> None:
    close = client.close
    drain = client.drain

    def drain_only() -> None:
        replace(client, "close", lambda: None)
        drain()
        replace(client, "close", close)

    replace(client, "drain", drain_only)


@of_connection("an-empty-answer", breaks="CLIENT-CONN-021", summary="a lost request has an empty answer")
def _(client: Client, js: JetStream) -> None:
    whole = client.lost

    def lost() -> None:
        whole()
        for inbox, arrived in list(client.waiting.items()):
            arrived.put(Msg.make(inbox, 1, b""))

    replace(client, "lost", lost)


@of_connection("an-old-answer", breaks="CLIENT-CONN-022", summary="an old reply answers what waits now")
def _(client: Client, js: JetStream) -> None:
    take_any_reply(client, lambda: bool(client.reconnected))


@of_connection("no-fetch-any-more", breaks="CLIENT-CONN-023", summary="after a reconnect no fetch is sent")
def _(client: Client, js: JetStream) -> None:
    whole = js.ask

    def ask(pull: Pull, *request: Any) -> None:
        if not client.reconnected:
            whole(pull, *request)

    replace(js, "ask", ask)


@of_connection("asks-no-more", breaks="CLIENT-CONN-024", summary="after a reconnect nothing is asked for")
def _(client: Client, js: JetStream) -> None:
    whole = client.resume

    def resume(link: Any) -> None:
        client.after_reconnect.clear()
        whole(link)

    replace(client, "resume", resume)


@of_connection("loyal", breaks="CLIENT-CONN-025", summary="after a change of leader no fetch is sent")
def _(client: Client, js: JetStream) -> None:
    whole = js.ask
    changed: queue.SimpleQueue[bool] = queue.SimpleQueue()
    ended = js.ended

    def remember(found: list[Came], status: tuple[int, str]) -> tuple[list[Came], LibraryError | None]:
        if status[1] == "Leadership Change":
            changed.put(True)
        return ended(found, status)

    def ask(pull: Pull, *request: Any) -> None:
        if changed.empty():
            whole(pull, *request)

    replace(js, "ended", remember)
    replace(js, "ask", ask)


@defect("leaderless", breaks="CLIENT-CONN-026", summary="consuming ends with a change of leader")
def _(adapter: Adapter) -> None:
    replace(nats_jetstream.Consuming, "leader_changed", lambda consuming: None)


@defect("losses-are-not-reported", breaks="CLIENT-CONN-006", summary="a lost connection is not reported")
def _(adapter: Adapter) -> None:
    def say(**line: Any) -> None:
        if line.get("event") != "disconnected":
            whole(**line)

    whole = nats_client.say
    replace(nats_client, "say", say)


@of_connection("lame-ducks-are-not-reported", breaks="CLIENT-CONN-011", summary="lame duck is not reported")
def _(client: Client, js: JetStream) -> None:
    replace(client, "lame_duck", lambda: None)


@of_connection("tries-all-the-time", breaks="CLIENT-CONN-027", summary="attempts follow each other at once")
def _(client: Client, js: JetStream) -> None:
    replace(client, "wait_before_retry", lambda: None)
