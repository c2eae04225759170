"""Defects in what a pull request may ask for: bodies, limits, bytes."""

from __future__ import annotations

import msgspec

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_waiting, method_defect
from plumbline.reference_broker.nats.jetstream.consumers.pull import (
    PullRefusedError,
    WaitingQueue,
    WaitingRequest,
)
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.jetstream import PullRequest, exceeded_max_request_batch


@method_defect(WaitingQueue.read, "JS-PULL-009")
def pull_integer_body_is_one(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
    """A bare integer asks for one message, whatever it is."""
    return WaitingQueue.read(self, b"1" if body.strip().isdigit() else body, now)


def _lenient(broker: Broker, *, malformed: bool) -> None:
    """Take a bad body for a request for one message: one that is no JSON, or one with a wrong type."""

    def read(self: WaitingQueue, body: bytes, now: int) -> PullRequest:
        try:
            return WaitingQueue.read(self, body, now)
        except PullRefusedError:
            if _is_json(body) is malformed or _is_request(body):
                raise
            return PullRequest()

    alter_waiting(broker, read=read)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except UNDECODABLE:
        return False
    return True


def _is_request(body: bytes) -> bool:
    try:
        PullRequest.parse(body)
    except ProtocolError:
        return False
    return True


@defect("JS-PULL-031")
def pull_malformed_body_is_one(broker: Broker) -> None:
    """Malformed JSON asks for one message instead of getting 400."""
    _lenient(broker, malformed=True)


@defect("JS-PULL-032")
def pull_wrong_type_is_one(broker: Broker) -> None:
    """A field of the wrong type asks for one message instead of getting 400."""
    _lenient(broker, malformed=False)


@method_defect(WaitingQueue.check_heartbeat, "JS-PULL-034")
def pull_any_heartbeat_is_taken(self: WaitingQueue, request: PullRequest) -> None:
    """A heartbeat of more than half of expires is accepted."""
    if not request.expires:
        WaitingQueue.check_heartbeat(self, request)


@method_defect(WaitingQueue.check_heartbeat, "JS-PULL-035")
def pull_heartbeat_needs_no_expires(self: WaitingQueue, request: PullRequest) -> None:
    """A heartbeat without expires is accepted."""
    if request.expires:
        WaitingQueue.check_heartbeat(self, request)


def _unchecked(self: WaitingQueue, request: PullRequest) -> None:
    """A limit that is never looked at."""


@defect("JS-PULL-037")
def pull_max_batch_is_not_checked(broker: Broker) -> None:
    """A batch over the consumer's max_batch is accepted."""
    alter_waiting(broker, check_batch=_unchecked)


@method_defect(WaitingQueue.check_batch, "JS-PULL-037")
def pull_max_batch_tells_what_was_asked(self: WaitingQueue, request: PullRequest) -> None:
    """Exceeded MaxRequestBatch names the batch that was asked for."""
    if 0 < self.config.max_batch < request.batch:
        raise PullRefusedError(exceeded_max_request_batch(request.batch))


@defect("JS-PULL-038")
def pull_max_expires_is_not_checked(broker: Broker) -> None:
    """Expires over the consumer's max_expires is accepted."""
    alter_waiting(broker, check_expires=_unchecked)


@defect("JS-PULL-039")
def pull_max_bytes_limit_is_not_checked(broker: Broker) -> None:
    """Max_bytes over the consumer's limit is accepted."""
    alter_waiting(broker, check_max_bytes=_unchecked)


@method_defect(WaitingQueue.refuse_size, "JS-PULL-046")
def pull_max_bytes_ends_silently(self: WaitingQueue, request: WaitingRequest) -> None:
    """A pull whose bytes are used up ends without a status."""
    if request.delivered:
        self.remove(request)
    else:
        WaitingQueue.refuse_size(self, request)


@method_defect(WaitingQueue.fits, "JS-PULL-047")
def pull_first_message_ignores_max_bytes(self: WaitingQueue, request: WaitingRequest, size: int) -> bool:
    """The first message of a pull is delivered although it exceeds max_bytes."""
    return not request.delivered or WaitingQueue.fits(self, request, size)
