"""Traces of the model of a pull consumer, as the text of our traces. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from plumbline.conformance.models.model import GROUP, GROUP_END, Model
from plumbline.wire.nats.jetstream import ACK_PREFIX, api_subject, next_subject

REQUIREMENT = "JS-CONS-063"  # nearest to all that the model says
STREAM, CONSUMER = "ORDERS", "DISPATCH"
SHORT_ACK_WAIT_S, ACK_WAIT_S = 1.0, 60.0
WAIT_MS = 1300  # ack_wait is over by then
EXPIRES_NS = 60_000_000_000  # of a request that waits: longer than the trace
_REST = "{:404 No Messages|408 Request Timeout}"  # fewer messages than a no_wait request wants


class Settings(Struct):
    """The consumer that a trace is about."""

    filtered: bool
    timed: bool
    max_deliver: int
    max_ack_pending: int


class Delivery(Struct):
    """One message, as it is delivered."""

    seq: int
    count: int
    consumer_seq: int
    pending: int


class Command(Struct):
    """What the client does in a step."""

    name: str
    seq: int
    count: int
    batch: int
    subject: str


class Answer(Struct):
    """What the server answers and delivers in a step."""

    deliveries: list[Delivery]
    in_order: bool
    status: str  # of a request: "", "404" for nothing at all, "rest" for fewer than it wants


class Info(Struct):
    """The consumer's state in CONSUMER.INFO after a step."""

    consumer_seq: int
    stream_from: int
    stream_to: int
    floor_from: int
    floor_to: int
    ack_pending: int
    redelivered: int
    pending: int
    is_certain: bool


class Inside(Struct):
    """Of the model's own state: what a trace needs besides its outputs."""

    settings: Settings
    subjects: list[str]
    requested: int


class Step(Struct):
    """A state of the model."""

    state: Inside
    command: Command
    answer: Answer
    info: Info


class _Writer:
    def __init__(self) -> None:
        self._subjects: dict[tuple[int, int], str] = {}  # to acknowledge a delivery to, by seq and count

    def lines(self, step: Step) -> Iterator[str]:
        """Of one step, which comes after those that were written."""
        yield from self._sent(step)
        yield from self._deliveries(step)
        if step.answer.status:
            status = "404 No Messages" if step.answer.status == "404" else _REST
            yield f"worker< HMSG $inbox 1 | NATS/1.0 {status}"
        yield _expected_info(step)

    def _sent(self, step: Step) -> Iterator[str]:
        command = step.command
        match command.name:
            case "create":
                yield from _stage(step.state.settings)
            case "publish":
                number = len(step.state.subjects)
                yield f"> PUB {STREAM}.{command.subject} $reply | m{number}"
                yield f'< MSG $reply 2 {{"error":{{:absent}},"seq":{number}}}'
            case "delete":
                yield f'> PUB {api_subject("STREAM.MSG.DELETE", STREAM)} $reply {{"seq":{command.seq}}}'
                yield '< MSG $reply 2 {"error":{:absent},"success":true}'
            case "pull" | "pull_no_wait":
                waits = {"expires": EXPIRES_NS} if command.name == "pull" else {"no_wait": True}
                body = json.dumps({"batch": command.batch, **waits}, separators=(",", ":"))
                yield f"worker> PUB {next_subject(STREAM, CONSUMER)} $inbox {body}"
            case "wait":
                yield f"worker< nothing for {WAIT_MS}ms"
            case payload:
                yield f"> PUB {self._subjects[command.seq, command.count]} $reply | {payload}"
                yield "< MSG $reply 2 |"

    def _deliveries(self, step: Step) -> Iterator[str]:
        deliveries, in_order = step.answer.deliveries, step.answer.in_order or len(step.answer.deliveries) < 2
        if not in_order:
            yield GROUP
        for one in deliveries:
            yield self._delivery(one, step.state.subjects[one.seq - 1], in_order=in_order)
        if not in_order:
            yield GROUP_END

    def _delivery(self, one: Delivery, subject: str, *, in_order: bool) -> str:
        """Without an order nothing decides which of them has which consumer sequence."""
        tag = f"{one.seq}_{one.count}"
        head = f"{ACK_PREFIX}.{STREAM}.{CONSUMER}.{one.count}.{one.seq}"
        number = str(one.consumer_seq) if in_order else f"{{c{tag}:int}}"
        self._subjects[one.seq, one.count] = f"{head}.{number.replace(':int', '')}.{{t{tag}}}.{one.pending}"
        return f"worker< MSG {STREAM}.{subject} 1 {head}.{number}.{{t{tag}:ns}}.{one.pending} | m{one.seq}"


def _stage(settings: Settings) -> Iterator[str]:
    keys = {
        "ack": "explicit",
        "ack_wait": f"{SHORT_ACK_WAIT_S if settings.timed else ACK_WAIT_S:g}s",
        "max_deliver": settings.max_deliver or -1,
        "max_ack_pending": settings.max_ack_pending or -1,
    }
    if settings.filtered:
        keys["filter"] = f"{STREAM}.a"
    yield f"given stream {STREAM} subjects={STREAM}.>"
    yield f"given consumer {STREAM} {CONSUMER} " + " ".join(f"{name}={value}" for name, value in keys.items())
    yield "worker> SUB $inbox 1"
    yield "> SUB $reply 2"


def _expected_info(step: Step) -> str:
    info = step.info
    expected = {
        "delivered.consumer_seq": info.consumer_seq,
        "num_pending": info.pending,
        "num_waiting": int(step.state.requested > 0),
    }
    if info.stream_from == info.stream_to:
        expected["delivered.stream_seq"] = info.stream_to
    if info.is_certain:
        expected |= {"num_ack_pending": info.ack_pending, "num_redelivered": info.redelivered}
        if info.floor_from == info.floor_to:
            expected["ack_floor.stream_seq"] = info.floor_to
    return f"expect consumer {STREAM} {CONSUMER} " + " ".join(
        f"{name}={value}" for name, value in expected.items()
    )


_REQUIREMENTS = {
    "publish": "JS-PUB-002",
    "delete": "JS-API-094",
    "pull": "JS-PULL-051",
    "pull_no_wait": "JS-PULL-015",
    "+ACK": "JS-ACK-006",
    "-NAK": "JS-ACK-009",
    "+WPI": "JS-ACK-013",
    "+TERM": "JS-ACK-020",
}
MODEL = Model(
    name="jetstream-consumer",
    file="jetstream_consumer.qnt",
    protocol="nats",
    step=Step,
    writer=_Writer,
    requirement=REQUIREMENT,
    requirements=_REQUIREMENTS,
)
