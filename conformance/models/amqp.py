"""Traces of the model of a queue, as the text of our traces. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.conformance.models.model import Model

REQUIREMENT = "AMQP-ACK-001"  # nearest to all that the model says
QUEUE = "ORDERS"
PUBLISHING, CONSUMING = 4, 3  # channels
NEVER_DELIVERED = 1000  # a delivery tag


class Delivery(Struct):
    """One message, as it is delivered."""

    tag: int
    id: int
    redelivered: bool


class Command(Struct):
    """What the client does in a step."""

    name: str
    channel: int
    tag: int
    multiple: bool
    requeue: bool
    number: int


class Answer(Struct):
    """What the server answers and delivers in a step."""

    kind: str
    got: list[Delivery]
    deliveries: list[Delivery]


class Message(Struct):
    """A message in the queue."""

    id: int


class Inside(Struct):
    """Of the model's own state: what a trace needs besides its outputs."""

    ready: list[Message]
    prefetch: int


class Step(Struct):
    """A state of the model."""

    state: Inside
    command: Command
    answer: Answer


class _Writer:
    def __init__(self) -> None:
        self._opened: dict[int, int] = {}  # by channel: how often it was opened again
        self._delivered: set[str] = set()  # captures
        self._consumers = 0

    def lines(self, step: Step) -> Iterator[str]:
        """Of one step, which comes after those that were written."""
        yield from self._sent(step)
        for one in step.answer.deliveries:
            yield f"< [{CONSUMING}] basic.deliver {self._message(CONSUMING, one)}"
        if step.command.name == "ack_unknown":
            yield f"> [{step.command.channel}] channel.close-ok"
        if step.command.name in ("close", "ack_unknown"):
            yield from self._reopened(step.command.channel)
        consumers = int(step.state.prefetch > 0)
        yield f"expect queue {QUEUE} message_count={len(step.state.ready)} consumer_count={consumers}"

    def _sent(self, step: Step) -> Iterator[str]:
        command, channel = step.command, f"[{step.command.channel}]"
        match command.name:
            case "declare":
                yield f"given queue {QUEUE}"
                yield f"> [{PUBLISHING}] confirm.select"
                yield f"< [{PUBLISHING}] confirm.select-ok"
            case "publish":
                yield f"> [{PUBLISHING}] basic.publish routing_key={QUEUE} body=m{command.number}"
                yield f"< [{PUBLISHING}] basic.ack"
            case "get" | "get_no_ack":
                no_ack = " no_ack=true" if command.name == "get_no_ack" else ""
                yield f"> {channel} basic.get queue={QUEUE}{no_ack}"
                if not step.answer.got:
                    yield f"< {channel} basic.get-empty"
                for one in step.answer.got:
                    yield f"< {channel} basic.get-ok {self._message(command.channel, one)}"
            case "consume":
                self._consumers += 1
                yield f"> {channel} basic.qos prefetch_count={command.number}"
                yield f"< {channel} basic.qos-ok"
                yield f"> {channel} basic.consume queue={QUEUE} consumer_tag=c{self._consumers}"
                yield f"< {channel} basic.consume-ok"
            case "cancel":
                yield f"> {channel} basic.cancel consumer_tag=c{self._consumers}"
                yield f"< {channel} basic.cancel-ok"
            case "purge":
                yield f"> {channel} queue.purge queue={QUEUE}"
                yield f"< {channel} queue.purge-ok message_count={command.number}"
            case "recover":
                yield f"> {channel} basic.recover requeue=true"
                yield f"< {channel} basic.recover-ok"
            case "close":
                yield f"> {channel} channel.close reply_code=200"
                yield f"< {channel} channel.close-ok"
            case "ack_unknown":
                yield f"> {channel} basic.ack delivery_tag={self._tag(command.channel, command.tag)}"
                yield f"< {channel} channel.close reply_code=406"
            case name:
                tag = self._tag(command.channel, command.tag) if command.tag else "0"
                flags = f" multiple={_word(command.multiple)}" if name != "reject" else ""
                flags += f" requeue={_word(command.requeue)}" if name != "ack" else ""
                yield f"> {channel} basic.{name} delivery_tag={tag}{flags}"

    def _message(self, channel: int, one: Delivery) -> str:
        capture = self._capture(channel, one.tag)
        self._delivered.add(capture)
        return f"delivery_tag={{{capture}}} redelivered={_word(one.redelivered)} body=m{one.id}"

    def _tag(self, channel: int, tag: int) -> str:
        """As the server gave it; a number that it cannot have given, if it gave none."""
        capture = self._capture(channel, tag)
        return f"{{{capture}}}" if capture in self._delivered else str(NEVER_DELIVERED)

    def _capture(self, channel: int, tag: int) -> str:
        return f"t{channel}_{self._opened.get(channel, 0)}_{tag}"

    def _reopened(self, channel: int) -> Iterator[str]:
        self._opened[channel] = self._opened.get(channel, 0) + 1
        yield f"> [{channel}] channel.open"
        yield f"< [{channel}] channel.open-ok"


def _word(value: bool) -> str:  # noqa: FBT001  # a value of the protocol
    return "true" if value else "false"


_REQUIREMENTS = {
    "publish": "AMQP-CONFIRM-009",
    "get": "AMQP-GET-004",
    "get_no_ack": "AMQP-GET-005",
    "consume": "AMQP-QOS-001",
    "cancel": "AMQP-CONSUME-011",
    "ack": "AMQP-ACK-002",
    "nack": "AMQP-NACK-001",
    "reject": "AMQP-REJECT-002",
    "recover": "AMQP-RECOVER-001",
    "purge": "AMQP-TOPO-026",
    "close": "AMQP-REQUEUE-005",
    "ack_unknown": "AMQP-ACK-009",
}
MODEL = Model(
    name="amqp-queue",
    file="amqp_queue.qnt",
    protocol="amqp",
    step=Step,
    writer=_Writer,
    requirement=REQUIREMENT,
    requirements=_REQUIREMENTS,
)
