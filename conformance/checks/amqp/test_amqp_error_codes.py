"""AMQP: the codes and names of errors, whatever provokes them."""

from __future__ import annotations

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.outcomes import Untestable
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.wire.amqp import FrameType, Method, Operation, Raw, frame, header_payload

CODES = "AMQP 0-9-1, section 1.2"
NAMES = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
ANSWER_S = 1.0
_PUBLISH = Method.make("basic.publish", 1, routing_key="nowhere")
_UNREADABLE = frame(FrameType.HEADER, 1, header_payload(b"\x80\x00\xff", 0))
MISTAKES: dict[str, Operation] = {
    "missing": Method.make("queue.declare", 1, queue="amq.no-such-queue", passive=True),
    "reserved": Method.make("queue.declare", 1, queue="amq.reserved"),
    "unknown": Method.make("basic.ack", 1, delivery_tag=7),
    "malformed": Raw.make(b"\x09\x00\x00\x00\x00\x00\x00\xce"),
    "unfinished": Raw.make(Method.make("basic.qos", 1).raw[:-1] + b"\x00"),
    "unexpected": Raw.make(frame(FrameType.BODY, 1, b"m1"), 1),
    "unreadable": Raw.make(_PUBLISH.raw[: _PUBLISH.head] + _UNREADABLE, 1),
    "misplaced": Method.make("basic.qos", 0, prefetch_count=1),
}


def _closes(session: AmqpSession) -> list[Method]:
    """channel.close or connection.close for each mistake; what is no close is not judged here.

    Raises ``Untestable`` if the server closes nothing.
    """
    unknown = Method.make("exchange.declare", 1, exchange=session.name("EVENTS"), type="x-no-such-type")
    connections = []
    for name, mistake in {**MISTAKES, "unknown-type": unknown}.items():
        connection = session.connect(name)
        connection.call("basic.qos", 1)
        connection.send(mistake)
        connections.append(connection)
    closes = [close for connection in connections if (close := _close(connection)) is not None]
    if not closes:
        raise Untestable("the server answers no mistake of this check with a close")
    return closes


def _close(connection: AmqpConnection) -> Method | None:
    try:
        answer = connection.take(ANSWER_S)
    except ConnectionClosed:
        return None
    is_close = isinstance(answer, Method) and answer.method in ("channel.close", "connection.close")
    return answer if is_close else None


@verifies("AMQP-ERRORS-019", source=CODES)
def test_codes_are_those_of_amqp(session: AmqpSession) -> None:
    """Each close has a code that AMQP 0-9-1 has."""
    for close in _closes(session):
        session.require(
            close.arguments["reply_code"] in NAMES,
            "AMQP 0-9-1 has no such code",
            expected=", ".join(map(str, NAMES)),
            actual=str(close),
        )


@verifies("AMQP-ERRORS-015", source="observed, RabbitMQ 3.10.8")
def test_texts_begin_with_the_name_of_the_code(session: AmqpSession) -> None:
    """Each close has the name of its code at the beginning of its text."""
    for close in _closes(session):
        text, name = close.arguments["reply_text"], NAMES.get(close.arguments["reply_code"], "a known code")
        text = text.decode() if isinstance(text, bytes) else text
        session.require(
            text.startswith(name),
            "the text names another error",
            expected=f"{name} and more",
            actual=str(close),
        )
