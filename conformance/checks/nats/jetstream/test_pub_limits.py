"""Limits whose arithmetic depends on the size of a record, which names make longer. The deep dive."""

from __future__ import annotations

import json

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed

STORE_FAILED = 10077
PAYLOAD = b"0123456789"
SOURCE = 'JetStream Model Deep Dive, "Stream Limits, Retention, and Policy"'


@verifies("JS-PUB-036", source=SOURCE)
def test_max_bytes_counts_whole_records_in_memory(session: NatsSession) -> None:
    """In memory, discard new refuses a message whose payload would fit and whose record does not."""
    _refuses_by_the_record(session, "memory")


@verifies("JS-PUB-038", source=SOURCE)
def test_max_bytes_counts_whole_records_in_files(session: NatsSession) -> None:
    """In files, discard new refuses a message whose payload would fit and whose record does not."""
    _refuses_by_the_record(session, "file")


def _refuses_by_the_record(session: NatsSession, storage: str) -> None:
    stage = session.stage
    measured, subject = session.name("a"), session.name("b")
    stream = stage.stream("MEASURED", [measured], storage=storage)
    stage.publish(measured, PAYLOAD)
    record = stage.await_stream(stream, messages=1)["state"]["bytes"]
    # Two records and a payload fit; three records are two bytes too many.
    stream = stage.stream("LIMITED", [subject], storage=storage, discard="new", max_bytes=3 * record - 2)
    stage.publish(subject, PAYLOAD)
    stage.publish(subject, PAYLOAD)
    operation = stage.request(subject, PAYLOAD)
    try:
        err_code = json.loads(operation.payload)["error"]["err_code"]
    except (ValueError, TypeError, KeyError):
        err_code = None
    if err_code != STORE_FAILED:
        raise Failed(
            "the third message was not refused", expected=f"err_code {STORE_FAILED}", actual=str(operation)
        )
    stage.expect_stream(stream, messages=2, first_seq=1, last_seq=2)
