"""The client protocol below JetStream: docs.nats.io, "Client Protocol"; ADR-4 for headers."""

from __future__ import annotations

from plumbline.conformance.clients.nats.scene import NatsScene, payload_of
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import Connect, HPub, Info, Msg, Pong, Pub, Sub, Unsub

REPLY_WITHIN_S = 5.0


@scenario("CLIENT-CORE-001")
def connect_comes_first(scene: NatsScene) -> None:
    """CONNECT is the first operation of a connection, after INFO."""
    scene.connect()
    scene.run_command("flush")
    first = next(seen for seen in scene.wire if not isinstance(seen.operation, Info))
    scene.require(
        isinstance(first.operation, Connect),
        "the connection begins with something else",
        expected="CONNECT",
        actual=first.operation,
        at=first,
    )


@scenario("CLIENT-CORE-002")
def a_ping_is_answered(scene: NatsScene) -> None:
    """PING is answered with PONG."""
    scene.connect()
    scene.run_command("flush")
    before = len(scene.sent_operations(Pong))
    scene.broker.inject(b"PING\r\n")
    answered = scene.await_wire(lambda: len(scene.sent_operations(Pong)) > before, REPLY_WITHIN_S)
    scene.require(answered, "PING is not answered", expected="PONG within 5 s", actual="no PONG")


@scenario("CLIENT-CORE-003", needs=["publish"])
def what_is_published_is_what_was_given(scene: NatsScene) -> None:
    """A published message has the subject, reply subject, headers and payload that the user gave."""
    scene.connect()
    scene.run_command("publish", subject="orders.a", data="one")
    scene.run_command("publish", subject="orders.b", data="", reply="answers.b")
    scene.run_command("publish", subject="orders.c", data="three", headers={"Kind": "test"})
    scene.run_command("flush")
    sent = [payload_of(seen) for seen in scene.sent_operations(Pub, HPub)]
    found = [
        (one.subject, one.reply or "", one.payload, one.headers.get("Kind") if one.headers else None)
        for one in sent
        if one.subject.startswith("orders.")
    ]
    expected = [
        ("orders.a", "", b"one", None),
        ("orders.b", "answers.b", b"", None),
        ("orders.c", "", b"three", "test"),
    ]
    scene.require(
        found == expected, "something else was published", expected=str(expected), actual=str(found)
    )


@scenario("CLIENT-CORE-004", needs=["subscribe"])
def what_came_is_what_is_handed_over(scene: NatsScene) -> None:
    """A message is handed over with the subject, reply subject, headers and payload that came."""
    scene.connect()
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("flush")
    client = scene.direct_session.connect("publisher")
    client.send(
        HPub.make("orders.a", [("Kind", "test")], b"one", "answers.a"),
        Pub.make("orders.b"),
        Pub.make("fence"),
    )
    client.flush()
    scene.await_events(lambda: len(scene.messages("a")) == 2)
    found = [(one.subject, one.reply, one.data, one.headers.get("Kind", [])) for one in scene.messages("a")]
    expected = [("orders.a", "answers.a", "one", ["test"]), ("orders.b", "", "", [])]
    scene.require(
        found == expected, "something else was handed over", expected=str(expected), actual=str(found)
    )


@scenario("CLIENT-CORE-005", needs=["subscribe", "unsubscribe.after"])
def unsubscribe_after_some_messages(scene: NatsScene) -> None:
    """Unsubscribing after two messages is sent as such, and two are handed over."""
    scene.connect()
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("subscribe", subscription="fence", subject="fence")
    scene.run_command("unsubscribe", subscription="a", after=2)
    scene.run_command("flush")
    sent = [seen for seen in scene.sent_operations(Unsub) if getattr(seen.operation, "max_msgs", None) == 2]
    scene.require(sent, "no UNSUB with the maximum", expected="UNSUB sid 2", actual=_texts(scene))
    client = scene.direct_session.connect("publisher")
    client.send(*(Pub.make("orders.new", f"m{number}".encode()) for number in range(1, 4)), Pub.make("fence"))
    scene.await_events(lambda: scene.messages("fence") and len(scene.messages("a")) >= 2)
    found = [message.data for message in scene.messages("a")]
    scene.require(found == ["m1", "m2"], "another number of messages", expected="['m1', 'm2']", actual=found)


@scenario("CLIENT-CORE-006", needs=["subscribe"])
def nothing_is_handed_over_after_unsubscribe(scene: NatsScene) -> None:
    """What comes for a subscription after its UNSUB is not handed over."""
    scene.connect()
    scene.run_command("subscribe", subscription="a", subject="orders.>")
    scene.run_command("subscribe", subscription="fence", subject="fence")
    scene.run_command("flush")
    sid = scene.sid_of("orders.>")
    scene.run_command("unsubscribe", subscription="a")
    scene.await_wire(lambda: scene.sent_operations(Unsub))
    scene.broker.inject(Msg.make("orders.new", sid, b"late").raw)
    client = scene.direct_session.connect("publisher")
    client.send(Pub.make("fence"))
    fenced = scene.await_events(lambda: scene.messages("fence"))
    scene.require(
        fenced and not scene.messages("a"),
        "a message was handed over after UNSUB" if fenced else "the other subscription heard nothing",
        expected="no message",
        actual=[message.data for message in scene.messages("a")],
    )


@scenario(
    "CLIENT-CORE-007", needs=["request"], faults=['delay 600ms MSG where payload = "first" on downstream']
)
def a_late_reply_answers_no_other_request(scene: NatsScene) -> None:
    """The reply to a request that timed out is not taken for the reply to the next one."""
    scene.connect()
    service = scene.direct_session.connect("service")
    service.send(Sub.make("service.>", 1))
    service.flush()
    with scene.act_during(lambda: _requests(scene), lambda: _reply(scene, 0, b"first")):
        first = scene.try_command("request", subject="service.slow", data="1", timeout_ms=300)
    scene.require(first.error, "a request ended before its reply came", expected="an error", actual=first.ok)
    scene.broker.set_faults()
    with scene.act_during(lambda: len(_requests(scene)) == 2, lambda: _reply(scene, 1, b"second")):
        second = scene.run_command("request", subject="service.quick", data="2", timeout_ms=2000)
    data = second.ok.message.data if second.ok is not None and second.ok.message is not None else None
    scene.require(data == "second", "the wrong reply was taken", expected="second", actual=data)


@scenario("CLIENT-CORE-008", needs=["request"])
def each_connection_has_its_own_inbox(scene: NatsScene) -> None:
    """Reply subjects of one connection are never those of another."""
    inboxes: list[set[str]] = []
    for _ in range(2):
        scene.connect()
        with scene.collect_operations() as passed:
            scene.try_command("request", subject="unused.subject", data="x", timeout_ms=500)
        scene.run_command("close")
        replies = {seen.operation.reply for seen in passed if isinstance(seen.operation, Pub | HPub)}
        inboxes.append({reply for reply in replies if reply})
    scene.require(
        all(inboxes) and not inboxes[0] & inboxes[1],
        "two connections use the same reply subject",
        expected="another one for each connection",
        actual=str(inboxes),
    )


def _requests(scene: NatsScene) -> list[str]:
    """The reply subjects of the requests so far, in order."""
    sent = [payload_of(seen) for seen in scene.sent_operations(Pub, HPub)]
    return [one.reply for one in sent if one.subject.startswith("service.") and one.reply]


def _reply(scene: NatsScene, number: int, data: bytes) -> None:
    client = scene.direct_session.connect("replier")
    client.send(Pub.make(_requests(scene)[number], data))
    client.flush()


def _texts(scene: NatsScene) -> str:
    return "; ".join(str(seen.operation) for seen in scene.sent_operations(Unsub)) or "no UNSUB"
