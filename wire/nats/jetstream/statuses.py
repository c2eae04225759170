"""The statuses and headers of JetStream's pull and push consumers.

A status comes as an HMSG without payload. Which of them ends a pull request, and with which headers:
ADR-37, "Status handling"; the texts are those of nats-server 2.9 to 2.15.
"""

from __future__ import annotations

from plumbline.wire.nats.headers import Status
from plumbline.wire.units import format_duration

IDLE_HEARTBEAT = Status(100, "Idle Heartbeat")
FLOW_CONTROL_REQUEST = Status(100, "FlowControl Request")
NO_MESSAGES = Status(404, "No Messages")
REQUEST_TIMEOUT = Status(408, "Request Timeout")
REQUESTS_PENDING = Status(408, "Requests Pending")
INTEREST_EXPIRED = Status(408, "Interest Expired")
BATCH_COMPLETED = Status(409, "Batch Completed")
CONSUMER_DELETED = Status(409, "Consumer Deleted")
CONSUMER_IS_PUSH_BASED = Status(409, "Consumer is push based")
EXCEEDED_MAX_WAITING = Status(409, "Exceeded MaxWaiting")
LEADERSHIP_CHANGE = Status(409, "Leadership Change")
MESSAGE_SIZE_EXCEEDS_MAX_BYTES = Status(409, "Message Size Exceeds MaxBytes")
SERVER_SHUTDOWN = Status(409, "Server Shutdown")
REQUIRED_API_LEVEL = Status(412, "Required Api Level")  # 2.12
WRONG_PIN_ID = Status(423, "Nats-Wrong-Pin-Id")  # ADR-42, 2.11
PIN_ID_MISMATCH = Status(423, "Nats-Pin-Id mismatch")  # ADR-42, 2.11
NO_RESPONDERS = Status(503)

# Beside a status that ends a pull: what of the request is left.
PENDING_MESSAGES = "Nats-Pending-Messages"
PENDING_BYTES = "Nats-Pending-Bytes"
# Beside a heartbeat: the sequences of the last delivery.
LAST_CONSUMER = "Nats-Last-Consumer"
LAST_STREAM = "Nats-Last-Stream"
# Beside a heartbeat of a push consumer that waits for flow control: the subject to answer on.
CONSUMER_STALLED = "Nats-Consumer-Stalled"
# Beside 503, since 2.11: the subject that had no subscriber.
SUBJECT = "Nats-Subject"
# On a message to a pinned client (ADR-42).
PIN_ID = "Nats-Pin-Id"


def bad_request(reason: str) -> Status:
    """400 for an invalid pull request."""
    return Status(400, f"Bad Request - {reason}")


def exceeded_max_request_batch(limit: int) -> Status:
    """409 for ``batch`` over the consumer's ``max_batch``."""
    return Status(409, f"Exceeded MaxRequestBatch of {limit}")


def exceeded_max_request_expires(limit: int) -> Status:
    """409 for ``expires`` over the consumer's ``max_expires``, in nanoseconds."""
    return Status(409, f"Exceeded MaxRequestExpires of {format_duration(limit)}")


def exceeded_max_request_max_bytes(limit: int) -> Status:
    """409 for ``max_bytes`` over the consumer's ``max_bytes``."""
    return Status(409, f"Exceeded MaxRequestMaxBytes of {limit}")
