"""What exploration does to a broker: commands, as data. Pure.

A command names streams and consumers that may not be there, and deliveries by how long ago they came:
every list of commands means something, so that a list can be cut down without repairing it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

STREAMS = ("ORDERS", "EVENTS")
CONSUMERS = ("DISPATCH", "AUDIT")
TOKENS = ("a", "b")  # the subjects of a stream ORDERS are ORDERS.a and ORDERS.b


class CreateStream(Struct, frozen=True):
    """STREAM.CREATE or STREAM.UPDATE with these settings, beside name, subjects and memory storage."""

    stream: str
    settings: dict[str, Any] = {}
    update: bool = False


class DeleteStream(Struct, frozen=True):
    """STREAM.DELETE"""

    stream: str


class CreateConsumer(Struct, frozen=True):
    """CONSUMER.DURABLE.CREATE, which updates one that is there.

    A push consumer has in ``deliver`` which of its inboxes it delivers to; a pull consumer has nothing there.
    """

    stream: str
    consumer: str
    settings: dict[str, Any] = {}
    deliver: str = ""


class DeleteConsumer(Struct, frozen=True):
    """CONSUMER.DELETE"""

    stream: str
    consumer: str


class Publish(Struct, frozen=True):
    """A message with these headers; ``acknowledged``: with a reply subject for the PubAck."""

    stream: str
    token: str
    headers: tuple[tuple[str, str], ...] = ()
    acknowledged: bool = True


class Pull(Struct, frozen=True):
    """CONSUMER.MSG.NEXT with this body, to one of the consumer's inboxes."""

    stream: str
    consumer: str
    body: dict[str, Any] = {}
    inbox: str = "a"


class Listen(Struct, frozen=True):
    """A subscription to one of a consumer's inboxes."""

    stream: str
    consumer: str
    inbox: str = "a"


class Leave(Struct, frozen=True):
    """The end of that subscription, if a push consumer delivers there."""

    stream: str
    consumer: str
    inbox: str = "a"


class Acknowledge(Struct, frozen=True):
    """A payload to the acknowledgement subject of the delivery that came ``ago`` deliveries before the last.

    ``replied``: with a reply subject, which tells when the broker has done it.
    """

    ago: int
    payload: str
    replied: bool = True


class AcknowledgeAndPull(Struct, frozen=True):
    """``+NXT`` with this argument; what it asks for goes to the consumer's inbox."""

    ago: int
    argument: str = ""
    inbox: str = "a"


class Purge(Struct, frozen=True):
    """STREAM.PURGE; ``token``: of the messages on that subject alone."""

    stream: str
    body: dict[str, int] = {}
    token: str | None = None


class DeleteMessage(Struct, frozen=True):
    """STREAM.MSG.DELETE"""

    stream: str
    seq: int


class GetMessage(Struct, frozen=True):
    """STREAM.MSG.GET by sequence, of the last message on a subject, or of the next one there."""

    stream: str
    seq: int | None = None
    last: str | None = None
    next: str | None = None


class Describe(Struct, frozen=True):
    """STREAM.INFO, or CONSUMER.INFO if a consumer is named."""

    stream: str
    consumer: str | None = None


class Wait(Struct, frozen=True):
    """Let so many seconds pass."""

    seconds: float


class Restart(Struct, frozen=True):
    """The server ends in order and goes on with what it has stored; every connection is opened again."""


Command = (
    CreateStream
    | DeleteStream
    | CreateConsumer
    | DeleteConsumer
    | Publish
    | Pull
    | Listen
    | Leave
    | Acknowledge
    | AcknowledgeAndPull
    | Purge
    | DeleteMessage
    | GetMessage
    | Describe
    | Wait
    | Restart
)
