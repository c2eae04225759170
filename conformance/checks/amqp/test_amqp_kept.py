"""AMQP: what messages and queues are like after a restart, which ``test_amqp_durability`` shares."""

from __future__ import annotations

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_kept import (
    committed,
    leased_queues,
    mortal_messages,
    settled_together,
    several_copies,
    working_arguments,
)
from plumbline.conformance.checks.amqp.test_amqp_durability import (
    ACKNOWLEDGED,
    ENDINGS,
    GUARANTEED,
    PARTS,
    RESTARTS,
)
from plumbline.conformance.targets.shared_server import judge_part


@verifies("AMQP-DURABILITY-018", source=GUARANTEED, shares=RESTARTS)
def test_every_copy_outlives_the_broker_whole(session: AmqpSession) -> None:
    """After a restart each queue has its copy of a message, with all properties and where it came from."""
    judge_part(session, several_copies, PARTS, ENDINGS)


@verifies(
    "AMQP-DURABILITY-019", source='RabbitMQ, "Broker Semantics"; AMQP 0-9-1 XML, tx.commit', shares=RESTARTS
)
def test_what_was_committed_outlives_the_broker(session: AmqpSession) -> None:
    """After a restart what a transaction published is there, and what it acknowledged is not."""
    judge_part(session, committed, PARTS, ENDINGS)


@verifies("AMQP-DURABILITY-008", "AMQP-DURABILITY-015", source=ACKNOWLEDGED, shares=RESTARTS)
def test_what_was_settled_together_does_not_come_back(session: AmqpSession) -> None:
    """After a restart none of the messages is there that one ack or nack with multiple settled."""
    judge_part(session, settled_together, PARTS, ENDINGS)


@verifies("AMQP-DURABILITY-016", source='RabbitMQ, "Queues", "Optional Arguments"', shares=RESTARTS)
def test_arguments_hold_after_a_restart(session: AmqpSession) -> None:
    """After a restart queues dead-letter, expire, rank and have one active consumer, as declared."""
    judge_part(session, working_arguments, PARTS, ENDINGS)


@verifies("AMQP-DURABILITY-020", source='RabbitMQ, "Time-To-Live and Expiration"', shares=RESTARTS)
def test_messages_expire_after_a_restart(session: AmqpSession) -> None:
    """After a restart messages expire that were published with a time to live before."""
    judge_part(session, mortal_messages, PARTS, ENDINGS)


@verifies(
    "AMQP-DURABILITY-021", source='RabbitMQ, "Time-To-Live and Expiration", "Queue TTL"', shares=RESTARTS
)
def test_leases_begin_again_with_a_restart(session: AmqpSession) -> None:
    """After a restart queues with x-expires are there, and are deleted when their time is over."""
    judge_part(session, leased_queues, PARTS, ENDINGS)
