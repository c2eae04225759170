"""Requests, fetches and consumers whose connection or leader is lost: ADR-40, ADR-13, ADR-37."""

from __future__ import annotations

from plumbline.conformance.clients.nats.outages import (
    connect_to_stay,
    lose_connection,
    require_reconnected,
)
from plumbline.conformance.clients.nats.scene import CONSUMER, STREAM, NatsScene, payload_of
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import HPub, Pub, Sub
from plumbline.wire.nats.headers import Headers
from plumbline.wire.nats.jetstream import LEADERSHIP_CHANGE

REQUEST_MS = 1500
ANSWERED_WITHIN_MS = 10_000  # on a busy machine; an answer that comes ends the wait
INTERRUPTION = Headers(
    LEADERSHIP_CHANGE, (("Nats-Pending-Messages", "10"), ("Nats-Pending-Bytes", "0"))
).encode()
NO_LEADER = 'drop PUB where subject ~ "$JS.API.CONSUMER.MSG.NEXT.>" on upstream'


@scenario("CLIENT-CONN-021", needs=["reconnect", "request"])
def a_request_ends_with_its_connection(scene: NatsScene) -> None:
    """The connection is lost before the reply: the request ends in an error."""
    connect_to_stay(scene)
    serve(scene)
    with scene.act_during(lambda: requests(scene), scene.broker.reset_connections):
        answer = scene.try_command("request", subject="service.a", data="1", timeout_ms=REQUEST_MS)
    scene.require(
        answer.error, "a request has a reply that never came", expected="an error", actual=answer.ok
    )


@scenario("CLIENT-CONN-022", needs=["reconnect", "request"])
def an_old_reply_answers_no_new_request(scene: NatsScene) -> None:
    """The reply to a request of the lost connection comes during the next request."""
    connect_to_stay(scene)
    serve(scene)
    with scene.act_during(lambda: requests(scene), scene.broker.reset_connections):
        scene.try_command("request", subject="service.a", data="1", timeout_ms=300)
    require_reconnected(scene)
    old = requests(scene)

    def reply() -> None:
        client = scene.direct_session.connect("replier")
        new = requests(scene)[-1]
        client.send(*(Pub.make(inbox, b"old") for inbox in old if inbox != new), Pub.make(new, b"new"))
        client.flush()

    with scene.act_during(lambda: len(requests(scene)) > len(old), reply):
        second = scene.run_command("request", subject="service.a", data="2", timeout_ms=ANSWERED_WITHIN_MS)
    data = second.ok.message.data if second.ok is not None and second.ok.message is not None else None
    scene.require(data == "new", "the reply to another request was taken", expected="new", actual=data)


@scenario("CLIENT-CONN-023", needs=["reconnect", "fetch"])
def a_fetch_ends_with_its_connection(scene: NatsScene) -> None:
    """The connection is lost while a fetch waits; the fetch ends, and the next one returns the message."""
    orders_to_stay(scene)
    with scene.act_during(scene.is_waiting, scene.broker.reset_connections):
        scene.fetch(1, REQUEST_MS)
    require_reconnected(scene)
    scene.publish("m1")
    data = [message.data for message in scene.fetch_all(1)]
    scene.require(data == ["m1"], "the next fetch has no message", expected="['m1']", actual=data)


@scenario("CLIENT-CONN-024", needs=["reconnect", "consume"])
def consuming_goes_on_after_a_reconnect(scene: NatsScene) -> None:
    """After a reconnect another request is sent, and the next message is handed over."""
    orders_to_stay(scene)
    consume(scene)
    asked = len(scene.pulls())
    lose_connection(scene)
    went_on = scene.await_wire(lambda: len(scene.pulls()) > asked)
    scene.require(went_on, "nothing is asked for after the reconnect", expected="a request", actual="none")
    scene.publish("m1")
    scene.await_events(lambda: scene.messages("a"))
    data = [message.data for message in scene.messages("a")]
    scene.require(data == ["m1"], "other messages", expected="['m1']", actual=data)


@scenario("CLIENT-CONN-025", needs=["fetch"], faults=[NO_LEADER])
def a_fetch_survives_a_change_of_leader(scene: NatsScene) -> None:
    """409 Leadership Change is all that answers a fetch; the next one asks and returns the message."""
    scene.orders()
    with scene.act_during(scene.pulls, lambda: change_leader(scene)):
        scene.fetch(1, REQUEST_MS)
    scene.broker.set_faults()
    asked = len(scene.pulls())
    scene.publish("m1")
    data = [message.data for message in scene.fetch_all(1)]
    scene.require(
        data == ["m1"] and len(scene.pulls()) > asked,
        "a fetch after the change has no message",
        expected="a request and ['m1']",
        actual=f"{len(scene.pulls()) - asked} requests, {data}",
    )


@scenario("CLIENT-CONN-026", needs=["consume"])
def consuming_goes_on_after_a_change_of_leader(scene: NatsScene) -> None:
    """409 Leadership Change ends the request of a consumer; another one is sent."""
    scene.orders()
    consume(scene)
    asked = len(scene.pulls())
    change_leader(scene)
    scene.broker.set_faults("drop HMSG on downstream")  # the server that led sends no heartbeats either
    went_on = scene.await_wire(lambda: len(scene.pulls()) > asked)
    scene.require(went_on, "nothing is asked for after the change", expected="another request", actual="none")


def orders_to_stay(scene: NatsScene) -> None:
    """As ``NatsScene.orders`` without messages, for a client that may reconnect."""
    scene.stage.stream(STREAM, ["orders.>"])
    scene.stage.consumer(STREAM, CONSUMER)
    connect_to_stay(scene)


def consume(scene: NatsScene) -> None:
    """Consume DISPATCH as ``a``, until its first request waits. Heartbeats come every second."""
    scene.run_command(
        "consume",
        subscription="a",
        stream=STREAM,
        consumer=CONSUMER,
        batch=10,
        expires_ms=30_000,
        heartbeat_ms=1000,
        within=5.0,
    )
    scene.stage.await_consumer(STREAM, CONSUMER, num_waiting=1)


def change_leader(scene: NatsScene) -> None:
    """409 Leadership Change for the client's last request, as from the server that led until now."""
    inbox = scene.pulls()[-1].inbox
    head = f"HMSG {inbox} {scene.sid_receiving(inbox)} {len(INTERRUPTION)} {len(INTERRUPTION)}\r\n"
    scene.broker.inject(head.encode() + INTERRUPTION + b"\r\n")


def serve(scene: NatsScene) -> None:
    """Somebody listens on ``service.>``, and does not answer."""
    service = scene.direct_session.connect("service")
    service.send(Sub.make("service.>", 1))
    service.flush()


def requests(scene: NatsScene) -> list[str]:
    """The reply subjects of the requests so far, in order."""
    sent = [payload_of(seen) for seen in scene.sent_operations(Pub, HPub)]
    return [one.reply for one in sent if one.subject.startswith("service.") and one.reply]
