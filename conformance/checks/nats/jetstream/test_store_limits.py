"""How limits count what is stored. The JetStream deep dive, "Storage Overhead"."""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession

RECORD = 30  # bytes around subject and payload, in files
PAYLOAD = b"hello"


@verifies("JS-STORE-015", source='JetStream Model Deep Dive, "Storage Overhead"')
def test_max_bytes_counts_whole_records(session: NatsSession) -> None:
    """Two records fit into max_bytes of two records and a little, three do not."""
    subject = session.name("s")
    record = RECORD + len(subject) + len(PAYLOAD)
    stream = session.stage.stream("S", [subject], storage="file", max_bytes=2 * record + RECORD)
    for _ in range(5):
        session.stage.publish(subject, PAYLOAD)
    session.stage.expect_stream(stream, messages=2, bytes=2 * record, first_seq=4, last_seq=5)
