"""Publishing into a stream: JetStream model deep dive, "Message Deduplication", "Acknowledgement Models"."""

from __future__ import annotations

from plumbline.conformance.clients.nats.scene import STREAM, SUBJECT, NatsScene, payload_of
from plumbline.conformance.clients.scenario import scenario
from plumbline.wire.nats import HPub, Pub


@scenario("CLIENT-PUB-001", needs=["js.publish"])
def the_pub_ack_is_told_as_it_came(scene: NatsScene) -> None:
    """A publish is done once the PubAck came; stream, sequence and duplicate are those in it."""
    _stream(scene)
    scene.publish("before")
    found = []
    for _ in range(2):
        ok = scene.run_command("js.publish", subject=SUBJECT, data="m1", msg_id="id-1", timeout_ms=2000).ok
        assert ok is not None
        found.append((ok.stream, ok.seq, bool(ok.duplicate)))
    expected = [(STREAM, 2, False), (STREAM, 2, True)]
    scene.require(found == expected, "another PubAck", expected=str(expected), actual=str(found))


@scenario("CLIENT-PUB-002", needs=["js.publish"])
def the_message_id_is_a_header(scene: NatsScene) -> None:
    """A message id is sent as the header Nats-Msg-Id, beside the user's own headers."""
    _stream(scene)
    scene.try_command(
        "js.publish", subject=SUBJECT, data="m1", msg_id="id-1", headers={"Kind": "x"}, timeout_ms=2000
    )
    sent = [
        payload_of(seen) for seen in scene.sent_operations(Pub, HPub) if payload_of(seen).subject == SUBJECT
    ]
    found = [
        (one.headers.get("Nats-Msg-Id"), one.headers.get("Kind")) if one.headers else None for one in sent
    ]
    scene.require(
        found == [("id-1", "x")],
        "other headers",
        expected="Nats-Msg-Id: id-1, Kind: x",
        actual="; ".join(map(str, sent)),
    )


@scenario("CLIENT-PUB-003", needs=["js.publish"])
def a_refused_publish_is_an_error(scene: NatsScene) -> None:
    """A PubAck with an error is an error for the user."""
    _stream(scene, max_msgs=1, discard="new")
    scene.run_command("js.publish", subject=SUBJECT, data="m1", timeout_ms=2000)
    answer = scene.try_command("js.publish", subject=SUBJECT, data="m2", timeout_ms=2000)
    scene.require(
        answer.error, "a refused message is reported as stored", expected="an error", actual=answer.ok
    )


@scenario("CLIENT-PUB-004", needs=["js.publish"])
def a_publish_that_no_stream_takes_is_an_error(scene: NatsScene) -> None:
    """503 for a subject of no stream is an error for the user."""
    scene.connect()
    answer = scene.try_command("js.publish", subject="no.stream", data="m1", timeout_ms=1500)
    scene.require(
        answer.error,
        "a publish that was not stored is reported as stored",
        expected="an error",
        actual=answer.ok,
    )


@scenario("CLIENT-PUB-005", needs=["js.publish"])
def a_lost_pub_ack_is_an_error(scene: NatsScene) -> None:
    """A publish whose PubAck is lost is not reported as stored."""
    _stream(scene)
    scene.broker.set_faults("drop MSG on downstream", "drop HMSG on downstream")
    answer = scene.try_command("js.publish", subject=SUBJECT, data="m1", timeout_ms=600)
    scene.require(
        answer.error, "reported as stored, and no server sent that", expected="an error", actual=answer.ok
    )


@scenario("CLIENT-PUB-006", needs=["request"])
def a_request_that_nobody_answers_is_an_error(scene: NatsScene) -> None:
    """503 to a request is an error for the user, and no message."""
    scene.connect()
    answer = scene.try_command("request", subject="unused.subject", data="x", timeout_ms=1500)
    message = answer.ok.message if answer.ok is not None else None
    scene.require(
        answer.error and message is None, "a status was handed over", expected="an error", actual=message
    )


def _stream(scene: NatsScene, **config: object) -> None:
    scene.stage.stream(STREAM, ["orders.>"], **config)
    scene.connect()


@scenario("CLIENT-PUB-007", needs=["js.publish"])
def a_publish_is_tried_again(scene: NatsScene) -> None:
    """503 answers a publish, then there is a stream: the next attempt stores the message."""
    scene.connect()

    def create() -> None:
        scene.stage.stream(STREAM, ["orders.>"])

    with scene.act_during(lambda: scene.statuses(503), create):
        answer = scene.try_command("js.publish", subject=SUBJECT, data="one", timeout_ms=3000)
    scene.require(
        answer.error is None and answer.ok is not None and answer.ok.seq == 1,
        "a publish that was answered with 503 is not tried again",
        expected="another attempt, and a PubAck",
        actual=answer.error or answer.ok,
    )
