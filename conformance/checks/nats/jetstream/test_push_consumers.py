"""Push consumers, where counting or many messages are needed. docs.nats.io, "Consumers", "Push-specific"."""

from __future__ import annotations

import time
from typing import Any

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import shows_default
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported, Untestable
from plumbline.wire.nats import HMsg, HPub, Msg, Operation, Pub, Sub
from plumbline.wire.nats.jetstream import (
    CONSUMER_STALLED,
    FLOW_CONTROL_REQUEST,
    IDLE_HEARTBEAT,
    PullRequest,
    api_subject,
    next_subject,
)
from plumbline.wire.nats.jetstream.times import format_time, parse_time

SOURCE = 'docs.nats.io, "Consumers", "Push-specific"'
LARGE = 256 * 1024
TOO_SMALL = 8 * 1024  # a max_payload with which so much would take too many messages
A_LOT = 24 * LARGE  # bytes, which are more than a server has on its way unanswered
HEARTBEAT_NS = 300_000_000
PAUSED_FOR_EVER = "2099-01-01T00:00:00Z"
PAUSE_NS = 600_000_000
PATIENCE_NS = 5_000_000_000  # of a pull request
UNUSUAL_HEADERS = b"NATS/1.0\r\nB: 2\r\nA: 1\r\nb: x\r\nB: 1\r\nEmpty: \r\nA:  two  words\r\n\r\n"


def push_consumer(session: NatsSession, stream: str, **config: Any) -> str:
    """A durable push consumer to ``session.inbox()``; its name on the target."""
    return session.stage.consumer(stream, "PUSH", deliver_subject=session.inbox(), **config)


def subscribed(session: NatsSession, name: str = "client", queue: str | None = None) -> NatsConnection:
    """A connection that listens on ``session.inbox()`` as sid 1."""
    client = session.connect(name)
    client.send(Sub.make(session.inbox(), 1, queue) if queue else Sub.make(session.inbox(), 1))
    client.flush()
    return client


def status(operation: Operation) -> str:
    """``100 Idle Heartbeat``; empty for anything but a status."""
    headers = operation.headers if isinstance(operation, HMsg) else None
    return str(headers.status) if headers is not None and headers.status is not None else ""


def header(operation: Operation, name: str) -> str | None:
    """The value of a header, if there is one."""
    headers = operation.headers if isinstance(operation, HMsg) else None
    return headers.get(name) if headers is not None else None


@verifies("JS-CONS-072", source='docs.nats.io, "JetStream wire API Reference"')
def test_push_bound_follows_the_subscriber(session: NatsSession) -> None:
    """push_bound is shown while a client is subscribed to the deliver_subject."""
    stream = session.stage.stream("P", [session.name("p")])
    consumer = push_consumer(session, stream)
    session.stage.expect_consumer(stream, consumer, push_bound=False)
    client = subscribed(session)
    session.stage.expect_consumer(stream, consumer, push_bound=True)
    client.close()
    session.stage.expect_consumer(stream, consumer, push_bound=False)


@verifies("JS-CONS-072", source='docs.nats.io, "JetStream wire API Reference"')
def test_push_bound_ends_with_its_client(session: NatsSession) -> None:
    """push_bound is no longer shown when a client of 5000 subscriptions, one of them this, is gone."""
    stream = session.stage.stream("P", [session.name("p")])
    consumer = push_consumer(session, stream)
    client = subscribed(session)
    client.send(*(Sub.make(f"{session.name('many')}.{number}", number + 2) for number in range(5000)))
    try:
        client.flush()
    except Failed as refused:
        if "maximum subscriptions exceeded" in refused.actual:
            raise Unsupported("a client may not have 5000 subscriptions", actual=refused.actual) from None
        raise
    session.stage.expect_consumer(stream, consumer, push_bound=True)
    client.close()
    session.stage.expect_consumer(stream, consumer, push_bound=False)


@verifies("JS-CONS-073", source='docs.nats.io, "JetStream wire API Reference"')
def test_max_ack_pending_of_a_push_consumer(session: NatsSession) -> None:
    """By default max_ack_pending of a push consumer is 1000."""
    stream = session.stage.stream("P", [session.name("p")])
    consumer = push_consumer(session, stream)
    shows_default(session, session.stage.consumer_info(stream, consumer), "config.max_ack_pending", 1000)


@verifies("JS-CONS-076", source='docs.nats.io, "Consumers", "Push-specific", "DeliverGroup"')
def test_a_deliver_group_shares_the_messages(session: NatsSession) -> None:
    """Each message goes to one member of the group, and all members get some."""
    messages, queue, subject = 40, session.name("grp"), session.name("p")
    stream = session.stage.stream("P", [subject])
    members = [subscribed(session, name, queue) for name in ("first", "second")]
    push_consumer(session, stream, deliver_group=queue)
    for number in range(messages):
        session.stage.publish(subject, b"%d" % number)
    shares: list[list[bytes]] = [[], []]
    deadline = time.monotonic() + 2 + session.target.slack_s
    while sum(map(len, shares)) < messages and time.monotonic() < deadline:
        for member, share in zip(members, shares, strict=True):
            while (arrival := member.poll(time.monotonic() + 0.01)) is not None:
                share.append(_payload(arrival.operation))
    for member, share in zip(members, shares, strict=True):
        share.extend(map(_payload, member.flush()))
    session.require(
        sorted(shares[0] + shares[1]) == sorted(b"%d" % number for number in range(messages)),
        "the group did not get each message once",
        expected=f"{messages} messages, each once",
        actual=f"{len(shares[0])} and {len(shares[1])} messages, {len(set(shares[0] + shares[1]))} different",
    )
    session.require(
        all(shares),
        "one member got everything",
        expected="a share for each member",
        actual=f"{len(shares[0])} and {len(shares[1])} messages",
    )


def _payload(operation: Operation) -> bytes:
    if not isinstance(operation, Msg):
        raise Failed("something else than a message came", expected="MSG", actual=str(operation))
    return operation.payload


# Flow control


def controlled(session: NatsSession) -> tuple[NatsConnection, int]:
    """The subscriber of a consumer with flow control that gets ``A_LOT``, and the number of messages."""
    session.needs("headers")
    if session.max_payload < TOO_SMALL:
        raise Unsupported(f"INFO's max_payload is {session.max_payload}: flow control takes {A_LOT} bytes")
    size = min(LARGE, session.max_payload)
    messages = A_LOT // size
    subject = session.name("fc")
    stream = session.stage.stream("FC", [subject])
    for _ in range(messages):
        session.stage.publish(subject, b"x" * size)
    client = subscribed(session)
    push_consumer(session, stream, ack_policy="none", flow_control=True, idle_heartbeat=HEARTBEAT_NS)
    return client, messages


def arrival_of(client: NatsConnection, wanted: str) -> Msg | HMsg:
    """The next message or status."""
    operation = client.arrival(2.0, wanted).operation
    if not isinstance(operation, Msg | HMsg):
        raise Failed("something else than a message came", expected=wanted, actual=str(operation))
    return operation


@verifies("JS-CONS-081", source='docs.nats.io, "Consumers", "Push-specific", "FlowControl"')
def test_a_flow_control_request_comes(session: NatsSession) -> None:
    """After a while a status 100 FlowControl Request comes, with a reply subject."""
    client, messages = controlled(session)
    for _ in range(messages):
        operation = arrival_of(client, str(FLOW_CONTROL_REQUEST))
        if status(operation):
            break
    client.mark_offending(operation)
    session.require(
        isinstance(operation, HMsg)
        and status(operation) == str(FLOW_CONTROL_REQUEST)
        and operation.subject == session.inbox()
        and bool(operation.reply)
        and not operation.payload,
        f"no flow control request among {messages} messages of {A_LOT} bytes",
        expected=f"HMSG {session.inbox()} 1 <a reply subject> | NATS/1.0 {FLOW_CONTROL_REQUEST}",
        actual=str(operation),
    )


@verifies("JS-CONS-082", source='docs.nats.io, "Consumers", "Push-specific", "FlowControl"')
def test_without_an_answer_delivery_stops(session: NatsSession) -> None:
    """Delivery stops, and two heartbeats in a row name the request that was not answered."""
    client, messages = controlled(session)
    delivered, asked, stalled = 0, "", 0
    while stalled < 2:
        operation = arrival_of(client, f"{IDLE_HEARTBEAT} with {CONSUMER_STALLED}")
        if not status(operation):
            delivered, stalled = delivered + 1, 0
        elif status(operation) == str(FLOW_CONTROL_REQUEST):
            asked = operation.reply or ""
        else:
            stalled += 1
            if not asked or header(operation, CONSUMER_STALLED) != asked:
                raise Failed(
                    "the heartbeat does not name the request that is not answered",
                    expected=f"{CONSUMER_STALLED}: {asked or 'the reply of a flow control request'}",
                    actual=str(operation),
                )
    session.require(
        delivered < messages,
        "everything was delivered without an answer",
        expected=f"fewer than {messages} messages of {A_LOT} bytes",
        actual=f"{delivered} messages",
    )


@verifies("JS-CONS-115", source="observed, nats-server 2.10.29 and 2.15")
def test_one_flow_control_request_waits_for_its_answer(session: NatsSession) -> None:
    """Until delivery has stalled, and while it has, one request comes and no other."""
    client, messages = controlled(session)
    asked, stalled = [], 0
    while stalled < 2:
        operation = arrival_of(client, f"{IDLE_HEARTBEAT} with {CONSUMER_STALLED}")
        if status(operation) == str(FLOW_CONTROL_REQUEST):
            asked.append(operation.reply or "")
        elif status(operation):
            stalled += 1
        session.require(
            len(asked) <= 1,
            "a second flow control request, before the first is answered",
            expected=f"one request among {messages} messages of {A_LOT} bytes",
            actual=", ".join(asked),
        )


@verifies("JS-CONS-083", source='docs.nats.io, "Consumers", "Push-specific", "FlowControl"')
def test_an_answer_makes_delivery_go_on(session: NatsSession) -> None:
    """Once it has stalled, and its requests are answered, everything is delivered."""
    client, messages = controlled(session)
    delivered, asked, heartbeats, has_stalled = 0, "", 0, False
    while delivered < messages and heartbeats < 3:
        operation = arrival_of(client, f"message {delivered + 1} of {messages}")
        if not status(operation):
            delivered, heartbeats = delivered + 1, 0
        elif status(operation) == str(FLOW_CONTROL_REQUEST):
            asked = operation.reply or ""
        else:
            heartbeats, has_stalled = heartbeats + 1, True
        if has_stalled and asked:
            client.send(Pub.make(asked))
            asked = ""
    session.require(
        has_stalled and delivered == messages,
        "delivery does not go on" if has_stalled else "delivery never stalled",
        expected=f"a stall, and {messages} messages once the requests are answered",
        actual=f"{delivered} messages",
    )


# Rate limit


@verifies("JS-CONS-086", source='docs.nats.io, "Consumers", "Push-specific", "RateLimit"')
def test_a_burst_comes_at_once(session: NatsSession) -> None:
    """20 messages of 1 kB come at once, however low the rate is."""
    subject = session.name("p")
    stream = session.stage.stream("P", [subject])
    for _ in range(20):
        session.stage.publish(subject, b"x" * 1000)
    client = subscribed(session)
    push_consumer(session, stream, rate_limit_bps=800)
    for _ in range(20):
        client.expect(Msg, subject=subject)


@verifies("JS-CONS-097", source='docs.nats.io, "Consumers", "Push-specific", "RateLimit"')
def test_beyond_the_burst_the_rate_is_kept(session: NatsSession) -> None:
    """60 kB at 100 kB/s, of which one message of at most 20 kB may be a burst, take 0.4 s."""
    subject, largest, size, messages, rate = session.name("p"), 20_000, 10_000, 6, 100_000
    stream = session.stage.stream("P", [subject], max_msg_size=largest)
    for _ in range(messages):
        session.stage.publish(subject, b"x" * size)
    client = subscribed(session)
    began = time.monotonic()
    push_consumer(session, stream, rate_limit_bps=8 * rate)
    for _ in range(messages):
        client.expect(Msg, subject=subject)
    took = time.monotonic() - began
    least = (messages * size - largest) / rate
    session.require(
        took >= 0.9 * least,
        "faster than its rate",
        expected=f"{messages} messages of {size} bytes in {least:g} s at least",
        actual=f"{took:.3f} s",
    )


# Pause


@verifies("JS-CONS-096", source="observed, nats-server 2.15", since="2.11")
def test_a_paused_consumer_sends_heartbeats_alone(session: NatsSession) -> None:
    """While it is paused only heartbeats come; once the pause has ended, the message."""
    session.needs("headers")
    subject = session.name("p")
    stream = session.stage.stream("P", [subject])
    client = subscribed(session)
    consumer = push_consumer(session, stream, idle_heartbeat=HEARTBEAT_NS, pause_until=PAUSED_FOR_EVER)
    session.stage.expect_consumer(stream, consumer, paused=True)
    session.stage.publish(subject, b"m1")
    for _ in range(2):
        client.expect(HMsg, subject=session.inbox(), status=str(IDLE_HEARTBEAT))
    session.stage.api("CONSUMER.PAUSE", stream, consumer)
    for _ in range(4):  # servers may wait for the next heartbeat or message
        if not status(operation := arrival_of(client, "m1")):
            break
    session.require(
        isinstance(operation, Msg) and operation.payload == b"m1",
        "the message did not come",
        expected=f"MSG {subject} 1 ... | m1",
        actual=str(operation),
    )


@verifies("JS-CONS-102", "JS-CONS-151", source="observed, nats-server 2.15", since="2.11")
def test_a_pause_ends_at_its_moment(session: NatsSession) -> None:
    """A paused push consumer and a paused pull consumer deliver when pause_until comes, and not before."""
    subject, inbox = session.name("p"), session.inbox("pulled")
    stream = session.stage.stream("P", [subject])
    pull, push = session.stage.consumer(stream, "PULL"), push_consumer(session, stream)
    client = subscribed(session)
    # The second pause takes the place of the first one.
    session.stage.api("CONSUMER.PAUSE", stream, pull, body={"pause_until": PAUSED_FOR_EVER})
    ends = {"1": _paused(session, stream, push), "2": _paused(session, stream, pull)}
    body = PullRequest(batch=1, expires=PATIENCE_NS).encode()
    client.send(Sub.make(inbox, 2), Pub.make(next_subject(stream, pull), body, inbox))
    session.stage.publish(subject, b"m1")
    while ends:
        arrival = client.arrival(2.0, "m1")
        operation = arrival.operation
        if not isinstance(operation, Msg) or operation.sid not in ends:
            raise Failed("something else than the message came", expected="m1", actual=str(operation))
        early = ends.pop(operation.sid) - arrival.at
        session.require(
            early <= 0,
            "a paused consumer delivers too early",
            expected=f"nothing for {PAUSE_NS / 1e9:g} s",
            actual=f"{operation} {early:.3f} s before that",
        )
    for consumer in (push, pull):
        session.stage.expect_consumer(stream, consumer, paused=False)


def _paused(session: NatsSession, stream: str, consumer: str) -> float:
    """Pause it for ``PAUSE_NS`` by the clock of the server; the first moment at which that may be over."""
    asked = time.monotonic()
    moment = parse_time(session.stage.consumer_info(stream, consumer).get("ts") or "")
    if moment is None:
        raise Untestable("CONSUMER.INFO shows no time of the server")
    until = format_time(moment + PAUSE_NS)
    answer = session.stage.api("CONSUMER.PAUSE", stream, consumer, body={"pause_until": until})
    remaining = answer.get("pause_remaining") or 0
    if not remaining and time.monotonic() - asked >= PAUSE_NS / 1e9:
        raise Inconclusive("the pause was over before it began")
    session.require(
        answer.get("paused") is True and 0 < remaining <= PAUSE_NS,
        "the answer does not show the pause",
        expected=f"paused true and pause_remaining of at most {PAUSE_NS}",
        actual=f"paused {answer.get('paused')} and pause_remaining {remaining}",
    )
    # In a cluster another node may answer than the one that delivers.
    session.stage.await_consumer(stream, consumer, paused=True)
    return asked + PAUSE_NS / 1e9


@verifies("JS-CONS-103", source='docs.nats.io, "Consumers"')
def test_headers_keep_their_bytes(session: NatsSession) -> None:
    """The header block of a delivery is, byte for byte, the one that was published."""
    session.needs("headers")
    subject, pulled, got = session.name("p"), session.inbox("pulled"), session.inbox("got")
    stream = session.stage.stream("P", [subject], allow_direct=True)
    push_consumer(session, stream)
    pull = session.stage.consumer(stream, "PULL")
    client = subscribed(session)
    client.send(
        Sub.make(pulled, 2),
        Sub.make(got, 3),
        HPub.make(subject, UNUSUAL_HEADERS, b"m1"),
    )
    _bears_as_published(client.expect(HMsg, sid="1"))
    body = PullRequest(batch=1, expires=PATIENCE_NS).encode()
    client.send(Pub.make(next_subject(stream, pull), body, pulled))
    _bears_as_published(client.expect(HMsg, sid="2"))
    client.send(Pub.make(api_subject("DIRECT.GET", stream), b'{"seq":1}', got))
    _bears_as_published(client.expect(HMsg, sid="3"), added=True)


def _bears_as_published(operation: Operation, *, added: bool = False) -> None:
    """``added``: a direct get has headers of its own behind them."""
    assert isinstance(operation, HMsg)
    right, found = UNUSUAL_HEADERS, operation.header_block
    if not (found.startswith(right.removesuffix(b"\r\n")) if added else found == right):
        raise Failed("the headers are not as published", expected=repr(right), actual=repr(found))
