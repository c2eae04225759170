"""What the headers of a published message ask a stream to check or do, and the de-duplication window.

Source: docs.nats.io, "Headers for publishing"; deep dive, "Message Deduplication".
"""

from __future__ import annotations

from msgspec import Struct

from plumbline.wire.errors import ProtocolError
from plumbline.wire.nats.headers import Headers
from plumbline.wire.units import read_number

MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST_SEQUENCE = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_LAST_MSG_ID = "Nats-Expected-Last-Msg-Id"
ROLLUP = "Nats-Rollup"
TTL = "Nats-TTL"
INCREMENT = "Nats-Incr"
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"
SCHEDULE_SOURCE = "Nats-Schedule-Source"
SCHEDULE_TTL = "Nats-Schedule-TTL"
SCHEDULE_ROLLUP = "Nats-Schedule-Rollup"
SCHEDULE_TIME_ZONE = "Nats-Schedule-Time-Zone"
SCHEDULE_NEXT = "Nats-Schedule-Next"
SCHEDULER = "Nats-Scheduler"
STREAM_SOURCE = "Nats-Stream-Source"


class Schedule(Struct, frozen=True):
    """When and where a message is to be published again (ADR-51, "Headers"); empty values mean absent, but an
    empty ``zone`` is one that is not known."""

    pattern: str = ""
    target: str = ""
    source: str = ""
    ttl: str = ""
    rollup: str = ""
    zone: str | None = None


class PublishHeaders(Struct, frozen=True):
    """The ``Nats-`` headers of one published message; empty values mean absent."""

    msg_id: str = ""
    expected_stream: str = ""
    expected_last_seq: int | None = None
    expected_last_subject_seq: int | None = None
    expected_last_subject: str = ""
    expected_last_msg_id: str = ""
    rollup: str = ""
    ttl: str = ""
    increment: str = ""
    schedule: Schedule = Schedule()
    scheduler: str = ""
    schedule_next: str = ""
    stream_source: str = ""


_NONE = PublishHeaders()


def read_directives(header_block: bytes) -> PublishHeaders:
    """A block that is no header block asks for nothing."""
    if b"Nats-" not in header_block:
        return _NONE
    try:
        get = Headers.parse(header_block).get
    except ProtocolError:
        return _NONE
    return PublishHeaders(
        msg_id=get(MSG_ID) or "",
        expected_stream=get(EXPECTED_STREAM) or "",
        expected_last_seq=_sequence(get(EXPECTED_LAST_SEQUENCE)),
        expected_last_subject_seq=_sequence(get(EXPECTED_LAST_SUBJECT_SEQUENCE)),
        expected_last_subject=get(EXPECTED_LAST_SUBJECT_SEQUENCE_SUBJECT) or "",
        expected_last_msg_id=get(EXPECTED_LAST_MSG_ID) or "",
        rollup=get(ROLLUP) or "",
        ttl=get(TTL) or "",
        increment=get(INCREMENT) or "",
        schedule=Schedule(
            pattern=get(SCHEDULE) or "",
            target=get(SCHEDULE_TARGET) or "",
            source=get(SCHEDULE_SOURCE) or "",
            ttl=get(SCHEDULE_TTL) or "",
            rollup=get(SCHEDULE_ROLLUP) or "",
            zone=get(SCHEDULE_TIME_ZONE),
        ),
        scheduler=get(SCHEDULER) or "",
        schedule_next=get(SCHEDULE_NEXT) or "",
        stream_source=get(STREAM_SOURCE) or "",
    )


def _sequence(text: str | None) -> int | None:
    """-1, which no sequence is, for what is no number."""
    if not text:
        return None
    number = read_number(text)
    return -1 if number is None else number


class Deduplication:
    """The message ids seen within the window, oldest first."""

    def __init__(self, window: int) -> None:
        self.window = window
        self._stored_ids: dict[str, tuple[int, int]] = {}  # id -> sequence, time

    def seq_of(self, msg_id: str, now: int) -> int | None:
        """Under which sequence a message with this id was stored, within the window."""
        self._forget(now)
        known = self._stored_ids.get(msg_id)
        return known[0] if known else None

    def remember(self, msg_id: str, seq: int, now: int) -> None:
        if self.window > 0:
            self._stored_ids.pop(msg_id, None)
            self._stored_ids[msg_id] = (seq, now)

    def _forget(self, now: int) -> None:
        limit = now - self.window
        for msg_id in self._expired(limit):
            del self._stored_ids[msg_id]

    def _expired(self, limit: int) -> list[str]:
        expired = []
        for msg_id, (_, stored) in self._stored_ids.items():
            if stored > limit:
                break
            expired.append(msg_id)
        return expired
