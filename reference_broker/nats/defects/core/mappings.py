"""Defects of subject mappings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.mappings import LOST
from plumbline.wire.nats import Pub

Find = Callable[[bytes], bytes | None]


def find_defect(*requirements: str) -> Callable[[Callable[[Find], Find]], Callable[[Find], Find]]:
    """Register a defect: the decorated function is given what finds the subject of a message, which is None
    where nothing is mapped, and gives another."""

    def register(change: Callable[[Find], Find]) -> Callable[[Find], Find]:
        def alter(broker: Broker) -> None:
            if broker.mappings is not None:
                replace(broker.mappings, "find", change(broker.mappings.find))

        alter.__doc__ = change.__doc__
        defect(*requirements, name=change.__name__.replace("_", "-"))(alter)
        return change

    return register


@find_defect("CORE-124")
def subjects_are_not_mapped(find: Find) -> Find:
    """Mappings of a single subject have no effect."""
    return lambda subject: None if subject.endswith(b".plain") else find(subject)


@find_defect("CORE-125")
def mapped_subject_is_mapped_again(find: Find) -> Find:
    """The destination of a mapping is mapped again."""

    def found(subject: bytes) -> bytes | None:
        first = find(subject)
        return first if first is None or first == LOST else find(first) or first

    return found


@find_defect("CORE-127")
def partitions_begin_at_one(find: Find) -> Find:
    """The number of a partition is one more."""

    def found(subject: bytes) -> bytes | None:
        mapped = find(subject)
        if mapped is None or b".neworders." not in subject:
            return mapped
        head, _, number = mapped.rpartition(b".")
        return b"%b.%d" % (head, int(number) + 1)

    return found


@defect("CORE-124")
def mapped_message_keeps_its_subject_as_well(broker: Broker) -> None:
    """A message whose subject is mapped is delivered on its own subject, too."""
    if broker.mappings is None:
        return
    mapped, find = broker.on_pub, broker.mappings.find

    def on_pub(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        mapped(connection, operation, now)
        if find(operation.args[0]) is not None:
            subject = operation.args[0]
            reply = operation.args[1] if len(operation.args) == 3 else None
            broker.deliver(subject, subject, reply, b"", operation.payload)

    vars(broker)["on_pub"] = on_pub


@defect("CORE-124")
def mapped_message_loses_its_reply_subject(broker: Broker) -> None:
    """A message whose subject is mapped has no reply subject."""
    if broker.mappings is None:
        return
    mapped, find = broker.on_pub, broker.mappings.find

    def on_pub(connection: NatsClientConnection, operation: Pub, now: int) -> None:
        if find(operation.args[0]) is not None:
            operation = Pub.make(operation.subject, operation.payload)
        mapped(connection, operation, now)

    vars(broker)["on_pub"] = on_pub


@defect("CORE-124")
def messages_with_headers_are_not_mapped(broker: Broker) -> None:
    """The subject of a message with headers is not mapped."""
    if broker.mappings is not None:
        vars(broker)["on_hpub"] = partial(type(broker).on_hpub, broker)
