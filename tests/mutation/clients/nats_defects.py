"""Deliberate faults of the small client library: each breaks one requirement, and as little else as it can.

A defect is a function that replaces one method or one value of an adapter, its client or its JetStream.
``tests.mutation`` proves that the gate turns red for each, at the requirement it names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tests.mutation.clients import nats_client
from tests.mutation.clients.nats_client import (
    NS,
    Adapter,
    Came,
    Client,
    Consuming,
    JetStream,
    LibraryError,
    Pull,
    status_of,
)
from wire.jetstream import PullRequest
from wire.nats import Operation, Ping, Pub


class Defect(Struct, frozen=True):
    """One fault: its name, the requirement it breaks, what is wrong, in a sentence."""

    name: str
    breaks: str
    summary: str
    alter: Callable[[Adapter], None]


DEFECTS: dict[str, Defect] = {}


def defect(name: str, *, breaks: str, summary: str) -> Callable[[Callable[[Adapter], None]], None]:
    """Register the decorated function, which alters an adapter."""

    def register(alter: Callable[[Adapter], None]) -> None:
        DEFECTS[name] = Defect(name, breaks, summary, alter)

    return register


def of_connection(
    name: str, *, breaks: str, summary: str
) -> Callable[[Callable[[Client, JetStream], None]], None]:
    """Register the decorated function, which alters every connection before it is made."""

    def register(alter: Callable[[Client, JetStream], None]) -> None:
        def set_up(adapter: Adapter) -> None:
            adapter.alter = alter

        DEFECTS[name] = Defect(name, breaks, summary, set_up)

    return register


def replace(part: object, name: str, value: object) -> None:
    """On this instance alone; a misspelled name must not pass for a defect."""
    getattr(part, name)
    setattr(part, name, value)


# -- CLIENT-CORE -----------------------------------------------------------------------------------


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


# -- CLIENT-STATUS ---------------------------------------------------------------------------------


def _hands_over(*codes: int) -> Callable[[Client, JetStream], None]:
    return lambda client, js: replace(js, "is_handed_over", lambda status: status in codes)


of_connection("hands-404-over", breaks="CLIENT-STATUS-001", summary="404 is handed over as a message")(
    _hands_over(404)
)
of_connection("hands-409-over", breaks="CLIENT-STATUS-004", summary="409 is handed over as a message")(
    _hands_over(409)
)
of_connection("hands-503-over", breaks="CLIENT-STATUS-005", summary="503 is handed over as a message")(
    _hands_over(503)
)
of_connection("hands-100-over", breaks="CLIENT-STATUS-007", summary="100 is handed over as a message")(
    _hands_over(100)
)


@of_connection("hands-408-over", breaks="CLIENT-STATUS-002", summary="408 is handed over as a message")
def _(client: Client, js: JetStream) -> None:
    replace(js, "is_handed_over", lambda status: status == 408)


@of_connection(
    "late-status-ends-fetch",
    breaks="CLIENT-STATUS-003",
    summary="all fetches share one inbox, and the status of an earlier one ends the next",
)
def _(client: Client, js: JetStream) -> None:
    whole = js.open_pull
    kept: list[Pull] = []

    def open_pull() -> Pull:
        if not kept:
            kept.append(whole())
        return kept[0]

    def lingering(batch: int, left: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch, expires=int(left * NS), idle_heartbeat=int(heartbeat * NS))

    replace(js, "open_pull", open_pull)
    replace(js, "close_pull", lambda pull: None)
    replace(js, "unsubscribe_max", lambda batch: 0)
    replace(js, "lingering_request", lingering)
    _keep_subscribed(client)


def _keep_subscribed(client: Client) -> None:
    whole = client.unsubscribe

    def unsubscribe(sid: int, most: int = 0) -> None:
        if most:
            whole(sid, most)

    replace(client, "unsubscribe", unsubscribe)


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


# -- CLIENT-PULL -----------------------------------------------------------------------------------


@of_connection("lingers-at-once", breaks="CLIENT-PULL-001", summary="the first request lingers")
def _(client: Client, js: JetStream) -> None:
    replace(js, "first_request", js.lingering_request)


@of_connection("no-expires", breaks="CLIENT-PULL-002", summary="a request lingers without expires")
def _(client: Client, js: JetStream) -> None:
    def lingering(batch: int, left: float, heartbeat: float) -> PullRequest:
        expires = 60 * NS if heartbeat else 0  # a heartbeat without expires is refused
        return PullRequest(batch=batch, expires=expires, idle_heartbeat=int(heartbeat * NS))

    replace(js, "lingering_request", lingering)


@of_connection("expires-too-late", breaks="CLIENT-PULL-003", summary="expires is the whole time-out")
def _(client: Client, js: JetStream) -> None:
    def lingering(batch: int, left: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch, expires=int(left * NS), idle_heartbeat=int(heartbeat * NS))

    replace(js, "lingering_request", lingering)


@of_connection("asks-for-one-more", breaks="CLIENT-PULL-004", summary="a request asks for one more")
def _(client: Client, js: JetStream) -> None:
    def first(batch: int, timeout: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch + 1, no_wait=True)

    replace(js, "first_request", first)


@of_connection(
    "asks-before-it-listens", breaks="CLIENT-PULL-005", summary="the inbox is subscribed after the request"
)
def _(client: Client, js: JetStream) -> None:
    whole = js.ask

    def ask(pull: Pull, stream: str, consumer: str, request: PullRequest) -> None:
        if request.no_wait:  # on an inbox that is none yet: nobody hears the answer
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
    summary="UNSUB forgets the status: the last message of a batch is lost",
)
def _(client: Client, js: JetStream) -> None:
    replace(js, "unsubscribe_max", lambda batch: max(2, batch))


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


# -- CLIENT-CONSUME --------------------------------------------------------------------------------


def _consuming(name: str, value: Callable[..., None]) -> Callable[[Adapter], None]:
    """Alters the class: the thread that watches begins with the instance."""
    return lambda adapter: replace(nats_client.Consuming, name, value)


defect("deaf-to-silence", breaks="CLIENT-CONSUME-001", summary="missed heartbeats are not told")(
    _consuming("missed", lambda self: None)
)
defect("asks-once", breaks="CLIENT-CONSUME-002", summary="no request follows one that has expired")(
    _consuming("request_ended", lambda self: None)
)


@defect("deletion-is-not-told", breaks="CLIENT-CONSUME-003", summary="a deleted consumer is not told")
def _(adapter: Adapter) -> None:
    replace(nats_client.Consuming, "deleted", lambda self: self.over.set())


@defect("never-stops", breaks="CLIENT-CONSUME-004", summary="consuming goes on after stop")
def _(adapter: Adapter) -> None:
    def stop(self: Consuming) -> None:
        time.sleep(0)

    replace(nats_client.Consuming, "stop", stop)


# -- CLIENT-ACK ------------------------------------------------------------------------------------


def _payload(kind: str, payload: bytes) -> Callable[[Client, JetStream], None]:
    return lambda client, js: js.payloads.update({kind: payload})


of_connection("ack-is-ok", breaks="CLIENT-ACK-001", summary="+ACK is sent as +ok")(_payload("ack", b"+ok"))
of_connection("term-is-nak", breaks="CLIENT-ACK-005", summary="+TERM is sent as -TERM")(
    _payload("term", b"-TERM")
)
of_connection("progress-is-ack", breaks="CLIENT-ACK-004", summary="progress is sent as +ACK")(
    _payload("progress", b"+ACK")
)


@of_connection("nak-is-ack", breaks="CLIENT-ACK-002", summary="-NAK without delay is sent as +NAK")
def _(client: Client, js: JetStream) -> None:
    whole = js.acknowledge

    def acknowledge(message: Came, kind: str, command: Mapping[str, Any]) -> None:
        js.payloads["nak"] = b"-NAK" if "delay_ms" in command else b"+NAK"
        whole(message, kind, command)

    replace(js, "acknowledge", acknowledge)


@of_connection("delay-in-milliseconds", breaks="CLIENT-ACK-003", summary="the delay is sent in milliseconds")
def _(client: Client, js: JetStream) -> None:
    replace(js, "delay", lambda milliseconds: b'{"delay": %d}' % milliseconds)


@of_connection("reason-is-lost", breaks="CLIENT-ACK-006", summary="the reason for +TERM is cut off")
def _(client: Client, js: JetStream) -> None:
    replace(js, "reason", lambda text: text[:3].encode())


@of_connection("next-to-nobody", breaks="CLIENT-ACK-007", summary="+NXT has no reply subject")
def _(client: Client, js: JetStream) -> None:
    replace(js, "next_reply", lambda: "")


@of_connection("next-is-one", breaks="CLIENT-ACK-008", summary="+NXT for several asks for one")
def _(client: Client, js: JetStream) -> None:
    replace(js, "next_batch", lambda batch: b"1")


@of_connection(
    "double-ack-does-not-wait", breaks="CLIENT-ACK-009", summary="a double ack is done before its reply"
)
def _(client: Client, js: JetStream) -> None:
    def acknowledge_twice(message: Came, timeout: float) -> None:
        js.refuse_second(message)
        inbox = client.inbox()
        arrived: list[Came] = []
        client.subscribe(inbox, arrived.append)
        client.publish(js.ack_subject(message), b"+ACK", {}, inbox)
        if timeout < 1:  # as if it waited where it is to be short
            time.sleep(timeout)
            if not arrived:
                raise LibraryError("timeout")

    replace(js, "acknowledge_twice", acknowledge_twice)


@of_connection("acks-again", breaks="CLIENT-ACK-010", summary="a second acknowledgement is sent, too")
def _(client: Client, js: JetStream) -> None:
    replace(js, "refuse_second", lambda message: None)


@of_connection("lost-confirmation", breaks="CLIENT-ACK-011", summary="a double ack without a reply is done")
def _(client: Client, js: JetStream) -> None:
    whole = js.acknowledge_twice

    def acknowledge_twice(message: Came, timeout: float) -> None:
        try:
            whole(message, timeout)
        except LibraryError as error:
            if str(error) != "timeout":
                raise

    replace(js, "acknowledge_twice", acknowledge_twice)


@of_connection(
    "ack-into-the-void", breaks="CLIENT-ACK-012", summary="an acknowledgement on a lost connection is done"
)
def _(client: Client, js: JetStream) -> None:
    whole = js.acknowledge

    def acknowledge(message: Came, kind: str, command: Mapping[str, Any]) -> None:
        if not client.is_lost:
            whole(message, kind, command)

    replace(js, "acknowledge", acknowledge)


@defect(
    "acks-the-first-delivery",
    breaks="CLIENT-ACK-013",
    summary="what is delivered again is acknowledged as it was delivered first",
)
def _(adapter: Adapter) -> None:
    first: dict[str, str] = {}  # by stream sequence

    def alter(client: Client, js: JetStream) -> None:
        def ack_subject(message: Came) -> str:
            return first[_stream_sequence(message.reply or "")]

        replace(js, "ack_subject", ack_subject)

    whole = adapter.handed

    def handed(operation: Came) -> dict[str, Any]:
        reply = operation.reply or ""
        if reply.startswith("$JS.ACK."):
            first.setdefault(_stream_sequence(reply), reply)
        return whole(operation)

    adapter.alter = alter
    replace(adapter, "handed", handed)


def _stream_sequence(reply: str) -> str:
    return reply.split(".")[-4]


# -- CLIENT-PUB ------------------------------------------------------------------------------------


@of_connection("never-a-duplicate", breaks="CLIENT-PUB-001", summary="duplicate is not told")
def _(client: Client, js: JetStream) -> None:
    whole = js.pub_ack
    replace(js, "pub_ack", lambda told: {**whole(told), "duplicate": False})


@of_connection("other-id-header", breaks="CLIENT-PUB-002", summary="the header is Msg-Id, in lower case")
def _(client: Client, js: JetStream) -> None:
    whole = js.publish

    def publish(subject: str, data: bytes, headers: Mapping[str, str], timeout: float) -> dict[str, Any]:
        kept = {name: value for name, value in headers.items() if name == "Nats-Msg-Id"}
        return whole(subject, data, kept or headers, timeout)

    replace(js, "publish", publish)


@of_connection("refusal-is-stored", breaks="CLIENT-PUB-003", summary="an error in a PubAck is told as stored")
def _(client: Client, js: JetStream) -> None:
    whole = js.pub_ack

    def pub_ack(told: dict[str, Any]) -> dict[str, Any]:
        return {"stream": "", "seq": 0, "duplicate": False} if "error" in told else whole(told)

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


of_connection("no-stream-is-stored", breaks="CLIENT-PUB-004", summary="503 to a publish is told as stored")(
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
        publishes = any(name.startswith("nobody.takes") for name in published)
        if status is None or status[0] != 503 or publishes:
            whole(operation)

    published: list[str] = []
    send = client.publish

    def publish(subject: str, data: bytes, headers: Mapping[str, str], reply: str = "") -> None:
        published.append(subject)
        send(subject, data, headers, reply)

    replace(client, "publish", publish)
    replace(client, "refuse_status", refuse_status)
