"""Which type a queue has on the target that is declared without x-queue-type.

RabbitMQ can be configured to make quorum queues of them (``default_queue_type``). They differ from classic
queues in what the requirements are about, so a run declares classic queues there, and says so on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plumbline.conformance.amqp.connection import QUEUE_TYPE
from plumbline.conformance.amqp.stage import AmqpStage
from plumbline.conformance.outcomes import CheckEnded
from plumbline.conformance.runner.run_lock import file_lock

if TYPE_CHECKING:
    from plumbline.conformance.amqp.session import AmqpSession

CLASSIC, QUORUM = "classic", "quorum"
PRODUCT = "RabbitMQ"  # which can be configured so
ANSWER_FILE = "default-queue-type"  # in the folder that all processes of a run share
_known: dict[str, str] = {}  # of targets that this process has asked, by their URL


def type_to_declare(session: AmqpSession) -> str:
    """``classic`` where another type is the default; empty where nothing need be written.

    Asked once in a run. A target that does not answer is asked no further.
    """
    if PRODUCT not in session.target.target.features:
        return ""
    key = str(session.url(None))
    if key not in _known:
        _known[key] = _asked_once(session)
    return _known[key]


def _asked_once(session: AmqpSession) -> str:
    if session.target.shared is None:
        return _ask(session)
    file = session.target.shared / ANSWER_FILE
    with file_lock(file.with_suffix(".lock"), exclusive=True):
        if not file.exists():
            file.write_text(_ask(session), "utf-8")
        return file.read_text("utf-8")


def _ask(session: AmqpSession) -> str:
    """A quorum queue can be declared again without a type only where that is the default."""
    queue: dict[str, Any] = {"queue": session.name("TYPE"), "durable": True}
    session.journal.paused, moment = True, session.moment
    try:
        stage = AmqpStage(session, session.connect("types", declares_types=False))
        first = stage.answer("queue.declare", **queue, arguments={QUEUE_TYPE: QUORUM})
        if first.method != "queue.declare-ok":
            return ""
        again = stage.answer("queue.declare", **queue)
        stage.delete("queue", queue["queue"])
    except CheckEnded:
        return ""
    finally:
        session.journal.paused, session.moment = False, moment
    return CLASSIC if again.method == "queue.declare-ok" else ""
