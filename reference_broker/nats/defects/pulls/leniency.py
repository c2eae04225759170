"""Defects in how pull requests are read and ended where documents say little. What is right: ``pull``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new
from plumbline.reference_broker.nats.defects.methods import (
    alter_consumers,
    alter_waiting,
    method_defect,
)
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.pull import (
    NEVER,
    PullRefusedError,
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
    except UNDECODABLE:
        return None
    return found if isinstance(found, dict) else None


# -- bodies ----------------------------------------------------------------------------------------


def _asks_for_many(name: str, requirement: str, what: str, when: Callable[[dict[str, Any]], bool]) -> None:
    def alter(broker: Broker) -> None:
        def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
            fields = _object(body)
            if fields is not None and when(fields):
                body = msgspec.json.encode({**fields, "batch": MANY})
            return WaitingQueue.read(self, body, now)

        alter_waiting(broker, read=read)

    add(new(f"pull-{name}", (requirement,), f"{what} asks for {MANY} messages.", alter))


for _body in (
    ("batch-of-zero-is-many", "JS-PULL-028", "A batch of 0", lambda fields: fields.get("batch") == 0),
    ("missing-batch-is-many", "JS-PULL-029", "A body without batch",
     lambda fields: fields and "batch" not in fields),
    ("negative-batch-is-many", "JS-PULL-030", "A negative batch", lambda fields: fields.get("batch", 0) < 0),
    ("empty-object-is-many", "JS-PULL-058", "The body {}", lambda fields: not fields),
):  # fmt: skip
    _asks_for_many(*_body)


def _refused(name: str, requirement: str, what: str, when: Callable[[bytes], bool]) -> None:
    def alter(broker: Broker) -> None:
        def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
            if when(body):
                raise self.bad_request("no pull request")
            return WaitingQueue.read(self, body, now)

        alter_waiting(broker, read=read)

    add(new(f"pull-{name}-is-refused", (requirement,), f"{what} gets 400.", alter))


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


@defect("JS-PULL-013")
def pull_full_queue_is_told_to_heartbeats(broker: Broker) -> None:
    """A request with a heartbeat beyond max_waiting gets 409."""
    alter_waiting(broker, full_status=lambda self, request: EXCEEDED_MAX_WAITING)


@method_defect(WaitingQueue.admit_no_wait, "JS-PULL-020")
def pull_no_wait_ignores_expires(self: WaitingQueue, request: PullRequest, available: int, now: int) -> None:
    """A no_wait request with expires ends at once if there is nothing."""
    if available == 0:
        raise PullRefusedError(NO_MESSAGES)
    WaitingQueue.admit_no_wait(self, request, available, now)


@method_defect(WaitingQueue.one_shot_ends, "JS-PULL-021")
def pull_no_wait_waits_for_its_batch(self: WaitingQueue, request: WaitingRequest) -> bool:
    """A no_wait request with expires waits until its batch is filled."""
    return request.expires == NEVER and WaitingQueue.one_shot_ends(self, request)


@method_defect(WaitingQueue.deadline, "JS-PULL-027")
def pull_negative_expires_lingers(self: WaitingQueue, request: PullRequest, now: int) -> int:
    """A request with a negative expires never ends."""
    return WaitingQueue.deadline(self, request, now) if request.expires >= 0 else NEVER


@method_defect(JetStream.pull, "JS-PULL-041", "JS-PULL-042")
def pull_of_nobody_gets_404(
    self: JetStream, names: bytes, reply: bytes | None, body: bytes, now: int
) -> bool:
    """A pull request to a consumer or stream that does not exist is answered with 404."""
    stream, _, name = names.partition(b".")
    if self.find_consumer(stream, name) is None and reply is not None:
        self.host.publish(reply, None, status_block(MISSING), b"")
        return True
    return JetStream.pull(self, names, reply, body, now)


@method_defect(WaitingQueue.fits, "JS-PULL-048")
def pull_max_bytes_forgets_the_ack_subject(self: WaitingQueue, request: WaitingRequest, size: int) -> bool:
    """A message counts against max_bytes without its acknowledgement subject."""
    return WaitingQueue.fits(self, request, size - len(cast("Consumer", self.consumer).ack_prefix))


@method_defect(WaitingQueue.rotate, "JS-PULL-054")
def pull_first_request_gets_all(self: WaitingQueue) -> None:
    """A request is served until its batch is filled, and only then the next one."""


@method_defect(WaitingQueue.send_pending, "JS-PULL-062")
def pull_batch_completed_tells_no_bytes(self: WaitingQueue, request: WaitingRequest, status: Status) -> None:
    """409 Batch Completed does not tell the bytes that are left."""
    if status == BATCH_COMPLETED:
        self.send(request.reply, status)
    else:
        WaitingQueue.send_pending(self, request, status)


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


@defect("JS-PULL-056")
def pull_needs_no_group(broker: Broker) -> None:
    """A request without a priority group is one of the consumer's first group."""
    _before_pull(broker, lambda consumer, fields: fields.update(group=consumer.config.priority_groups[0]))


@defect("JS-PULL-063")
def pull_of_another_client_waits(broker: Broker) -> None:
    """A request with another id than the pinned one waits."""
    _before_pull(broker, lambda consumer, fields: fields.pop("id", None))


@method_defect(WaitingQueue.check_group, "JS-PULL-071")
def pull_fields_of_other_policies_are_ignored(self: WaitingQueue, request: PullRequest) -> None:
    """min_pending, min_ack_pending and id are not looked at where the policy is another."""
    fields = {"min_pending": 0, "min_ack_pending": 0, "id": ""}
    WaitingQueue.check_group(self, msgspec.structs.replace(request, **fields))


@method_defect(WaitingQueue.check_group, "JS-PULL-071")
def pull_min_ack_pending_is_for_every_policy(self: WaitingQueue, request: PullRequest) -> None:
    """min_ack_pending is not looked at where the policy is another."""
    WaitingQueue.check_group(self, msgspec.structs.replace(request, min_ack_pending=0))
