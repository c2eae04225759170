"""Statuses are conditions for the library, never messages: ADR-13, "Errors and Status messages handling".

Which statuses end a request and which are reported to the user: ADR-37, "Status handling".
"""

from __future__ import annotations

from plumbline.conformance.clients.nats.scene import CONSUMER, STREAM, SUBJECT, FetchResult, NatsScene
from plumbline.conformance.clients.protocol import AdapterMessage
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import HMsg, Pub, Sub, Unsub
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.nats.jetstream import LEADERSHIP_CHANGE, REQUEST_TIMEOUT, PullRequest, next_subject

LONG_MS = 3000  # of a fetch that something ends before


@scenario("CLIENT-STATUS-001", needs=["fetch"])
def no_messages_is_no_message(scene: NatsScene) -> None:
    """404: fetches from an empty consumer, of one message and of several, hand nothing over."""
    scene.orders()
    for batch in (1, 5):
        _hands_over(scene, scene.fetch(batch, expires_ms=300))


@scenario("CLIENT-STATUS-002", needs=["fetch"])
def a_timeout_in_the_middle_of_a_batch_is_no_message(scene: NatsScene) -> None:
    """408: of a batch of five only one message is there, or comes, before the request expires."""
    scene.orders("m1")
    _hands_over(scene, scene.fetch(5, expires_ms=500), "m1")
    with scene.act_during(scene.is_waiting, lambda: _send_and_end(scene, str(REQUEST_TIMEOUT), "m2")):
        fetched = scene.fetch(5, expires_ms=LONG_MS)
    _hands_over(scene, fetched, "m2")


@scenario("CLIENT-STATUS-003", needs=["fetch"], faults=["delay 500ms HMSG where status = 408 on downstream"])
def a_late_status_is_no_message_of_the_next_fetch(scene: NatsScene) -> None:
    """408 that comes after the fetch it belongs to is neither handed over by the next one nor ends it."""
    scene.orders()
    _hands_over(scene, scene.fetch(1, expires_ms=600))
    scene.require(
        scene.await_wire(lambda: scene.statuses(408) or not _is_waited_for(scene)),
        "no request of the fetch lingered to its end",
        expected=f"{REQUEST_TIMEOUT}, late",
        actual="none came",
    )
    scene.run_command("flush")
    scene.publish("m1")
    _hands_over(scene, scene.fetch(1, expires_ms=1000), "m1")


@scenario("CLIENT-STATUS-003", needs=["fetch"])
def a_late_status_does_not_end_a_fetch_that_waits(scene: NatsScene) -> None:
    """408 of a request that is over comes while a later fetch waits: that one waits on for its message."""
    scene.orders()
    _hands_over(scene, scene.fetch(1, expires_ms=300))
    asked = scene.pulls()
    inbox = asked[-1].inbox if asked else ""
    sid = scene.sid_receiving(inbox)

    def come_late() -> None:
        scene.broker.inject(HMsg.make(inbox, sid, encode_headers(status=REQUEST_TIMEOUT)).raw)
        scene.publish("m1")

    with scene.act_during(lambda: len(scene.pulls()) > len(asked), come_late):
        fetched = scene.fetch(1, expires_ms=4000)
    _hands_over(scene, fetched, "m1")


@scenario("CLIENT-STATUS-004", needs=["fetch"])
def a_deleted_consumer_is_no_message(scene: NatsScene) -> None:
    """409 Consumer Deleted while a fetch waits is not handed over."""
    scene.orders()
    _hands_over(scene, _fetch_from_what_is_deleted(scene))


@scenario("CLIENT-STATUS-008", needs=["fetch"])
def a_deleted_consumer_is_told(scene: NatsScene) -> None:
    """409 Consumer Deleted while a fetch waits is an error for the user."""
    scene.orders()
    _is_told(scene, _fetch_from_what_is_deleted(scene))


@scenario("CLIENT-STATUS-004", needs=["fetch"])
def too_many_requests_is_no_message(scene: NatsScene) -> None:
    """409 Exceeded MaxWaiting: another client's request takes the only place there is."""
    scene.orders(max_waiting=1)
    other = scene.direct_session.connect("other")
    request = PullRequest(batch=1, expires=5_000_000_000)
    other.send(Sub.make("other", 1), Pub.make(next_subject(STREAM, CONSUMER), request.encode(), "other"))
    other.flush()
    _hands_over(scene, scene.fetch(5, expires_ms=600))
    _hands_over(scene, scene.fetch(1, expires_ms=600))


@scenario("CLIENT-STATUS-005", needs=["fetch"])
def no_responders_is_no_message(scene: NatsScene) -> None:
    """503 (no responder for a consumer) is not handed over."""
    _hands_over(scene, _fetch_from_what_was_deleted(scene))


@scenario("CLIENT-STATUS-009", needs=["fetch"])
def no_responders_is_told(scene: NatsScene) -> None:
    """503 (no responder for a consumer) is an error for the user."""
    _is_told(scene, _fetch_from_what_was_deleted(scene))


@scenario("CLIENT-STATUS-006", needs=["fetch"])
def messages_before_a_status_are_handed_over(scene: NatsScene) -> None:
    """Messages of a batch that came before a status ended it are not lost."""
    scene.orders()

    with scene.act_during(scene.is_waiting, lambda: _send_and_end(scene, str(LEADERSHIP_CHANGE), "m1", "m2")):
        fetched = scene.fetch(5, expires_ms=LONG_MS)
    messages = list(fetched.messages)
    messages += scene.fetch_all(2 - len(messages))  # a library may raise the error first
    data = [message.data for message in messages]
    scene.require(data == ["m1", "m2"], "messages were lost", expected="['m1', 'm2']", actual=data)


@scenario("CLIENT-STATUS-007", needs=["fetch.heartbeat"])
def heartbeats_are_no_messages(scene: NatsScene) -> None:
    """100 Idle Heartbeat while a fetch waits is not handed over, and does not end it."""
    scene.orders()
    with scene.act_during(lambda: len(scene.statuses(100)) >= 2, lambda: scene.publish("m1")):
        fetched = scene.fetch(1, expires_ms=4000, heartbeat_ms=500)
    _hands_over(scene, fetched, "m1")


@scenario("CLIENT-STATUS-007", needs=["push"])
def heartbeats_of_push_consumers_are_no_messages(scene: NatsScene) -> None:
    """100 Idle Heartbeat and FlowControl Request of a push consumer are not handed over."""
    _push(scene)
    scene.await_wire(lambda: len(scene.statuses(100)) >= 3)
    scene.publish("m1")
    scene.await_events(lambda: scene.messages("a"))
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["m1"], "a status was handed over", expected="['m1']", actual=data)


@scenario("CLIENT-STATUS-010", needs=["push"])
def flow_control_is_answered(scene: NatsScene) -> None:
    """A FlowControl Request is answered on its reply subject."""
    _push(scene)
    answered = scene.await_wire(lambda: _flow_control(scene))
    scene.require(
        answered, "flow control is not answered", expected="PUB $JS.FC.ORDERS.PUSH.x1", actual="nothing"
    )


def _send_and_end(scene: NatsScene, status: str, *messages: str) -> None:
    """These messages for the request that waits, then this status, if the broker has not ended it by then: a
    request with no_wait and expires waits for the first message and no longer."""
    before = len(scene.deliveries())
    scene.publish(*messages)
    scene.await_wire(lambda: len(scene.deliveries()) >= before + len(messages) or not scene.is_waiting())
    if scene.is_waiting():
        inbox = scene.pulls()[-1].inbox
        scene.broker.inject(HMsg.make(inbox, _sid(scene), f"NATS/1.0 {status}\r\n\r\n".encode()).raw)


def _push(scene: NatsScene) -> None:
    """A push consumer with heartbeats, subscribed to; then the broker asks for flow control."""
    scene.stage.stream(STREAM, ["orders.>"])
    heartbeats = {"idle_heartbeat": 100_000_000, "flow_control": True}
    scene.stage.consumer(STREAM, "PUSH", deliver_subject="push.here", **heartbeats)
    scene.connect()
    scene.run_command(
        "js.subscribe", within=5.0, subscription="a", stream=STREAM, consumer="PUSH", subject=SUBJECT
    )
    scene.await_wire(lambda: len(scene.statuses(100)) >= 2)
    status = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    sid = scene.sid_of("push.here")
    scene.broker.inject(HMsg.make("push.here", sid, status, reply="$JS.FC.ORDERS.PUSH.x1").raw)


def _fetch_from_what_is_deleted(scene: NatsScene) -> FetchResult:
    with scene.act_during(scene.is_waiting, lambda: _delete_while_it_waits(scene)):
        return scene.fetch(5, expires_ms=LONG_MS)


def _fetch_from_what_was_deleted(scene: NatsScene) -> FetchResult:
    scene.orders("m1")
    scene.take("m1")
    _delete_consumer(scene)
    return scene.fetch(1, expires_ms=700)


def _is_told(scene: NatsScene, fetched: FetchResult) -> None:
    scene.require(
        fetched.error,
        "nothing is reported to the user",
        expected="an error",
        actual="an empty list, as if nothing came",
    )


def _hands_over(scene: NatsScene, fetched: FetchResult, *expected: str) -> None:
    surplus = _surplus(fetched.messages, expected)
    statuses = scene.statuses()
    scene.require(
        fetched.data == list(expected),
        "a status was handed over" if surplus else "a message is missing",
        expected=f"messages {list(expected)}",
        actual=f"messages {[_shown(message) for message in fetched.messages]}, error: {fetched.error}",
        at=statuses[-1] if surplus and statuses else None,
    )


def _surplus(messages: tuple[AdapterMessage, ...], expected: tuple[str, ...]) -> bool:
    return any(message.data not in expected for message in messages)


def _shown(message: AdapterMessage) -> str:
    headers = "".join(f" {name}: {', '.join(values)}" for name, values in message.headers.items())
    return f"{message.data!r} on {message.subject}{headers}"


def _is_waited_for(scene: NatsScene) -> bool:
    """Whether some request may wait and its inbox is heard: nothing comes late for who has unsubscribed."""
    left = [seen.operation for seen in scene.sent_operations(Unsub)]
    ended = [one.sid for one in left if isinstance(one, Unsub) and one.max_msgs is None]
    return any(
        (not pull.request.no_wait or pull.request.expires) and scene.sid_receiving(pull.inbox) not in ended
        for pull in scene.pulls()
    )


def _delete_consumer(scene: NatsScene) -> None:
    scene.stage.api("CONSUMER.DELETE", STREAM, CONSUMER)


def _delete_while_it_waits(scene: NatsScene) -> None:
    """Once the broker has the request: what passes the proxy is still on its way."""
    scene.stage.await_consumer(STREAM, CONSUMER, num_waiting=1)
    _delete_consumer(scene)


def _sid(scene: NatsScene) -> str:
    """Of the subscription that hears the client's pull requests."""
    last = scene.deliveries()[-1].operation
    return str(getattr(last, "sid", ""))


def _flow_control(scene: NatsScene) -> bool:
    return any(
        getattr(seen.operation, "subject", "").startswith("$JS.FC.") for seen in scene.sent_operations(Pub)
    )
