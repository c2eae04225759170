"""Defects in what a pull request may ask for: bodies, limits, bytes."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects.jetstream_parts import alter_waiting, jetstream_defect
from plumbline.reference_broker.nats.jetstream.consumers.pull import Refused, WaitingQueue, WaitingRequest
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.jetstream import PullRequest, exceeded_max_request_batch


@jetstream_defect(
    "pull-integer-body-is-one",
    breaks=("JS-PULL-009",),
    summary="A bare integer asks for one message, whatever it is.",
)
def _(broker: Broker) -> None:
    def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
        return WaitingQueue.read(self, b"1" if body.strip().isdigit() else body, now)

    alter_waiting(broker, read=read)


def _lenient(broker: Broker, *, malformed: bool) -> None:
    """Take a bad body for a request for one message: one that is no JSON, or one with a wrong type."""

    def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
        try:
            return WaitingQueue.read(self, body, now)
        except Refused:
            if _is_json(body) is malformed or _is_request(body):
                raise
            return PullRequest()

    alter_waiting(broker, read=read)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_request(body: bytes) -> bool:
    try:
        PullRequest.parse(body)
    except ProtocolError:
        return False
    return True


@jetstream_defect(
    "pull-malformed-body-is-one",
    breaks=("JS-PULL-031",),
    summary="Malformed JSON asks for one message instead of getting 400.",
)
def _(broker: Broker) -> None:
    _lenient(broker, malformed=True)


@jetstream_defect(
    "pull-wrong-type-is-one",
    breaks=("JS-PULL-032",),
    summary="A field of the wrong type asks for one message instead of getting 400.",
)
def _(broker: Broker) -> None:
    _lenient(broker, malformed=False)


@jetstream_defect(
    "pull-any-heartbeat-is-taken",
    breaks=("JS-PULL-034",),
    summary="A heartbeat of more than half of expires is accepted.",
)
def _(broker: Broker) -> None:
    def check_heartbeat(self: WaitingQueue, request: PullRequest) -> None:
        if not request.expires:
            WaitingQueue.check_heartbeat(self, request)

    alter_waiting(broker, check_heartbeat=check_heartbeat)


@jetstream_defect(
    "pull-heartbeat-needs-no-expires",
    breaks=("JS-PULL-035",),
    summary="A heartbeat without expires is accepted.",
)
def _(broker: Broker) -> None:
    def check_heartbeat(self: WaitingQueue, request: PullRequest) -> None:
        if request.expires:
            WaitingQueue.check_heartbeat(self, request)

    alter_waiting(broker, check_heartbeat=check_heartbeat)


def _unchecked(self: WaitingQueue, request: PullRequest) -> None:
    """A limit that nobody looks at."""


@jetstream_defect(
    "pull-max-batch-is-not-checked",
    breaks=("JS-PULL-037",),
    summary="A batch over the consumer's max_batch is accepted.",
)
def _(broker: Broker) -> None:
    alter_waiting(broker, check_batch=_unchecked)


@jetstream_defect(
    "pull-max-batch-tells-what-was-asked",
    breaks=("JS-PULL-037",),
    summary="Exceeded MaxRequestBatch names the batch that was asked for.",
)
def _(broker: Broker) -> None:
    def check_batch(self: WaitingQueue, request: PullRequest) -> None:
        if 0 < self.config.max_batch < request.batch:
            raise Refused(exceeded_max_request_batch(request.batch))

    alter_waiting(broker, check_batch=check_batch)


@jetstream_defect(
    "pull-max-expires-is-not-checked",
    breaks=("JS-PULL-038",),
    summary="Expires over the consumer's max_expires is accepted.",
)
def _(broker: Broker) -> None:
    alter_waiting(broker, check_expires=_unchecked)


@jetstream_defect(
    "pull-max-bytes-limit-is-not-checked",
    breaks=("JS-PULL-039",),
    summary="Max_bytes over the consumer's limit is accepted.",
)
def _(broker: Broker) -> None:
    alter_waiting(broker, check_max_bytes=_unchecked)


@jetstream_defect(
    "pull-max-bytes-ends-silently",
    breaks=("JS-PULL-046",),
    summary="A pull whose bytes are used up ends without a status.",
)
def _(broker: Broker) -> None:
    def refuse_size(self: WaitingQueue, request: WaitingRequest) -> None:
        if request.delivered:
            self.remove(request)
        else:
            WaitingQueue.refuse_size(self, request)

    alter_waiting(broker, refuse_size=refuse_size)


@jetstream_defect(
    "pull-first-message-ignores-max-bytes",
    breaks=("JS-PULL-047",),
    summary="The first message of a pull is delivered although it exceeds max_bytes.",
)
def _(broker: Broker) -> None:
    def fits(self: WaitingQueue, request: WaitingRequest, size: int) -> bool:
        return not request.delivered or WaitingQueue.fits(self, request, size)

    alter_waiting(broker, fits=fits)
