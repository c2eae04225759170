"""AMQP: frames, their sizes and ends; heartbeats; methods that cannot be read."""

from __future__ import annotations

import struct
import time

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import FRAME_MAX, expect_refusal
from plumbline.conformance.checks.amqp.amqp_opening import expect_end
from plumbline.conformance.outcomes import Failed
from plumbline.wire.amqp import FRAME_OVERHEAD, FrameType, Heartbeat, Method, Raw, frame

FRAMES = "AMQP 0-9-1, section 4.2.3"
HEARTBEATS = "AMQP 0-9-1, section 4.2.7"
HEARTBEAT_S = 1
GIVEN_UP_WITHIN_S = 12.0  # no document has a limit, and a busy server looks late


@verifies("AMQP-CONN-026", source=FRAMES)
def test_wrong_frame_end(session: AmqpSession) -> None:
    """A frame whose last octet is not 0xCE is connection error 501."""
    raw = Method.make("channel.open", 1).raw
    expect_refusal(session, session.connect(channels="manual"), Raw.make(raw[:-1] + b"\0"), 501)


@verifies("AMQP-CONN-027", source=FRAMES)
def test_unknown_frame_type(session: AmqpSession) -> None:
    """Frames of type 0 and 9, which do not exist, are connection error 501."""
    for kind in (0, 9):
        connection = session.connect(f"type{kind}")
        expect_refusal(session, connection, Raw.make(struct.pack(">BHI", kind, 0, 4) + b"abcd\xce"), 501)


@verifies("AMQP-CONN-028", source=FRAMES)
def test_frame_larger_than_frame_max(session: AmqpSession) -> None:
    """A frame whose payload alone is larger than frame_max ends the connection, with 501."""
    connection = session.connect(frame_max=FRAME_MAX)
    connection.send(Raw.make(frame(FrameType.BODY, 1, bytes(FRAME_MAX + 1))))
    expect_end(session, connection, "a frame larger than frame_max", 501, 505)


@verifies("AMQP-CONN-029", source=FRAMES)
def test_frame_as_large_as_frame_max(session: AmqpSession) -> None:
    """A frame of exactly frame_max octets is accepted."""
    queue = session.stage.queue("ORDERS")
    connection = session.connect(frame_max=FRAME_MAX)
    body = b"x" * (FRAME_MAX - FRAME_OVERHEAD)
    connection.call("confirm.select", 1)
    message = Method.make("basic.publish", 1, routing_key=queue, body=body, max_frame=FRAME_MAX)
    largest = max(len(payload) for _, payload in message.frames()) + FRAME_OVERHEAD
    session.require(
        largest == FRAME_MAX, "the frame is another", expected=str(FRAME_MAX), actual=str(largest)
    )
    connection.send(message)
    connection.expect("basic.ack", delivery_tag=1)


@verifies("AMQP-CONN-030", source=FRAMES)
def test_deliveries_keep_to_frame_max(session: AmqpSession) -> None:
    """A body of 20000 octets comes in frames of at most the negotiated 8192 octets."""
    queue = session.stage.queue("ORDERS")
    session.stage.publish(queue, b"y" * 20_000)
    connection = session.connect(frame_max=FRAME_MAX)
    connection.send(Method.make("basic.consume", 1, queue=queue, consumer_tag="c", no_ack=True))
    connection.expect("basic.consume-ok")
    message = connection.expect("basic.deliver", body=b"y" * 20_000)
    largest = max(len(payload) for _, payload in message.frames()) + FRAME_OVERHEAD
    session.require(
        largest <= FRAME_MAX, "a frame is too large", expected=f"{FRAME_MAX} at most", actual=str(largest)
    )


@verifies("AMQP-CONN-031", source="observed, RabbitMQ 3.10.8")
def test_lying_frame_size_is_refused_at_once(session: AmqpSession) -> None:
    """A frame that announces 2 GB is refused before they arrive."""
    connection = session.connect()
    connection.send(Raw.make(struct.pack(">BHI", FrameType.METHOD, 1, 0x7FFFFFFF)))
    expect_end(session, connection, "a frame that announces 2 GB", 501, within=5.0)


@verifies("AMQP-CONN-032", "AMQP-CONN-033", source=HEARTBEATS)
def test_heartbeats_come(session: AmqpSession) -> None:
    """With heartbeat 1 a heartbeat of eight octets, type 8 on channel 0, comes at least every second."""
    connection = session.connect(heartbeat=HEARTBEAT_S, channels="manual")
    for _ in range(2):
        arrival = connection.arrival(HEARTBEAT_S, "a heartbeat", skip=())
        if arrival.operation.raw != b"\x08\0\0\0\0\0\0\xce":
            connection.mark_offending(arrival.operation)
            raise Failed("something else came", expected="heartbeat", actual=str(arrival.operation))
        session.count_observation()
        connection.send(Heartbeat.make())


@verifies("AMQP-CONN-034", source=HEARTBEATS, is_long=True)
def test_silent_client_is_given_up(session: AmqpSession) -> None:
    """With heartbeat 1 a client that says nothing is disconnected, not before two seconds have passed."""
    connection = session.connect(heartbeat=HEARTBEAT_S, channels="manual")
    began = time.monotonic()
    expect_end(session, connection, "silence", 320, 501, 541, within=GIVEN_UP_WITHIN_S)
    lasted = time.monotonic() - began
    session.require(
        lasted >= 1.5 * HEARTBEAT_S,
        "the client was given up too early",
        expected="not before two intervals",
        actual=f"{lasted:.1f} s",
    )


@verifies("AMQP-CONN-035", source=HEARTBEATS, is_long=True)
def test_any_traffic_is_a_sign_of_life(session: AmqpSession) -> None:
    """With heartbeat 1 a client that sends methods, and no heartbeat, stays connected for four seconds."""
    connection = session.connect(heartbeat=HEARTBEAT_S)
    until = time.monotonic() + 4 * HEARTBEAT_S
    while time.monotonic() < until:
        connection.call("basic.qos", 1, prefetch_count=1)
        connection.expect_silence(for_s=HEARTBEAT_S / 2)


@verifies("AMQP-CONN-036", source=HEARTBEATS)
def test_heartbeat_on_another_channel(session: AmqpSession) -> None:
    """A heartbeat on channel 1 is connection error 505 or 501."""
    connection = session.connect()
    connection.call("basic.qos", 1)
    expect_refusal(session, connection, Raw.make(frame(FrameType.HEARTBEAT, 1, b"")), 505, 501, 503)


@verifies("AMQP-CONN-037", source=HEARTBEATS)
def test_heartbeat_with_a_payload(session: AmqpSession) -> None:
    """A heartbeat with a payload is a connection error."""
    expect_refusal(session, session.connect(), Raw.make(frame(FrameType.HEARTBEAT, 0, b"xx")))


@verifies("AMQP-CONN-038", source=FRAMES)
def test_arguments_that_are_cut_short(session: AmqpSession) -> None:
    """A method whose arguments end too early is connection error 501 or 502."""
    connection = session.connect()
    connection.call("basic.qos", 1)
    data = frame(FrameType.METHOD, 1, struct.pack(">HH", 50, 10) + b"\0\0")
    expect_refusal(session, connection, Raw.make(data), 501, 502)


@verifies("AMQP-CONN-039", source="observed, RabbitMQ 3.10.8")
def test_bytes_after_the_last_argument(session: AmqpSession) -> None:
    """Octets after a method's last argument are a connection error."""
    connection = session.connect()
    connection.call("basic.qos", 1)
    payload = Method.make("basic.qos", 1, prefetch_count=1).raw[7:-1] + b"extra"
    expect_refusal(session, connection, Raw.make(frame(FrameType.METHOD, 1, payload)))


@verifies("AMQP-CONN-040", source="AMQP 0-9-1, section 1.2, command-invalid")
def test_unknown_methods_end_the_connection(session: AmqpSession) -> None:
    """A class and a method that do not exist end the connection."""
    for class_id, method_id in ((99, 10), (60, 999)):
        connection = session.connect(f"method{method_id}")
        connection.call("basic.qos", 1)
        connection.send(Raw.make(frame(FrameType.METHOD, 1, struct.pack(">HH", class_id, method_id))))
        expect_end(session, connection, f"method {class_id}.{method_id}")


@verifies("AMQP-CONN-041", source="AMQP 0-9-1, section 4.2.5.5")
def test_table_that_lies(session: AmqpSession) -> None:
    """A table value of an unknown type, and a table longer than its method, end the connection."""
    declare = struct.pack(">HHH", 50, 10, 0) + b"\x01q\x00"
    for name, table in (
        ("type", struct.pack(">I", 3) + b"\x01aQ"),
        ("length", struct.pack(">I", 4000) + b"\x01a"),
    ):
        connection = session.connect(name)
        connection.call("basic.qos", 1)
        connection.send(Raw.make(frame(FrameType.METHOD, 1, declare + table)))
        expect_end(session, connection, f"a table with a wrong {name}")


@verifies("AMQP-CONN-042", source='RabbitMQ, "AMQP 0-9-1 Errata"; observed, RabbitMQ 3.10.8')
def test_name_that_is_no_utf_8(session: AmqpSession) -> None:
    """A queue name that is not UTF-8 is refused."""
    connection = session.connect()
    connection.call("basic.qos", 1)
    payload = struct.pack(">HHH", 50, 10, 0) + b"\x02\xff\xfe\x08" + struct.pack(">I", 0)
    connection.send(Raw.make(frame(FrameType.METHOD, 1, payload)))
    expect_end(session, connection, "a name that is no UTF-8")
