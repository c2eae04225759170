"""Acknowledging: JetStream model deep dive, "Acknowledgement Models" and "Exactly Once Semantics"."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.clients.nats.scene import NatsScene, payload_of
from plumbline.conformance.clients.protocol import AdapterMessage
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import HMsg, Msg
from plumbline.wire.nats.jetstream import Ack, AckKind


@scenario("CLIENT-ACK-001", needs=["fetch", "ack"])
def an_ack_is_empty_or_says_so(scene: NatsScene) -> None:
    """An acknowledgement is nothing or +ACK, on the delivery's reply subject."""
    _acks(scene, AckKind.ACK)


@scenario("CLIENT-ACK-002", needs=["fetch", "ack.nak"])
def a_nak_says_nak(scene: NatsScene) -> None:
    """A negative acknowledgement is -NAK."""
    _acks(scene, AckKind.NAK, kind="nak")


@scenario("CLIENT-ACK-003", needs=["fetch", "ack.nak.delay"])
def a_nak_with_delay_says_how_long(scene: NatsScene) -> None:
    """A negative acknowledgement with a delay says it in nanoseconds."""
    ack = _acks(scene, AckKind.NAK, kind="nak", delay_ms=1500)
    scene.require(
        ack.delay == 1_500_000_000, "another delay", expected="1500000000", actual=f"{ack.encode()!r}"
    )


@scenario("CLIENT-ACK-004", needs=["fetch", "ack", "ack.progress"])
def progress_may_be_told_again_and_again(scene: NatsScene) -> None:
    """Work in progress is +WPI, as often as wanted, and an acknowledgement may follow."""
    (message,) = _delivered(scene)
    for kind in ("progress", "progress", "ack"):
        scene.run_command("ack", ref=message.ref, kind=kind)
    scene.run_command("flush")
    kinds = [ack.kind.value for _, ack in scene.acks()]
    scene.require(
        kinds == ["+WPI", "+WPI", "+ACK"], "something else", expected="+WPI, +WPI, +ACK", actual=kinds
    )


@scenario("CLIENT-ACK-005", needs=["fetch", "ack.term"])
def a_term_says_term(scene: NatsScene) -> None:
    """To end redelivery is +TERM."""
    _acks(scene, AckKind.TERM, kind="term")


@scenario("CLIENT-ACK-006", needs=["fetch", "ack.term.reason"])
def a_term_says_why(scene: NatsScene) -> None:
    """The reason for +TERM follows it."""
    ack = _acks(scene, AckKind.TERM, kind="term", reason="cannot be read")
    scene.require(
        ack.reason == "cannot be read", "another reason", expected="cannot be read", actual=ack.reason
    )


@scenario("CLIENT-ACK-007", needs=["fetch", "ack.next"])
def next_asks_for_one(scene: NatsScene) -> None:
    """An acknowledgement that asks for the next message is +NXT, and has a reply subject."""
    ack = _acks(scene, AckKind.NEXT, kind="next")
    request = ack.next_request
    (seen, _) = scene.acks()[-1]
    scene.require(
        request is not None and request.batch == 1 and payload_of(seen).reply,
        "no request for one message",
        expected="+NXT with a reply subject",
        actual=seen.operation,
        at=seen,
    )


@scenario("CLIENT-ACK-008", needs=["fetch", "ack.next.batch"])
def next_asks_for_several(scene: NatsScene) -> None:
    """+NXT for several messages says how many, as a number or as a pull request."""
    ack = _acks(scene, AckKind.NEXT, kind="next", batch=3)
    request = ack.next_request
    batch = request.batch if request is not None else None
    scene.require(batch == 3, "another number", expected='+NXT 3, or +NXT {"batch":3}', actual=ack.encode())


@scenario("CLIENT-ACK-009", needs=["fetch", "ack.sync"])
def a_double_ack_waits_for_its_reply(scene: NatsScene) -> None:
    """A double ack has a reply subject, and is done when its reply has come, not before."""
    (message,) = _delivered(scene)
    scene.broker.set_faults("delay 500ms MSG on downstream", "delay 500ms HMSG on downstream")
    scene.run_command("ack.sync", ref=message.ref, timeout_ms=3000)
    answered_at = scene.client.spoken[-1].at
    scene.await_wire(scene.acks)
    ((seen, _),) = scene.acks()
    reply = payload_of(seen).reply
    scene.require(
        reply, "no reply subject: the server does not confirm", expected="a reply subject",
        actual=seen.operation, at=seen,
    )  # fmt: skip
    scene.await_wire(
        lambda: any(payload_of(one).subject == reply for one in scene.received_operations(Msg, HMsg))
    )
    came = [one.at for one in scene.received_operations(Msg, HMsg) if payload_of(one).subject == reply]
    scene.require(
        came and came[0] <= answered_at,
        "the double ack was done before its reply came",
        expected="done once the server has confirmed",
        actual=f"done {(came[0] - answered_at) / 1e6:.0f} ms before" if came else "done without a reply",
    )


@scenario("CLIENT-ACK-010", needs=["fetch", "ack"])
def a_message_is_acknowledged_once(scene: NatsScene) -> None:
    """A second acknowledgement by the user is refused or ignored: nothing more is sent."""
    (message,) = _delivered(scene)
    scene.run_command("ack", ref=message.ref)
    scene.try_command("ack", ref=message.ref)
    scene.run_command("flush")
    sent = [str(seen.operation) for seen, _ in scene.acks()]
    scene.require(
        len(sent) == 1, "acknowledged twice", expected="one acknowledgement", actual="\n".join(sent) or "none"
    )


@scenario("CLIENT-ACK-011", needs=["fetch", "ack.sync"])
def a_lost_confirmation_is_an_error(scene: NatsScene) -> None:
    """A double ack whose reply is lost is not reported as done."""
    (message,) = _delivered(scene)
    scene.broker.set_faults("drop MSG on downstream", "drop HMSG on downstream")
    answer = scene.try_command("ack.sync", ref=message.ref, timeout_ms=600)
    scene.require(answer.error, "reported as done", expected="an error: no reply", actual="ok")


@scenario("CLIENT-ACK-012", needs=["fetch", "ack"])
def an_ack_that_cannot_be_sent_is_an_error(scene: NatsScene) -> None:
    """An acknowledgement after the connection was lost for good is not reported as done."""
    (message,) = _delivered(scene)
    scene.broker.reset_connections()
    scene.await_events(lambda: scene.events_named("closed"))  # what is only disconnected may still come back
    answer = scene.try_command("ack", ref=message.ref, within=5.0)
    scene.require(
        answer.error,
        "an acknowledgement that the server did not receive is reported as done",
        expected="an error",
        actual="ok",
    )


@scenario("CLIENT-ACK-013", needs=["fetch", "ack"])
def what_is_delivered_again_is_acknowledged_as_such(scene: NatsScene) -> None:
    """After a cut between delivery and ack the message comes again, and the ack is for that delivery."""
    scene.orders("m1", ack_wait=500_000_000)
    scene.take("m1")
    scene.broker.reset_connections()
    scene.connect()
    (again,) = scene.take("m1", expires_ms=4000)
    scene.run_command("ack", ref=again.ref)
    scene.run_command("flush")
    (seen, _) = scene.acks()[-1]
    wanted = scene.deliveries()[-1]
    scene.require(
        payload_of(seen).subject == payload_of(wanted).reply and scene.deliveries().index(wanted) > 0,
        "the acknowledgement is for another delivery",
        expected=payload_of(wanted).reply or "",
        actual=payload_of(seen).subject,
        at=seen,
    )


def _delivered(scene: NatsScene) -> list[AdapterMessage]:
    scene.orders("m1")
    return scene.take("m1")


def _acks(scene: NatsScene, wanted: AckKind, **fields: Any) -> Ack:
    """Acknowledge one delivery so; what was sent for it."""
    (message,) = _delivered(scene)
    scene.run_command("ack", ref=message.ref, **fields)
    scene.await_wire(scene.acks)
    scene.run_command("flush")
    sent = scene.acks()
    scene.require(
        len(sent) == 1, "not one acknowledgement", expected="one", actual=[str(s.operation) for s, _ in sent]
    )
    ((seen, ack),) = sent
    (delivery,) = scene.deliveries()
    right = ack.kind is wanted and payload_of(seen).subject == payload_of(delivery).reply
    scene.require(
        right,
        "another acknowledgement",
        expected=f"{wanted.value} on {payload_of(delivery).reply}",
        actual=seen.operation,
        at=seen,
    )
    return ack
