"""Mirrors, sources, republishing, transforms and pauses on the pure core; subject mappings by themselves."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping
from plumbline.reference_broker.nats.levels import NEWEST
from plumbline.wire.units import SECOND
from tests.reference_broker.jetstream.bench import OLDEST, Bench


@pytest.mark.parametrize(
    ("src", "dest", "subject", "mapped"),
    [
        ("a.>", "b.>", b"a.x.y", b"b.x.y"),
        ("a.*.*", "b.$2.$1", b"a.x.y", b"b.y.x"),
        ("a.*", "b.{{wildcard(1)}}", b"a.x", b"b.x"),
        ("a.*", "b.{{ Wildcard(1) }}.c", b"a.x", b"b.x.c"),
        ("a", "b", b"a", b"b"),
        ("", "b.>", b"a.x", b"b.a.x"),
        ("a.*", "", b"a.x", b"a.x"),
        ("a.*", "b", b"a.x.y", None),
    ],
)
def test_a_mapping_fills_its_target_with_what_the_wildcards_took(
    src: str, dest: str, subject: bytes, mapped: bytes | None
) -> None:
    assert mapping(src, dest)(subject) == mapped


def test_a_source_takes_what_its_transforms_match_under_their_subjects() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.>"])
    for subject in ("s.a.1", "s.b.1", "s.c.1"):
        bench.send(subject)
    transforms = [{"src": "s.a.*", "dest": "new.{{wildcard(1)}}"}, {"src": "s.b.>", "dest": ""}]
    bench.stream("T", sources=[{"name": "S", "subject_transforms": transforms}])
    stored = [bench.api("STREAM.MSG.GET.T", {"seq": seq})["message"] for seq in (1, 2)]
    assert [message["subject"] for message in stored] == ["new.1", "s.b.1"]
    assert bench.api("STREAM.INFO.T")["state"]["messages"] == 2


def test_a_mirror_takes_what_its_filters_match_under_its_sequence() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.>"])
    for subject in ("s.a.1", "s.b.1", "s.a.2"):
        bench.send(subject)
    bench.stream("T", mirror={"name": "S", "subject_transforms": [{"src": "s.a.*", "dest": "new.$1"}]})
    bench.stream("U", mirror={"name": "S", "filter_subject": "s.b.>"})
    stored = [bench.api("STREAM.MSG.GET.T", {"seq": seq})["message"] for seq in (1, 3)]
    assert [message["subject"] for message in stored] == ["new.1", "new.2"]
    assert bench.api("STREAM.MSG.GET.U", {"seq": 2})["message"]["subject"] == "s.b.1"
    assert [bench.api(f"STREAM.INFO.{name}")["state"]["messages"] for name in "TU"] == [2, 1]


def test_each_of_two_sources_of_one_stream_takes_what_both_match() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"])
    bench.send("s.a")
    bench.stream("T", sources=[{"name": "S", "filter_subject": "s.a"}, {"name": "S"}])
    bench.send("s.a")
    assert bench.api("STREAM.INFO.T")["state"]["messages"] == 4


def test_transforms_of_an_origin_mean_nothing_to_levels_before_them() -> None:
    bench = Bench(OLDEST)
    bench.stream("S", subjects=["s"])
    bench.send("s")
    transforms = [{"src": "s", "dest": "t"}]
    bench.stream("T", sources=[{"name": "S", "subject_transforms": transforms}])
    bench.stream("U", mirror={"name": "S", "subject_transforms": transforms})
    for name in "TU":
        assert bench.api(f"STREAM.MSG.GET.{name}", {"seq": 1})["message"]["subject"] == "s"


@pytest.mark.parametrize(
    ("fields", "err_code"),
    [
        ({"sources": [{"name": "S"}, {"name": "S"}]}, 10140),
        ({"sources": [{"name": "S", "subject_transforms": [{"src": "a..b", "dest": "x"}]}]}, 10145),
        ({"mirror": {"name": "S", "subject_transforms": [{"src": "a..b", "dest": "x"}]}}, 10151),
        ({"subject_transform": {"src": "a..b", "dest": "x"}}, 10155),
    ],
)
def test_subjects_of_transforms_are_valid_and_no_source_is_there_twice(
    fields: dict[str, Any], err_code: int
) -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s"])
    answer = bench.request("$JS.API.STREAM.CREATE.T", {"name": "T", "storage": "memory", **fields})
    assert answer["error"]["err_code"] == err_code


@pytest.mark.parametrize(("allowed", "left"), [(True, 0), (False, 1)])
def test_a_copy_goes_when_its_lifetime_is_over_where_the_stream_allows_lifetimes(
    *, allowed: bool, left: int
) -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s"], allow_msg_ttl=True)
    bench.stream("T", mirror={"name": "S"}, allow_msg_ttl=allowed)
    bench.stream("U", sources=[{"name": "S"}], allow_msg_ttl=allowed)
    bench.send("s", headers=b"NATS/1.0\r\nNats-TTL: 2\r\n\r\n")
    for seconds, messages in ((1.5, 1), (1, left)):
        bench.advance(seconds)
        assert [bench.api(f"STREAM.INFO.{name}")["state"]["messages"] for name in "TU"] == [messages] * 2


def test_a_source_begins_at_its_start_time() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s"])
    bench.send("s")
    bench.advance(10)
    start = bench.api("STREAM.INFO.S")["ts"]
    bench.advance(10)
    bench.send("s")
    bench.stream("T", sources=[{"name": "S", "opt_start_time": start}])
    assert bench.api("STREAM.INFO.T")["state"]["messages"] == 1


def test_mirror_copies_old_and_new_messages_with_gaps() -> None:
    bench = Bench(NEWEST)
    bench.stream("S", subjects=["s.*"])
    for _ in range(3):
        bench.send("s.a")
    bench.api("STREAM.MSG.DELETE.S", {"seq": 2})
    bench.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}, "storage": "memory"})
    bench.send("s.b")
    state = bench.api("STREAM.INFO.M")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 1, 4)
    assert bench.error("STREAM.MSG.GET.M", {"seq": 2}) == "10037 no message found"


def test_mirror_after_purge_keeps_origin_sequences() -> None:
    bench = Bench(NEWEST)
    bench.stream("S")
    for _ in range(3):
        bench.send("S")
    bench.api("STREAM.PURGE.S", {"seq": 3})
    bench.api("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}, "storage": "memory"})
    state = bench.api("STREAM.INFO.M")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (1, 3, 3)


@pytest.mark.parametrize(("level", "source"), [(OLDEST, "S 2"), (NEWEST, "S 2 s.b > s.b")])
def test_a_source_gives_what_its_filter_lets_through_and_is_named(
    level: tuple[int, ...], source: str
) -> None:
    bench = Bench(level)
    bench.stream("S", subjects=["s.*"])
    bench.send("s.a")
    bench.send("s.b")
    sources = [{"name": "S", "filter_subject": "s.b"}]
    bench.api("STREAM.CREATE.C", {"name": "C", "sources": sources, "storage": "memory"})
    message = bench.api("STREAM.MSG.GET.C", {"last_by_subj": "s.b"})["message"]
    assert message["seq"] == 1
    assert f"Nats-Stream-Source: {source}\r\n" in base64.b64decode(message["hdrs"]).decode()


def test_republished_message_has_the_last_sequence_of_its_subject() -> None:
    bench = Bench(NEWEST)
    bench.subscriptions.append(b"copy.>")
    bench.stream("S", subjects=["s.*"], republish={"src": "s.*", "dest": "copy.$1"})
    for subject in ("s.a", "s.b", "s.a"):
        bench.send(subject, b"x")
    last = [sent for sent in bench.sent if sent.target.startswith(b"copy.")][-1]
    assert last.target == b"copy.a"
    assert b"Nats-Sequence: 3\r\n" in last.header_block
    assert last.header_block.endswith(b"Nats-Last-Sequence: 1\r\n\r\n")


def test_a_message_republished_after_an_update_has_the_sequence_of_the_one_before() -> None:
    bench = Bench(NEWEST)
    bench.subscriptions.append(b"copy.>")
    bench.stream("S", subjects=["s.*"])
    bench.send("s.a")
    fields = {"name": "S", "subjects": ["s.*"], "republish": {"src": "s.*", "dest": "copy.$1"}}
    bench.api("STREAM.UPDATE.S", {**fields, "storage": "memory", "max_msgs_per_subject": 1})
    bench.send("s.a")
    bench.api("STREAM.PURGE.S")
    bench.send("s.a")
    headers = [sent.header_block for sent in bench.sent if sent.target == b"copy.a"]
    assert [block.split(b"Nats-Last-Sequence: ")[1] for block in headers] == [b"1\r\n\r\n", b"0\r\n\r\n"]


def test_subject_transform_applies_and_older_levels_ignore_it() -> None:
    for level, stored in ((OLDEST, "s.a"), (NEWEST, "t.a")):
        bench = Bench(level)
        bench.stream("S", subjects=["s.*"], subject_transform={"src": "s.>", "dest": "t.>"})
        bench.send("s.a")
        assert bench.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["subject"] == stored


def test_a_pause_ends_by_itself() -> None:
    bench = Bench(NEWEST)
    bench.stream("S")
    bench.consumer("S", "C")
    bench.send("S", b"x")
    paused = bench.api("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})
    assert (paused["paused"], bench.api("CONSUMER.INFO.S.C")["paused"]) == (True, True)
    assert bench.pull("S", "C") == []
    remaining = paused["pause_remaining"] / SECOND
    assert [(sent.payload, sent.at == remaining) for sent in bench.advance(remaining)] == [(b"x", True)]
