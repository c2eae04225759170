"""Waiting pull requests: their order, when they end, and with which status.

A ``WaitingQueue`` belongs to one pull consumer. It sends statuses itself, through the host, and tells the
consumer where the next message goes. Sources: ADR-13, "Pull Subscribe internals"; ADR-37; order and headers
as observed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Protocol
from weakref import proxy

from msgspec import Struct

from plumbline.reference_broker.nats.host import Host
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Status, encode_headers
from plumbline.wire.nats.jetstream import (
    BATCH_COMPLETED,
    CONSUMER_DELETED,
    EXCEEDED_MAX_WAITING,
    IDLE_HEARTBEAT,
    LAST_CONSUMER,
    LAST_STREAM,
    MESSAGE_SIZE_EXCEEDS_MAX_BYTES,
    NO_MESSAGES,
    PENDING_BYTES,
    PENDING_MESSAGES,
    REQUEST_TIMEOUT,
    REQUESTS_PENDING,
    PullRequest,
    bad_request,
    exceeded_max_request_batch,
    exceeded_max_request_expires,
    exceeded_max_request_max_bytes,
)

NEVER: Final = 1 << 63
LOWEST_PRIORITY: Final = 9


class PullRefusedError(Exception):
    """A request that never waits; ``status`` tells its inbox why, None says nothing."""

    def __init__(self, status: Status | None) -> None:
        super().__init__(str(status))
        self.status = status


class WaitingRequest(Struct):
    """One accepted pull request. ``batch`` and ``max_bytes`` count down."""

    reply: bytes
    batch: int
    max_bytes: int
    expires: int  # a moment; NEVER for a request that lingers
    heartbeat: int
    next_heartbeat: int
    no_wait: bool
    delivered: int = 0
    pull_request: PullRequest = PullRequest()
    pin: str = ""  # of the client that it made the pinned one

    @property
    def next_event(self) -> int:
        return min(self.expires, self.next_heartbeat)


class PullConsumer(Protocol):
    """What a queue asks of the consumer it belongs to."""

    num_pending: int

    def last_delivered(self) -> tuple[int, int]:
        """What an idle heartbeat reports."""
        ...

    def reported_ack_pending(self) -> int: ...
    def new_pin(self) -> str: ...
    def pinned(self) -> int:
        """A client is pinned, or has shown that it is still there; when that was."""
        ...


_LONGEST_CACHED_BODY: Final = 256


@lru_cache(maxsize=1024)
def _parse_cached(body: bytes) -> PullRequest:
    return PullRequest.parse(body)


def _parse(body: bytes) -> PullRequest:
    """Clients send the same few bodies again and again."""
    return _parse_cached(body) if len(body) <= _LONGEST_CACHED_BODY else PullRequest.parse(body)


@lru_cache(maxsize=64)
def _plain_block(status: Status) -> bytes:
    return status_block(status)


def status_block(status: Status, fields: Iterable[tuple[str, int | str]] = ()) -> bytes:
    """The header block of a status with its fields."""
    return encode_headers([(name, str(value)) for name, value in fields], status)


class WaitingQueue:
    """The requests of one consumer, served in turn."""

    def __init__(
        self, host: Host, config: ConsumerConfig, rules: Rules, consumer: PullConsumer, now: int
    ) -> None:
        self.host = host
        self.config = config
        self.rules = rules
        self.consumer: PullConsumer = proxy(consumer)  # which has this queue
        self.last_active = now
        self.one_shots = 0  # no_wait requests in the queue
        self.requests: deque[WaitingRequest] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    # Accepting

    def accept(self, reply: bytes, body: bytes, available: int, now: int) -> WaitingRequest | None:
        """Queue a request; None if a status was the answer. ``available``: messages that could go out now."""
        try:
            request = self.read(body, now)
            self.admit(request, available, now)
        except PullRefusedError as refusal:
            if refusal.status is not None:
                self.send(reply, refusal.status)
            return None
        waiting = WaitingRequest(
            reply,
            request.batch,
            request.max_bytes,
            self.deadline(request, now),
            request.idle_heartbeat,
            now + request.idle_heartbeat if request.idle_heartbeat > 0 else NEVER,
            request.no_wait,
            pull_request=request,
        )
        self.enqueue(waiting)
        self.last_active = now
        return waiting

    def deadline(self, request: PullRequest, now: int) -> int:
        """When a request times out; without expires it lingers (ADR-13)."""
        return now + request.expires if request.expires else NEVER

    def enqueue(self, request: WaitingRequest) -> None:
        self.one_shots += request.no_wait
        self.requests.append(request)

    def read(self, body: bytes, now: int) -> PullRequest:
        """The request in a body, within the consumer's limits. Raises ``PullRefusedError``."""
        try:
            request = _parse(body)
        except ProtocolError as error:
            raise self.bad_request(error.message) from None
        self.check_heartbeat(request)
        self.check_batch(request)
        self.check_expires(request)
        self.check_max_bytes(request)
        if body.lstrip().startswith(b"{"):
            self.check_group(request)
        return request

    def bad_request(self, reason: str) -> PullRefusedError:
        return PullRefusedError(bad_request(reason))

    def check_heartbeat(self, request: PullRequest) -> None:
        """Two heartbeats must fit into expires (ADR-37). Raises ``PullRefusedError``."""
        if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 > request.expires:
            raise self.bad_request("heartbeat value too large")

    def check_batch(self, request: PullRequest) -> None:
        """max_batch of the consumer (ADR-37). Raises ``PullRefusedError``."""
        if 0 < self.config.max_batch < request.batch:
            raise PullRefusedError(exceeded_max_request_batch(self.config.max_batch))

    def check_expires(self, request: PullRequest) -> None:
        """max_expires of the consumer (ADR-37). Raises ``PullRefusedError``."""
        if 0 < self.config.max_expires < request.expires:
            raise PullRefusedError(exceeded_max_request_expires(self.config.max_expires))

    def check_max_bytes(self, request: PullRequest) -> None:
        """max_bytes of the consumer (ADR-37). Raises ``PullRefusedError``."""
        if 0 < self.config.max_bytes < request.max_bytes:
            raise PullRefusedError(exceeded_max_request_max_bytes(self.config.max_bytes))

    def check_group(self, request: PullRequest) -> None:
        """What a request may say of priorities (ADR-42). Raises ``PullRefusedError``."""
        if not self.rules.priority_groups:
            return
        policy = self.config.priority_policy
        if (request.min_pending or request.min_ack_pending) and policy != "overflow":
            raise self.bad_request("Not a Overflow Priority consumer")
        if request.id and policy != "pinned_client":
            raise self.bad_request("Not a Pinned Client Priority consumer")
        if self.rules.prioritized_clients and not 0 <= request.priority <= LOWEST_PRIORITY:
            raise self.bad_request("Priority must be between 0 and 9")

    def admit(self, request: PullRequest, available: int, now: int) -> None:
        """Whether a request may wait. Raises ``PullRefusedError``."""
        if self.is_full():
            self.expire(now, at_end=False)
        if request.no_wait:
            self.admit_no_wait(request, available, now)
        if self.is_full():
            raise PullRefusedError(self.full_status(request))

    def is_full(self) -> bool:
        return len(self.requests) >= self.config.max_waiting

    def full_status(self, request: PullRequest) -> Status | None:
        if request.idle_heartbeat and self.rules.no_409_for_heartbeat_pulls:
            return None
        return EXCEEDED_MAX_WAITING

    def admit_no_wait(self, request: PullRequest, available: int, now: int) -> None:
        """ADR-13, "No Wait Pull Requests"; with expires it waits for the first message all the same."""
        if available == 0 and not request.expires:
            self.last_active = now
            raise PullRefusedError(NO_MESSAGES)
        if available > 0 and available < self.messages_claimed(now):
            self.last_active = now
            raise PullRefusedError(REQUESTS_PENDING)

    def messages_claimed(self, now: int) -> int:
        """How many messages the waiting requests may still take."""
        if self.requests:
            self.expire(now, at_end=False)
        return sum(request.batch for request in self.requests)

    # Serving

    def next_receiver(self, size: int, now: int) -> WaitingRequest | None:
        """Whose turn it is to get a message of ``size`` bytes; requests that cannot take it end here."""
        passed_over = 0
        while passed_over < len(self.requests):
            request = self.requests[0]
            if now >= request.expires:
                self.time_out(request)
            elif not self.is_its_turn(request):
                if self.requests and self.requests[0] is request:
                    self.requests.rotate(-1)
                    passed_over += 1
            elif self.fits(request, size):
                return request
            else:
                self.refuse_size(request)
        return None

    def is_its_turn(self, request: WaitingRequest) -> bool:
        """Whether the head of the queue is to be served; priority groups have a say in it."""
        return True

    def marked(self, header_block: bytes) -> bytes:
        """The headers of a message on its way to the head of the queue."""
        return header_block

    def fits(self, request: WaitingRequest, size: int) -> bool:
        return not request.max_bytes or size <= request.max_bytes

    def refuse_size(self, request: WaitingRequest) -> None:
        self.end(request, MESSAGE_SIZE_EXCEEDS_MAX_BYTES)

    def record_delivered(self, request: WaitingRequest, size: int, now: int) -> None:
        """The head of the queue got a message: count it, and let the next one have its turn."""
        request.delivered += 1
        request.batch -= 1
        if request.max_bytes:
            self.spend_bytes(request, size)
        if request.batch <= 0:
            self.remove(request)
            if request.max_bytes > 0 and self.rules.batch_completed_status:
                self.send_pending(request, BATCH_COMPLETED)
            return
        if request.heartbeat > 0:
            request.next_heartbeat = now + request.heartbeat
        self.rotate()

    def spend_bytes(self, request: WaitingRequest, size: int) -> None:
        request.max_bytes -= size
        if request.max_bytes == 0:
            request.batch = 0

    def rotate(self) -> None:
        """Requests are served in turn, one message each."""
        self.requests.rotate(-1)

    def remove(self, request: WaitingRequest) -> None:
        requests = self.requests
        if requests[0] is request:
            requests.popleft()
        else:
            del requests[next(i for i, other in enumerate(requests) if other is request)]
        self.one_shots -= request.no_wait

    # Ending

    def expire(self, now: int, *, at_end: bool) -> None:
        """End what is overdue or lost its inbox, send heartbeats; ``at_end``: nothing is left to deliver."""
        for request in list(self.requests):
            if now >= request.expires:
                if request.next_heartbeat < request.expires and self.has_interest(request):
                    self.send_heartbeat(request, now)  # woken late: what was due first comes first
                self.last_active = max(self.last_active, now)
                self.time_out(request)
            elif at_end and request.no_wait and self.one_shot_ends(request):
                self.last_active = now
                self.end_one_shot(request)
            elif not self.has_interest(request):
                self.remove(request)
            elif now >= request.next_heartbeat:
                self.send_heartbeat(request, now)

    def has_interest(self, request: WaitingRequest) -> bool:
        """Whether somebody still listens on its inbox."""
        return self.host.has_interest(request.reply)

    def one_shot_ends(self, request: WaitingRequest) -> bool:
        """A no_wait request ends once something was delivered, or at once if nothing keeps it waiting."""
        return request.delivered > 0 or (request.expires == NEVER and self.rules.no_wait_never_lingers)

    def end_one_shot(self, request: WaitingRequest) -> None:
        if self.rules.no_wait_ends_with_404:
            self.remove(request)
            self.send(request.reply, NO_MESSAGES)
        else:
            self.time_out(request)

    def time_out(self, request: WaitingRequest) -> None:
        self.end(request, REQUEST_TIMEOUT)

    def end(self, request: WaitingRequest, status: Status) -> None:
        """A terminal status that says what the request was still due (ADR-37)."""
        self.remove(request)
        self.send_pending(request, status)

    def delete(self) -> None:
        """The consumer goes away."""
        while self.requests:
            request = self.requests.popleft()
            self.send(request.reply, CONSUMER_DELETED)
        self.one_shots = 0

    def next_event(self) -> int:
        """When a request next times out or wants its heartbeat."""
        return min((request.next_event for request in self.requests), default=NEVER)

    # Statuses

    def send_heartbeat(self, request: WaitingRequest, now: int) -> None:
        consumer_seq, stream_seq = self.consumer.last_delivered()
        block = status_block(IDLE_HEARTBEAT, ((LAST_CONSUMER, consumer_seq), (LAST_STREAM, stream_seq)))
        self.host.publish(request.reply, None, block, b"")
        request.next_heartbeat = now + request.heartbeat

    def send_pending(self, request: WaitingRequest, status: Status) -> None:
        block = status_block(status, ((PENDING_MESSAGES, request.batch), (PENDING_BYTES, request.max_bytes)))
        self.host.publish(request.reply, None, block, b"")

    def send(self, reply: bytes, status: Status) -> None:
        self.host.publish(reply, None, _plain_block(status), b"")
