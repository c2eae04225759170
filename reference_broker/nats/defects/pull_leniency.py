"""Defects in how pull requests are read and ended where documents say little. What is right: ``pull``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import (
    alter_consumers,
    alter_service,
    alter_waiting,
    jetstream_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import (
    NEVER,
    Refused,
    WaitingQueue,
    WaitingRequest,
    status_block,
)
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.wire.nats.headers import Status
from plumbline.wire.nats.jetstream import BATCH_COMPLETED, EXCEEDED_MAX_WAITING, NO_MESSAGES, PullRequest

MANY = 10
MISSING = Status(404, "Not Found")
KNOWN = frozenset(field.name for field in msgspec.structs.fields(PullRequest))


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


# -- bodies ----------------------------------------------------------------------------------------


def _asks_for_many(name: str, requirement: str, what: str, when: Callable[[dict[str, Any]], bool]) -> None:
    @jetstream_defect(f"pull-{name}", breaks=(requirement,), summary=f"{what} asks for {MANY} messages.")
    def _(broker: Broker) -> None:
        def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
            fields = _object(body)
            if fields is not None and when(fields):
                body = msgspec.json.encode({**fields, "batch": MANY})
            return WaitingQueue.read(self, body, now)

        alter_waiting(broker, read=read)


for _body in (
    ("batch-of-zero-is-many", "JS-PULL-028", "A batch of 0", lambda fields: fields.get("batch") == 0),
    ("missing-batch-is-many", "JS-PULL-029", "A body without batch",
     lambda fields: fields and "batch" not in fields),
    ("negative-batch-is-many", "JS-PULL-030", "A negative batch", lambda fields: fields.get("batch", 0) < 0),
    ("empty-object-is-many", "JS-PULL-058", "The body {}", lambda fields: not fields),
):  # fmt: skip
    _asks_for_many(*_body)


def _refused(name: str, requirement: str, what: str, when: Callable[[bytes], bool]) -> None:
    @jetstream_defect(f"pull-{name}-is-refused", breaks=(requirement,), summary=f"{what} gets 400.")
    def _(broker: Broker) -> None:
        def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
            if when(body):
                raise self.bad_request("no pull request")
            return WaitingQueue.read(self, body, now)

        alter_waiting(broker, read=read)


for _strictness in (
    ("other-text", "JS-PULL-033", "A body that is neither an object nor an integer",
     lambda body: body.strip()[:1] not in b"{" and not body.strip().isdigit()),
    ("unknown-field", "JS-PULL-036", "A field that is not known",
     lambda body: bool(set(_object(body) or ()) - KNOWN)),
    ("blank-around-an-integer", "JS-PULL-059", "A bare integer with blanks around it",
     lambda body: body != body.strip() and body.strip().isdigit()),
):  # fmt: skip
    _refused(*_strictness)


# -- when a request ends ---------------------------------------------------------------------------


@jetstream_defect(
    "pull-full-queue-is-told-to-heartbeats",
    breaks=("JS-PULL-013",),
    summary="A request with a heartbeat beyond max_waiting gets 409.",
)
def _(broker: Broker) -> None:
    alter_waiting(broker, full_status=lambda self, request: EXCEEDED_MAX_WAITING)


@jetstream_defect(
    "pull-no-wait-ignores-expires",
    breaks=("JS-PULL-020",),
    summary="A no_wait request with expires ends at once if there is nothing.",
)
def _(broker: Broker) -> None:
    def admit_no_wait(self: WaitingQueue, request: PullRequest, available: int, now: int) -> None:
        if available == 0:
            raise Refused(NO_MESSAGES)
        WaitingQueue.admit_no_wait(self, request, available, now)

    alter_waiting(broker, admit_no_wait=admit_no_wait)


@jetstream_defect(
    "pull-no-wait-waits-for-its-batch",
    breaks=("JS-PULL-021",),
    summary="A no_wait request with expires waits until its batch is filled.",
)
def _(broker: Broker) -> None:
    def one_shot_ends(self: WaitingQueue, request: WaitingRequest) -> bool:
        return request.expires == NEVER and WaitingQueue.one_shot_ends(self, request)

    alter_waiting(broker, one_shot_ends=one_shot_ends)


@jetstream_defect(
    "pull-negative-expires-lingers",
    breaks=("JS-PULL-027",),
    summary="A request with a negative expires never ends.",
)
def _(broker: Broker) -> None:
    def deadline(self: WaitingQueue, request: PullRequest, now: int) -> int:
        return WaitingQueue.deadline(self, request, now) if request.expires >= 0 else NEVER

    alter_waiting(broker, deadline=deadline)


@jetstream_defect(
    "pull-of-nobody-gets-404",
    breaks=("JS-PULL-041", "JS-PULL-042"),
    summary="A pull request to a consumer or stream that does not exist is answered with 404.",
)
def _(broker: Broker) -> None:
    def pull(self: JetStream, names: bytes, reply: bytes | None, body: bytes, now: int) -> bool:
        stream, _, name = names.partition(b".")
        if self.find_consumer(stream, name) is None and reply is not None:
            self.host.publish(reply, None, status_block(MISSING), b"")
            return True
        return JetStream.pull(self, names, reply, body, now)

    alter_service(broker, pull=pull)


@jetstream_defect(
    "pull-max-bytes-forgets-the-ack-subject",
    breaks=("JS-PULL-048",),
    summary="A message counts against max_bytes without its acknowledgement subject.",
)
def _(broker: Broker) -> None:
    def fits(self: WaitingQueue, request: WaitingRequest, size: int) -> bool:
        return WaitingQueue.fits(self, request, size - len(cast("Consumer", self.consumer).ack_prefix))

    alter_waiting(broker, fits=fits)


@jetstream_defect(
    "pull-first-request-gets-all",
    breaks=("JS-PULL-054",),
    summary="A request is served until its batch is filled, and only then the next one.",
)
def _(broker: Broker) -> None:
    def rotate(self: WaitingQueue) -> None:
        """The head stays the head."""

    alter_waiting(broker, rotate=rotate)


@jetstream_defect(
    "pull-batch-completed-tells-no-bytes",
    breaks=("JS-PULL-062",),
    summary="409 Batch Completed does not tell the bytes that are left.",
)
def _(broker: Broker) -> None:
    def send_pending(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
        if status == BATCH_COMPLETED:
            self.send(request.reply, status)
        else:
            WaitingQueue.send_pending(self, request, status)

    alter_waiting(broker, send_pending=send_pending)


# -- priority groups -------------------------------------------------------------------------------


def _before_pull(broker: Broker, change: Callable[[Consumer, dict[str, Any]], object]) -> None:
    """The fields of a request to a consumer with priority groups are others."""

    def pull(self: Consumer, reply: bytes | None, body: bytes, now: int) -> None:
        if self.config.priority_groups:
            fields = _object(body or b"{}") or {}
            change(self, fields)
            body = msgspec.json.encode(fields)
        Consumer.pull(self, reply, body, now)

    alter_consumers(broker, pull=pull)


@jetstream_defect(
    "pull-needs-no-group",
    breaks=("JS-PULL-056",),
    summary="A request without a priority group is one of the consumer's first group.",
)
def _(broker: Broker) -> None:
    _before_pull(broker, lambda consumer, fields: fields.update(group=consumer.config.priority_groups[0]))


@jetstream_defect(
    "pull-of-another-client-waits",
    breaks=("JS-PULL-063",),
    summary="A request with another id than the pinned one waits.",
)
def _(broker: Broker) -> None:
    _before_pull(broker, lambda consumer, fields: fields.pop("id", None))
