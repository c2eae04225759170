"""Faults of connections, subjects and publishing: CLIENT-CORE, CLIENT-PUB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plumbline.wire.nats import Operation, Ping, Pub, Unsub
from tests.mutation.clients.defect import defect, of_connection, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import Came, Client, LibraryError, status_of
from tests.mutation.clients.nats_jetstream import NO_RESPONDERS, JetStream

WRONG_LAST_SEQUENCE = 10071  # err_code


@of_connection("ping-before-connect", breaks="CLIENT-CORE-001", summary="PING is sent before CONNECT")
def _(client: Client, js: JetStream) -> None:
    whole = client.greeting

    def greeting() -> list[Operation]:
        return [Ping.make(), *whole()]

    replace(client, "greeting", greeting)
    original = client.await_pong

    def await_both() -> None:
        replace(client, "await_pong", original)
        original()
        original()

    replace(client, "await_pong", await_both)


@of_connection("no-pong", breaks="CLIENT-CORE-002", summary="PING is not answered")
def _(client: Client, js: JetStream) -> None:
    replace(client, "answer_ping", lambda: None)


@of_connection("reply-is-lost", breaks="CLIENT-CORE-003", summary="a publish drops its reply subject")
def _(client: Client, js: JetStream) -> None:
    whole = client.publish

    def publish(subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> None:
        whole(subject, data, headers, reply if reply.startswith("_INBOX.") else "")

    replace(client, "publish", publish)


@defect("headers-are-lost", breaks="CLIENT-CORE-004", summary="headers of other users are not handed over")
def _(adapter: Adapter) -> None:
    whole = adapter.handed

    def handed(operation: Came) -> dict[str, Any]:
        message = whole(operation)
        own = {name: value for name, value in message["headers"].items() if name.startswith(("Nats-", "KV-"))}
        return {**message, "headers": own}

    replace(adapter, "handed", handed)


@of_connection("one-more", breaks="CLIENT-CORE-005", summary="unsubscribe after n is sent as n + 1")
def _(client: Client, js: JetStream) -> None:
    whole = client.send

    def send(*operations: Operation) -> None:
        whole(*(one_more(one) if isinstance(one, Unsub) and one.max_msgs else one for one in operations))

    def one_more(unsub: Unsub) -> Unsub:
        of_the_user = not client.subscriptions[int(unsub.sid)].subject.startswith("_INBOX.")
        return Unsub.make(unsub.sid, (unsub.max_msgs or 0) + 1) if of_the_user else unsub

    replace(client, "send", send)


@of_connection(
    "still-listening", breaks="CLIENT-CORE-006", summary="what comes after UNSUB is handed over all the same"
)
def _(client: Client, js: JetStream) -> None:
    takers: dict[int, Callable[[Came], None]] = {}
    whole = client.subscribe

    def subscribe(subject: str, take: Callable[[Came], None], group: str = "") -> int:
        sid = whole(subject, take, group)
        takers[sid] = take
        return sid

    def unwanted(operation: Came) -> None:
        if not (operation.reply or "").startswith("$JS.") and not operation.subject.startswith("_INBOX."):
            takers[int(operation.sid)](operation)

    replace(client, "subscribe", subscribe)
    replace(client, "unwanted", unwanted)


@of_connection(
    "any-reply-will-do", breaks="CLIENT-CORE-007", summary="a late reply answers the request that waits now"
)
def _(client: Client, js: JetStream) -> None:
    take_any_reply(client, lambda: not client.reconnected)


def take_any_reply(client: Client, takes: Callable[[], bool]) -> None:
    """While ``takes`` is true, what comes answers the request that waits, whichever it is."""
    answer, end_request = client.answer, client.end_request

    def any_answer(operation: Came) -> None:
        if not takes():
            answer(operation)
            return
        for arrived in client.waiting.values():
            arrived.put(operation)

    def stay_subscribed(sid: int) -> None:
        if not takes():
            end_request(sid)

    replace(client, "answer", any_answer)
    replace(client, "end_request", stay_subscribed)


@of_connection("one-inbox-for-all", breaks="CLIENT-CORE-008", summary="all connections use the same inboxes")
def _(client: Client, js: JetStream) -> None:
    numbers = iter(range(1, 1_000_000))
    replace(client, "inbox", lambda: f"_INBOX.twin.{next(numbers)}")


@of_connection(
    "ping-overtakes-publish", breaks="CLIENT-CORE-009", summary="flush sends PING before what is still kept"
)
def _(client: Client, js: JetStream) -> None:
    whole = client.send
    kept: list[Operation] = []

    def send(*operations: Operation) -> None:
        late = tuple(kept)
        kept.clear()
        if all(isinstance(one, Pub) and not one.reply for one in operations):
            whole(*late)
            kept.extend(operations)
        elif isinstance(operations[0], Ping):
            whole(*operations, *late)
        else:
            whole(*late, *operations)

    replace(client, "send", send)


@of_connection("flush-without-ping", breaks="CLIENT-CORE-009", summary="flush only writes, and sends no PING")
def _(client: Client, js: JetStream) -> None:
    replace(client, "flush", lambda: None)


@of_connection("flush-without-pong", breaks="CLIENT-CORE-009", summary="flush sends PING and awaits nothing")
def _(client: Client, js: JetStream) -> None:
    def flush() -> None:
        with client.lock:
            client.send(Ping.make())
            client.own_pings.append(True)

    replace(client, "flush", flush)


@of_connection("any-pong-will-do", breaks="CLIENT-CORE-009", summary="the PONG of any PING ends a flush")
def _(client: Client, js: JetStream) -> None:
    def answered() -> None:
        client.unanswered = 0
        client.pongs.release()

    def flush() -> None:
        while client.pongs.acquire(blocking=False):
            pass
        client.send(Ping.make())
        client.await_pong()

    replace(client, "answered", answered)
    replace(client, "flush", flush)


@of_connection(
    "one-ping-at-a-time", breaks="CLIENT-CORE-009", summary="flush sends no PING while another is unanswered"
)
def _(client: Client, js: JetStream) -> None:
    whole = client.flush

    def flush() -> None:
        with client.lock:
            is_shared = bool(client.own_pings)
            if is_shared:
                client.own_pings[0] = False
        if is_shared:
            client.await_pong()
        else:
            whole()

    replace(client, "flush", flush)


@of_connection(
    "lost-flush-succeeds", breaks="CLIENT-CORE-009", summary="flush gives up without PONG, and no error"
)
def _(client: Client, js: JetStream) -> None:
    def await_pong() -> None:
        client.pongs.acquire(timeout=client.flush_within_s)

    replace(client, "await_pong", await_pong)


@of_connection("never-a-duplicate", breaks="CLIENT-PUB-001", summary="duplicate is not reported")
def _(client: Client, js: JetStream) -> None:
    whole = js.pub_ack
    replace(js, "pub_ack", lambda answer: {**whole(answer), "duplicate": False})


@of_connection("other-id-header", breaks="CLIENT-PUB-002", summary="the header is Msg-Id, in lower case")
def _(client: Client, js: JetStream) -> None:
    whole = js.publish

    def publish(subject: str, data: bytes, headers: Mapping[str, str], timeout: float) -> dict[str, Any]:
        kept = {name: value for name, value in headers.items() if name == "Nats-Msg-Id"}
        return whole(subject, data, kept or headers, timeout)

    replace(js, "publish", publish)


@of_connection(
    "refusal-is-stored",
    breaks="CLIENT-PUB-003",
    summary="an error in a PubAck is a success, but for a wrong last sequence",
)
def _(client: Client, js: JetStream) -> None:
    whole = js.pub_ack

    def pub_ack(answer: dict[str, Any]) -> dict[str, Any]:
        if answer.get("error", {}).get("err_code", WRONG_LAST_SEQUENCE) == WRONG_LAST_SEQUENCE:
            return whole(answer)
        return {"stream": "", "seq": 0, "duplicate": False}

    replace(js, "pub_ack", pub_ack)


def _stored_all_the_same(text: str) -> Callable[[Client, JetStream], None]:
    def alter(client: Client, js: JetStream) -> None:
        whole = js.publish

        def publish(subject: str, data: bytes, headers: Mapping[str, str], timeout: float) -> dict[str, Any]:
            try:
                return whole(subject, data, headers, timeout)
            except LibraryError as error:
                if str(error) != text:
                    raise
                return {"stream": "", "seq": 0, "duplicate": False}

        replace(js, "publish", publish)

    return alter


of_connection("no-stream-is-stored", breaks="CLIENT-PUB-004", summary="503 to a publish is a success")(
    _stored_all_the_same("no responders")
)
of_connection("silence-is-stored", breaks="CLIENT-PUB-005", summary="without a PubAck it is stored")(
    _stored_all_the_same("timeout")
)


@of_connection("503-is-a-reply", breaks="CLIENT-PUB-006", summary="503 is handed over as a reply")
def _(client: Client, js: JetStream) -> None:
    refuse, publish = client.refuse_status, js.publish_once
    publishes = False

    def refuse_status(operation: Came) -> None:
        status = status_of(operation)
        if publishes or (status is not None and status[0] != NO_RESPONDERS):
            refuse(operation)

    def publish_once(*fields: Any) -> dict[str, Any]:
        nonlocal publishes
        publishes = True
        try:
            return publish(*fields)
        finally:
            publishes = False

    replace(client, "refuse_status", refuse_status)
    replace(js, "publish_once", publish_once)


@of_connection("tries-once", breaks="CLIENT-PUB-007", summary="a publish is not tried again after 503")
def _(client: Client, js: JetStream) -> None:
    replace(js, "retries", 0)
