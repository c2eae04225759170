"""Headers of a publish that are no text: an answer, as to any other."""

from __future__ import annotations

from itertools import product

import pytest

from plumbline.reference_broker.nats.jetstream.streams import batches, publish
from plumbline.wire.json_text import json_object
from tests.reference_broker.jetstream.bench import INBOX, Bench

HEADERS = sorted(
    {
        value
        for module in (publish, batches)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith("Nats-")
    }
)
NO_TEXT = (b"\xff\xfe", b"\xed\xa0\x80", "\u0661".encode(), b"\x00", b"", b"-1", b"9" * 5000)
BESIDE: tuple[dict[str, str], ...] = (  # what lets a server read the header under test
    {},
    {publish.EXPECTED_LAST_SUBJECT_SEQUENCE: "0"},
    {publish.SCHEDULE: "@every 1s", publish.SCHEDULE_TARGET: "s.b"},
    {batches.BATCH_ID: "x", batches.BATCH_SEQUENCE: "1"},
)
ALLOWED = ("allow_rollup_hdrs", "allow_msg_ttl", "allow_msg_schedules", "allow_atomic")


@pytest.mark.parametrize("header", HEADERS)
def test_a_publish_is_answered_once(header: str) -> None:
    bench = Bench()
    bench.stream("S", subjects=["s.*"], **dict.fromkeys(ALLOWED, True))
    bench.stream("C", subjects=["c.*"], allow_msg_counter=True)
    for value, beside, subject in product(NO_TEXT, BESIDE, ("s.a", "c.a")):
        others = "".join(f"{name}: {text}\r\n" for name, text in beside.items() if name != header)
        block = b"NATS/1.0\r\n%b%b: %b\r\n\r\n" % (others.encode(), header.encode(), value)
        bench.sent.clear()
        bench.send(subject, b"1", INBOX, block)
        answers = [sent for sent in bench.sent if sent.target == INBOX]
        assert len(answers) == 1, (value, beside, subject)
        assert not answers[0].payload or isinstance(json_object(answers[0].payload), dict)
