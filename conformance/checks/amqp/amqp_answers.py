"""Answers that AMQP servers may choose, judged alike by all checks."""

from __future__ import annotations

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.outcomes import Failed
from plumbline.wire.amqp import Method, Operation

FRAME_MAX = 8192  # a frame_max that every broker takes: RabbitMQ 4.3 refuses a smaller one


def expect_one_of(
    session: AmqpSession, connection: AmqpConnection, request: Operation, *allowed: tuple[str, int]
) -> Operation:
    """``request`` is answered with one of ``allowed``: a method, and its reply_code, or 0 for an ``-ok``."""
    wanted = " or ".join(f"{method} {code or ''}".strip() for method, code in allowed)

    def judge(operation: Operation) -> None:
        if (operation.method, reply_code(operation)) not in allowed:
            connection.mark_offending(operation)
            raise Failed(f"{request.method} is answered otherwise", expected=wanted, actual=str(operation))

    connection.send(request)
    arrival = connection.arrival(1.0, wanted, stream=request.channel, judge=judge)
    session.count_observation()
    answer: Operation = arrival.operation
    return answer


def expect_refusal(
    session: AmqpSession, connection: AmqpConnection, request: Operation, *codes: int
) -> Operation:
    """``request`` is answered with connection.close and one of ``codes``; without them, any code but 200."""
    wanted = f"[0] connection.close reply_code={' or '.join(map(str, codes)) or 'of an error'}"

    def judge(operation: Operation) -> None:
        code = reply_code(operation)
        refused = operation.method == "connection.close" and operation.channel == 0
        if not refused or (code not in codes if codes else code == 200):
            connection.mark_offending(operation)
            raise Failed(f"{request.method} is not refused so", expected=wanted, actual=str(operation))

    connection.send(request)
    arrival = connection.arrival(1.0, wanted, stream=0, judge=judge)
    session.count_observation()
    answer: Operation = arrival.operation
    return answer


def reply_code(operation: Operation) -> int:
    """The reply_code of a close, else 0."""
    return operation.arguments.get("reply_code", 0) if isinstance(operation, Method) else 0
