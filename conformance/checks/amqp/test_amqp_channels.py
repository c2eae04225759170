"""AMQP: frames that stand where they must not, and what servers may answer in one of several ways."""

from __future__ import annotations

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import expect_one_of, expect_refusal
from plumbline.wire.amqp import FrameType, Heartbeat, Method, Raw, content_frames, frame, header_payload

CONTENT = "AMQP 0-9-1, section 4.2.6"
ERRORS = "AMQP 0-9-1, section 1.2"


def publish_method(queue: str, channel: int = 1) -> bytes:
    """The method frame of basic.publish to ``queue``, without a content."""
    whole = Method.make("basic.publish", channel, routing_key=queue)
    return whole.raw[: whole.head]


def opened(session: AmqpSession, channel: int = 1) -> AmqpConnection:
    """A connection with that channel open."""
    connection = session.connect()
    connection.call("basic.qos", channel, prefetch_count=0)
    return connection


@verifies("AMQP-CHAN-004", source="AMQP 0-9-1, section 4.2.3")
def test_channel_0_takes_no_methods_of_channels(session: AmqpSession) -> None:
    """basic.qos on channel 0 is connection error 504 or 503."""
    connection = session.connect(channels="manual")
    expect_refusal(session, connection, Method.make("basic.qos", 0, prefetch_count=1), 504, 503)


@verifies("AMQP-CHAN-005", source="AMQP 0-9-1, section 4.2.3")
def test_other_channels_take_no_methods_of_the_connection(session: AmqpSession) -> None:
    """connection.close on channel 1 is connection error 503 or 504."""
    connection = opened(session)
    expect_refusal(session, connection, Method.make("connection.close", 1, reply_code=200), 503, 504)


@verifies(
    "AMQP-CHAN-006", "AMQP-ERRORS-016", source="AMQP 0-9-1 XML, connection.tune-ok, parameter channel-max"
)
def test_no_more_channels_than_channel_max(session: AmqpSession) -> None:
    """With channel_max 3 the fourth channel is refused, and after one is closed another opens; with 1 there
    is one."""
    connection = session.connect(channels="manual", channel_max=3)
    for channel in (1, 2, 3):
        connection.send(Method.make("channel.open", channel))
        connection.expect("channel.open-ok", channel)
    connection.send(Method.make("channel.close", 2, reply_code=200))
    connection.expect("channel.close-ok", 2)
    connection.send(Method.make("channel.open", 2))
    connection.expect("channel.open-ok", 2)
    refused = (("connection.close", 530), ("connection.close", 504))
    answer = expect_one_of(session, connection, Method.make("channel.open", 4), *refused)
    arguments = answer.arguments if isinstance(answer, Method) else {}
    named = (arguments.get("class_id"), arguments.get("method_id"))
    session.require(
        named in ((0, 0), (20, 10)),
        "the close names another method",
        expected="class_id and method_id of channel.open (20, 10), or 0 and 0",
        actual=str(named),
    )
    alone = session.connect("alone", channels="manual", channel_max=1)
    alone.send(Method.make("channel.open", 1))
    alone.expect("channel.open-ok", 1)
    expect_one_of(session, alone, Method.make("channel.open", 2), *refused)


@verifies("AMQP-CHAN-007", source="AMQP 0-9-1, section 4.9")
def test_channel_number_above_channel_max(session: AmqpSession) -> None:
    """Channel 6 with channel_max 5 is refused, or opens while it is the only one."""
    connection = session.connect(channels="manual", channel_max=5)
    allowed = (("channel.open-ok", 0), ("connection.close", 530), ("connection.close", 504))
    expect_one_of(session, connection, Method.make("channel.open", 6), *allowed)


@verifies("AMQP-CHAN-030", source="AMQP 0-9-1 XML, channel.close-ok")
def test_nothing_comes_after_channel_close_ok(session: AmqpSession) -> None:
    """A channel is closed right behind what it publishes and consumes: what is on its way comes before
    close-ok, or never."""
    queue = session.stage.queue("ORDERS")
    connection = opened(session)
    connection.call("confirm.select", 1)
    connection.call("basic.qos", 2, prefetch_count=0)
    nowhere = session.name("NOWHERE")
    connection.send(
        Method.make("basic.consume", 1, queue=queue, no_ack=True),
        *(Method.make("basic.publish", 1, routing_key=queue, body=b"%d" % number) for number in range(10)),
        Method.make("basic.publish", 1, routing_key=nowhere, mandatory=True, body=b"lost"),
        Method.make("channel.close", 1, reply_code=200),
    )
    while connection.arrival(5.0, "channel.close-ok").operation.method != "channel.close-ok":
        pass  # what was on its way
    connection.send(Method.make("queue.declare", 2, queue=queue, passive=True))
    late = connection.arrival(5.0, "[2] queue.declare-ok").operation
    session.require(
        late.channel == 2,
        "something comes on a closed channel",
        expected="[2] queue.declare-ok, and nothing on channel 1",
        actual=str(late),
    )
    connection.expect_silence(for_s=0.2)


@verifies("AMQP-CHAN-018", source="AMQP 0-9-1 XML, channel.flow")
def test_flow_may_be_stopped(session: AmqpSession) -> None:
    """channel.flow with active false is refused with 540; or it is answered so, and pauses deliveries."""
    queue = session.stage.queue("ORDERS")
    session.stage.publish(queue, b"m1")
    connection = opened(session)
    allowed = (("channel.flow-ok", 0), ("connection.close", 540))
    answer = expect_one_of(session, connection, Method.make("channel.flow", 1, active=False), *allowed)
    if answer.method == "connection.close":
        return
    session.require(
        isinstance(answer, Method) and answer.arguments["active"] is False,
        "channel.flow-ok says that deliveries go on",
        expected="channel.flow-ok active=false, or connection.close 540",
        actual=str(answer),
    )
    connection.send(Method.make("basic.consume", 1, queue=queue, consumer_tag="c"))
    connection.expect("basic.consume-ok", 1)
    connection.expect_silence(for_s=0.3)
    connection.send(Method.make("channel.flow", 1, active=True))
    connection.expect("channel.flow-ok", 1, active=True)
    connection.expect("basic.deliver", 1, body=b"m1")


@verifies("AMQP-CHAN-019", source=CONTENT)
def test_contents_of_channels_interleave(session: AmqpSession) -> None:
    """A method on channel 2, and the frames of its message, stand between the frames of channel 1's."""
    queue = session.stage.queue("ORDERS")
    connection = opened(session)
    connection.call("confirm.select", 1)
    connection.call("confirm.select", 2)
    one, two = (content_frames(channel, b"\0\0", text) for channel, text in ((1, b"one"), (2, b"two")))
    first_header = one[: one.index(b"one") - 7]
    second_header = two[: two.index(b"two") - 7]
    connection.send_bytes(
        publish_method(queue, 1)
        + publish_method(queue, 2)
        + first_header
        + second_header
        + two[len(second_header) :]
        + one[len(first_header) :]
    )
    connection.expect("basic.ack", 2, delivery_tag=1)
    connection.expect("basic.ack", 1, delivery_tag=1)
    bodies = []
    for _ in range(2):
        connection.send(Method.make("basic.get", 3, queue=queue, no_ack=True))
        bodies.append(connection.expect("basic.get-ok", 3).body)
    # Which of the two channels comes first is not promised.
    session.require(
        sorted(bodies) == [b"one", b"two"],
        "the messages are mixed up",
        expected="one and two",
        actual=str(bodies),
    )


@verifies("AMQP-CHAN-019", source=CONTENT)
def test_heartbeats_within_a_content(session: AmqpSession) -> None:
    """Heartbeats, which are on channel 0, stand between the frames of a message."""
    queue = session.stage.queue("ORDERS")
    connection = opened(session)
    connection.call("confirm.select", 1)
    frames = content_frames(1, b"\0\0", b"one")
    header = frames[: frames.index(b"one") - 7]
    heartbeat = Heartbeat.make().raw
    connection.send_bytes(
        publish_method(queue, 1) + heartbeat + header + heartbeat + heartbeat + frames[len(header) :]
    )
    connection.expect("basic.ack", 1, delivery_tag=1)
    connection.send(Method.make("basic.get", 2, queue=queue, no_ack=True))
    connection.expect("basic.get-ok", 2, body=b"one", message_count=0)


@verifies("AMQP-CHAN-020", source=CONTENT)
def test_method_instead_of_a_content_header(session: AmqpSession) -> None:
    """A method between basic.publish and its content header is connection error 505."""
    connection = opened(session)
    data = publish_method("nowhere") + Method.make("basic.qos", 1, prefetch_count=1).raw
    expect_refusal(session, connection, Raw.make(data, 1), 505)


@verifies("AMQP-CHAN-020", source=CONTENT)
def test_method_instead_of_a_content_body(session: AmqpSession) -> None:
    """A method between a content header and its body is connection error 505."""
    connection = opened(session)
    whole = content_frames(1, b"\0\0", b"m1")
    header = whole[: whole.index(b"m1") - 7]
    data = publish_method("nowhere") + header + Method.make("basic.qos", 1, prefetch_count=1).raw
    expect_refusal(session, connection, Raw.make(data, 1), 505)


@verifies("AMQP-CHAN-021", source=CONTENT)
def test_content_header_without_a_method(session: AmqpSession) -> None:
    """A content header that no method announced is connection error 505."""
    header = frame(FrameType.HEADER, 1, header_payload(b"\0\0", 0))
    expect_refusal(session, opened(session), Raw.make(header, 1), 505)


@verifies("AMQP-CHAN-021", source=CONTENT)
def test_content_body_without_a_method(session: AmqpSession) -> None:
    """A content body that no method announced is connection error 505."""
    expect_refusal(session, opened(session), Raw.make(frame(FrameType.BODY, 1, b"m1"), 1), 505)


@verifies("AMQP-CHAN-022", source="AMQP 0-9-1, section 4.2.6.1")
def test_content_header_of_another_class(session: AmqpSession) -> None:
    """A content header of class 90 after basic.publish is connection error 505 or 501."""
    header = frame(FrameType.HEADER, 1, header_payload(b"\0\0", 0, class_id=90))
    expect_refusal(session, opened(session), Raw.make(publish_method("nowhere") + header, 1), 505, 501)


@verifies("AMQP-CHAN-023", source="AMQP 0-9-1, section 4.2.6.1")
def test_content_header_with_a_weight(session: AmqpSession) -> None:
    """A content header with weight 1 is a connection error."""
    header = frame(FrameType.HEADER, 1, header_payload(b"\0\0", 0, weight=1))
    expect_refusal(session, opened(session), Raw.make(publish_method("nowhere") + header, 1))


@verifies("AMQP-CHAN-024", source=CONTENT)
def test_body_longer_than_announced(session: AmqpSession) -> None:
    """A third byte of body, where two were announced and came, is connection error 505 or 501."""
    header = frame(FrameType.HEADER, 1, header_payload(b"\0\0", 2))
    body = frame(FrameType.BODY, 1, b"m1") + frame(FrameType.BODY, 1, b"1")
    data = publish_method("nowhere") + header + body
    expect_refusal(session, opened(session), Raw.make(data, 1), 505, 501)


@verifies("AMQP-CHAN-026", source="AMQP 0-9-1, section 4.2.6.2")
def test_empty_body_frames(session: AmqpSession) -> None:
    """An empty body frame in the middle of a body is skipped, or a connection error."""
    queue = session.stage.queue("ORDERS")
    connection = opened(session)
    connection.call("confirm.select", 1)
    header = frame(FrameType.HEADER, 1, header_payload(b"\0\0", 2))
    body = b"".join(frame(FrameType.BODY, 1, part) for part in (b"m", b"", b"1"))
    allowed = (("basic.ack", 0), ("connection.close", 505), ("connection.close", 501))
    expect_one_of(session, connection, Raw.make(publish_method(queue) + header + body, 1), *allowed)


@verifies("AMQP-CHAN-027", source=ERRORS)
def test_properties_that_cannot_be_read(session: AmqpSession) -> None:
    """A content header that ends before its properties do is a connection error."""
    header = frame(FrameType.HEADER, 1, header_payload(b"\x80\x00\xff", 0))
    expect_refusal(session, opened(session), Raw.make(publish_method("nowhere") + header, 1))


@verifies("AMQP-CHAN-028", source=f"{ERRORS}, command-invalid")
def test_deliveries_by_a_client(session: AmqpSession) -> None:
    """basic.deliver with a content, sent by a client, is a connection error."""
    expect_refusal(session, opened(session), Method.make("basic.deliver", 1, consumer_tag="c", body=b"m1"))
