"""Faults of connections, subjects and publishing: CLIENT-CORE, CLIENT-PUB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plumbline.wire.nats import Operation, Ping, Pub
from tests.mutation.clients.defect import defect, of_connection, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import Came, Client, LibraryError, status_of
from tests.mutation.clients.nats_jetstream import JetStream


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


@defect("headers-are-lost", breaks="CLIENT-CORE-004", summary="headers are not handed over")
def _(adapter: Adapter) -> None:
    whole = adapter.handed
    replace(adapter, "handed", lambda operation: {**whole(operation), "headers": {}})


@of_connection("one-more", breaks="CLIENT-CORE-005", summary="unsubscribe after n is sent as n + 1")
def _(client: Client, js: JetStream) -> None:
    whole = client.unsubscribe

    def unsubscribe(sid: int, most: int = 0) -> None:
        whole(sid, most + 1 if most else 0)

    replace(client, "unsubscribe", unsubscribe)
    replace(js, "unsubscribe_max", lambda batch: batch)


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
    def answer(operation: Came) -> None:
        for arrived in client.waiting.values():
            arrived.put(operation)

    replace(client, "answer", answer)
    replace(client, "end_request", lambda sid: None)


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
        client.pongs.acquire(timeout=4)

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


@of_connection("refusal-is-stored", breaks="CLIENT-PUB-003", summary="an error in a PubAck is a success")
def _(client: Client, js: JetStream) -> None:
    whole = js.pub_ack

    def pub_ack(answer: dict[str, Any]) -> dict[str, Any]:
        return {"stream": "", "seq": 0, "duplicate": False} if "error" in answer else whole(answer)

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
    whole = client.refuse_status

    def refuse_status(operation: Came) -> None:
        status = status_of(operation)
        publishes = any(name.startswith("no.stream") for name in published)
        if status is None or status[0] != 503 or publishes:
            whole(operation)

    published: list[str] = []
    send = client.publish

    def publish(subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> None:
        published.append(subject)
        send(subject, data, headers, reply)

    replace(client, "publish", publish)
    replace(client, "refuse_status", refuse_status)


@of_connection("tries-once", breaks="CLIENT-PUB-007", summary="a publish is not tried again after 503")
def _(client: Client, js: JetStream) -> None:
    replace(js, "retries", 0)
