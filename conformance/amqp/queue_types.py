"""Which type a queue has on the target that is declared without x-queue-type.

RabbitMQ can be configured to make quorum queues of them (``default_queue_type``). They differ from classic
queues in what the requirements are about, so a run declares classic queues there, and says so on the wire. A
run with ``--queue-type`` declares what that says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plumbline.conformance.amqp.connection import CLASSIC, QUEUE_TYPE, QUORUM
from plumbline.conformance.amqp.stage import AmqpStage
from plumbline.conformance.outcomes import CheckEnded, Unsupported
from plumbline.conformance.runner.run_lock import file_lock
from plumbline.wire.amqp import Method

if TYPE_CHECKING:
    from plumbline.conformance.amqp.session import AmqpSession

PRODUCT = "RabbitMQ"  # which can be configured so
ANSWER_FILE = "queue-type"  # in the folder that all processes of a run share
# Of targets that this process has asked, by their URL and the type that the run asks for.
_known: dict[tuple[str, str], str] = {}


def type_to_declare(session: AmqpSession) -> str:
    """The type that the run asks for; else ``classic`` where another type is the default; empty where nothing
    need be written.

    Asked once in a run. A target that does not answer is asked no further. Raises ``Unsupported`` if the
    target refuses queues of the type that the run asks for.
    """
    if wanted := session.target.dimensions.queue_type:
        if refusal := _once(session, lambda: _refusal(session, wanted)):
            raise Unsupported(f"with --queue-type {wanted}: the target refuses such queues: {refusal}")
        return wanted
    if PRODUCT not in session.target.target.features:
        return ""
    return _once(session, lambda: _classic_if_not_default(session))


def _once(session: AmqpSession, ask: Callable[[], str]) -> str:
    key = (str(session.url(None)), session.target.dimensions.queue_type)
    if key not in _known:
        _known[key] = _asked_in_the_run(session, ask)
    return _known[key]


def _asked_in_the_run(session: AmqpSession, ask: Callable[[], str]) -> str:
    if session.target.shared is None:
        return ask()
    file = session.target.shared / ANSWER_FILE
    with file_lock(file.with_suffix(".lock"), exclusive=True):
        if not file.exists():
            file.write_text(ask(), "utf-8")
        return file.read_text("utf-8")


def _refusal(session: AmqpSession, queue_type: str) -> str:
    """Why a queue of this type cannot be declared; empty if it can, or that is not known."""
    for answer in _declared(session, queue_type):
        if answer.method == "channel.close":
            return str(answer.arguments["reply_text"])
    return ""


def _classic_if_not_default(session: AmqpSession) -> str:
    """A quorum queue can be declared again without a type only where that is the default."""
    answers = _declared(session, QUORUM, "")
    return CLASSIC if len(answers) > 1 and answers[1].method == "queue.declare-ok" else ""


def _declared(session: AmqpSession, *queue_types: str) -> list[Method]:
    """The answers to declarations of one queue with these types, none being written for an empty one, up to
    the first refusal; none if the target does not answer."""
    name = session.name("TYPE")
    answers: list[Method] = []
    session.journal.paused, moment = True, session.moment
    try:
        stage = AmqpStage(session, session.connect("types", declares_types=False))
        for queue_type in queue_types:
            table = {QUEUE_TYPE: queue_type} if queue_type else {}
            answers.append(stage.answer("queue.declare", queue=name, durable=True, arguments=table))
            if answers[-1].method != "queue.declare-ok":
                break
        if answers[0].method == "queue.declare-ok":
            stage.delete("queue", name)
    except CheckEnded:
        return []
    finally:
        session.journal.paused, session.moment = False, moment
    return answers
