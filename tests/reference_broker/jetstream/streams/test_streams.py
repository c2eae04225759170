"""Streams on the pure core: PubAcks, duplicates, expectations, limits, retention, sizes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import LEVELS, OLDEST, Bench


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def publish(bench: Bench, subject: str, payload: bytes = b"", /, **headers: str) -> dict[str, Any]:
    """``Nats_Msg_Id="1"`` becomes the header ``Nats-Msg-Id: 1``."""
    fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return bench.request(subject, payload, encode_headers(fields) if fields else b"")


def error(answer: dict[str, Any]) -> str:
    assert (answer["seq"], "stream" in answer) == (0, True)
    return f"{answer['error']['err_code']} {answer['error']['description']}"


@pytest.mark.parametrize(
    ("level", "ack"), [(OLDEST, b'{"stream":"S", "seq":1}'), (NEWEST, b'{"stream":"S","seq":1}')]
)
def test_a_publish_is_acknowledged_without_headers(level: Level, ack: bytes) -> None:
    bench = Bench(level)
    bench.stream("S")
    bench.send("S", b"x", b"_INBOX.1")
    (sent,) = bench.sent
    assert (sent.target, sent.reply, sent.header_block, sent.payload) == (b"_INBOX.1", None, b"", ack)


def test_publish_without_reply_is_stored_and_unmatched_publish_is_not_handled(bench: Bench) -> None:
    bench.stream("S", subjects=["s.*"])
    assert bench.send("s.x") is True
    assert bench.send("t.x", b"", b"_INBOX.1") is False
    assert bench.sent == []
    assert bench.stream_state("S").startswith("msgs 1")


def test_duplicate_in_window_is_flagged_and_not_stored(bench: Bench) -> None:
    bench.stream("S", subjects=["s.*"], duplicate_window=SECOND)
    assert publish(bench, "s.a", b"hello1", Nats_Msg_Id="1")["seq"] == 1
    assert publish(bench, "s.b", b"hello2", Nats_Msg_Id="1") == {"stream": "S", "seq": 1, "duplicate": True}
    bench.advance(0.9)
    assert publish(bench, "s.a", Nats_Msg_Id="1")["duplicate"] is True
    bench.advance(0.2)
    assert publish(bench, "s.a", Nats_Msg_Id="1") == {"stream": "S", "seq": 2}


def test_expectations_that_do_not_hold_refuse_the_message(bench: Bench) -> None:
    bench.stream("S", subjects=["s.*"])
    publish(bench, "s.a", Nats_Msg_Id="1")
    refusals = [
        ({"Nats_Expected_Stream": "T"}, "10060 expected stream does not match"),
        ({"Nats_Expected_Last_Sequence": "7"}, "10071 wrong last sequence: 1"),
        ({"Nats_Expected_Last_Subject_Sequence": "1"}, "10071 wrong last sequence: 0"),
        ({"Nats_Expected_Last_Msg_Id": "2"}, "10070 wrong last msg ID: 1"),
        ({"Nats_Rollup": "sub"}, "10111 rollup not permitted"),
    ]
    for headers, expected in refusals:
        assert error(publish(bench, "s.b", b"", **headers)) == expected
    accepted = {
        "Nats_Expected_Stream": "S",
        "Nats_Expected_Last_Sequence": "1",
        "Nats_Expected_Last_Subject_Sequence": "0",
        "Nats_Expected_Last_Msg_Id": "1",
    }
    assert publish(bench, "s.b", b"", **accepted)["seq"] == 2


def test_rollup_leaves_only_the_new_message(bench: Bench) -> None:
    bench.stream("S", subjects=["s.*"], allow_rollup_hdrs=True)
    for subject in ("s.a", "s.b", "s.a"):
        publish(bench, subject)
    publish(bench, "s.a", Nats_Rollup="sub")
    assert bench.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"] == {"s.a": 1, "s.b": 1}
    publish(bench, "s.a", Nats_Rollup="all")
    assert bench.stream_state("S").endswith("first 5 last 5")


def test_no_ack_streams_never_answer(bench: Bench) -> None:
    bench.stream("S", no_ack=True)
    bench.send("S", b"x", b"_INBOX.1")
    assert bench.sent == []
    assert bench.stream_state("S").startswith("msgs 1")


@pytest.mark.parametrize(
    ("storage", "subject", "headers", "size"),
    [
        ("file", "abcd", b"", 39),
        ("file", "a", b"", 36),
        ("file", "abc", b"NATS/1.0\r\nBar: Baz\r\n\r\n", 34 + 3 + 22 + 5),
        ("memory", "abcd", b"", 25),
        ("memory", "abc", b"NATS/1.0\r\nBar: Baz\r\n\r\n", 16 + 3 + 22 + 5),
    ],
)
def test_record_sizes(storage: str, subject: str, headers: bytes, size: int) -> None:
    bench = Bench()
    bench.stream("S", subjects=[subject], storage=storage)
    bench.request(subject, b"hello", headers)
    assert f"bytes {size} " in bench.stream_state("S")


def test_discard_old_lets_the_oldest_go(bench: Bench) -> None:
    bench.stream("M", subjects=["m"], max_msgs=3)
    bench.stream("B", subjects=["b"], max_bytes=60)
    bench.stream("P", subjects=["p.*"], max_msgs_per_subject=1)
    for number in range(5):
        bench.request("m")
        bench.request("b", b"12345")
        bench.request(f"p.{number % 2}")
    assert bench.stream_state("M").endswith("first 3 last 5")
    assert bench.stream_state("B") == "msgs 2 bytes 44 first 4 last 5"
    assert bench.stream_state("P").startswith("msgs 2")


def test_discard_new_refuses(bench: Bench) -> None:
    bench.stream("M", subjects=["m"], max_msgs=1, discard="new")
    bench.stream("B", subjects=["b"], max_bytes=200, discard="new", storage="file")
    bench.stream("P", subjects=["p.*"], max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
    for subject in ("m", "b", "p.x"):
        bench.request(subject, b"x" * 90)
    assert error(bench.request("m")) == "10077 maximum messages exceeded"
    assert error(bench.request("b", b"x" * 120)) == "10077 maximum bytes exceeded"
    assert error(bench.request("p.x")) == "10077 maximum messages per subject exceeded"
    assert bench.request("p.y")["seq"] == 2


@pytest.mark.parametrize(("level", "refused"), [(OLDEST, False), (NEWEST, True)])
def test_before_2_10_record_overhead_does_not_count_for_discard_new(level: Level, refused: bool) -> None:
    bench = Bench(level)
    bench.stream("B", subjects=["b"], max_bytes=60, discard="new")
    answers = [bench.request("b", b"12345") for _ in range(3)]
    assert ("error" in answers[2]) is refused


def test_messages_too_large_are_refused(bench: Bench) -> None:
    bench.stream("S", max_msg_size=30)
    assert bench.request("S", b"x" * 30)["seq"] == 1
    assert error(publish(bench, "S", b"x" * 20, Name="value")) == (
        "10054 message size exceeds maximum allowed"
    )
    bench.stream("T")
    assert error(publish(bench, "T", Name="x" * 70_000)) == (
        "10097 header size exceeds maximum allowed of 64k"
    )


def test_max_age_lets_messages_go_in_time(bench: Bench) -> None:
    bench.stream("S", max_age=SECOND)
    bench.consumer("S", "C")
    bench.request("S", b"1")
    bench.advance(0.5)
    bench.request("S", b"2")
    bench.advance(0.6)
    assert bench.stream_state("S").endswith("first 2 last 2")
    assert "pending 1" in bench.state("S", "C")
    bench.advance(1)
    assert bench.stream_state("S") == "msgs 0 bytes 0 first 3 last 2"
    assert bench.jetstream.next_wake() is None


def test_an_update_enforces_new_limits_at_once(bench: Bench) -> None:
    bench.stream("S")
    for _ in range(6):
        bench.request("S")
    bench.api("STREAM.UPDATE.S", {"name": "S", "storage": "memory", "max_msgs": 2})
    assert bench.stream_state("S").endswith("first 5 last 6")


def test_a_work_queue_removes_what_is_acknowledged(bench: Bench) -> None:
    bench.stream("W", subjects=["w"], retention="workqueue")
    for _ in range(3):
        bench.request("w")
    bench.consumer("W", "C")
    first, second = bench.pull("W", "C", b"2")
    assert bench.stream_state("W").startswith("msgs 3")
    bench.send(first.reply or b"")
    bench.send(second.reply or b"", b"+TERM")
    assert bench.stream_state("W") == "msgs 1 bytes 17 first 3 last 3"


def test_interest_stream_keeps_message_until_all_consumers_acked(bench: Bench) -> None:
    bench.stream("I", subjects=["i.*"], retention="interest")
    assert bench.request("i.a")["seq"] == 1
    assert bench.stream_state("I") == "msgs 0 bytes 0 first 2 last 1"
    bench.consumer("I", "A")
    bench.consumer("I", "Z", filter_subject="i.z")
    for subject in ("i.a", "i.z"):
        bench.request(subject)
    for message in bench.pull("I", "A", b"2"):
        bench.send(message.reply or b"")
    assert bench.stream_state("I").endswith("first 3 last 3")
    bench.api("CONSUMER.DELETE.I.Z")
    assert bench.stream_state("I").startswith("msgs 0")


def test_sequences_go_on_after_a_purge(bench: Bench) -> None:
    bench.stream("S")
    for _ in range(10):
        bench.request("S")
    assert bench.api("STREAM.PURGE.S", {"seq": 3})["purged"] == 2
    assert bench.api("STREAM.PURGE.S", {"keep": 5})["purged"] == 3
    assert bench.api("STREAM.PURGE.S")["purged"] == 5
    assert bench.stream_state("S") == "msgs 0 bytes 0 first 11 last 10"
    assert bench.request("S")["seq"] == 11


def test_stream_info_lists_interior_deletes(bench: Bench) -> None:
    bench.stream("S")
    for _ in range(6):
        bench.request("S")
    bench.api("STREAM.MSG.DELETE.S", {"seq": 3})
    assert bench.error("STREAM.MSG.DELETE.S", {"seq": 3}) == "10043 sequence 3 not found"
    state = bench.api("STREAM.INFO.S", {"deleted_details": True})["state"]
    assert (state["messages"], state["num_deleted"], state["deleted"]) == (5, 1, [3])


def test_sealed_stream_rejects_changes(bench: Bench) -> None:
    bench.stream("S")
    bench.request("S")
    config = bench.api("STREAM.UPDATE.S", {"name": "S", "storage": "memory", "sealed": True})["config"]
    assert (config["deny_delete"], config["deny_purge"], config["discard"]) == (True, True, "new")
    assert error(bench.request("S")) == "10109 invalid operation on sealed stream"
    assert bench.error("STREAM.PURGE.S") == "10109 invalid operation on sealed stream"
    assert bench.error("STREAM.MSG.DELETE.S", {"seq": 1}) == "10109 invalid operation on sealed stream"


def test_captured_subjects_change_with_the_configuration(bench: Bench) -> None:
    bench.stream("S", subjects=["s"])
    assert bench.send("t") is False
    bench.api("STREAM.UPDATE.S", {"name": "S", "storage": "memory", "subjects": ["t"]})
    assert (bench.send("s"), bench.send("t")) == (False, True)
    bench.api("STREAM.DELETE.S")
    assert bench.send("t") is False


def test_advisories_are_published_and_captured(bench: Bench) -> None:
    bench.stream("EVENTS", subjects=["$JS.EVENT.ADVISORY.>"])
    bench.subscriptions.append(b"$JS.EVENT.>")
    bench.stream("S")
    created, audit = bench.sent
    assert created.target == b"$JS.EVENT.ADVISORY.STREAM.CREATED.S"
    assert b'"action":"create"' in created.payload
    assert audit.target == b"$JS.EVENT.ADVISORY.API"
    assert b'"subject":"$JS.API.STREAM.CREATE.S"' in audit.payload
    assert bench.stream_state("EVENTS").startswith("msgs 4")


def batch(bench: Bench, sequence: int, **more: str) -> dict[str, Any]:
    """A message of the batch b, and the answer; an empty one has no fields."""
    fields = [("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", str(sequence))]
    fields += [(name.replace("_", "-"), value) for name, value in more.items()]
    bench.send("s.a", b"", b"_INBOX.b", encode_headers(fields))
    answer: dict[str, Any] = msgspec.json.decode(bench.sent.pop().payload or b"{}")
    return answer


def test_a_batch_is_stored_when_it_is_committed() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"], allow_atomic=True)
    assert batch(bench, 1) == {}
    assert bench.stream_state("S").startswith("msgs 0")
    assert batch(bench, 2, Nats_Batch_Commit="1") == {"stream": "S", "seq": 2, "batch": "b", "count": 2}
    assert bench.stream_state("S").startswith("msgs 2")


def test_one_refused_message_refuses_its_batch() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"], allow_atomic=True)
    batch(bench, 1)
    refused = batch(bench, 2, Nats_Batch_Commit="1", Nats_Expected_Stream="T")
    assert error(refused) == "10060 expected stream does not match"
    assert bench.stream_state("S").startswith("msgs 0")


def test_abandoned_batch_is_dropped() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"], allow_atomic=True)
    batch(bench, 1)
    bench.advance(11)
    assert error(batch(bench, 2, Nats_Batch_Commit="1")) == "10176 atomic publish batch is incomplete"
