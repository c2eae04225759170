"""Numbers, mappings and subjects that no client means: the broker core refuses them and serves on."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.bounds import MAX_COPIES, MAX_COPY_DEPTH, MAX_MAPPING_CHARACTERS, MAX_TRANSFORMS
from plumbline.reference_broker.nats.sublist import Sublist
from plumbline.wire.nats.jetstream.times import format_time
from plumbline.wire.units import read_number
from tests.reference_broker.jetstream.bench import Bench

LONG = "9" * 5000  # int() raises for more than 4,300 digits
NO_NUMBERS = [LONG, "²", "\uff11", "-1", "+1", "1_0", " 1", "", "9" * 20]


def headers(name: str, value: str, more: str = "") -> bytes:
    return f"NATS/1.0\r\n{name}: {value}\r\n{more}\r\n".encode()


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_number_is_1_to_19_ascii_digits(text: str) -> None:
    assert read_number(text) is None
    assert read_number(text.encode()) is None


def test_the_largest_number_is_read() -> None:
    assert read_number("0" * 18 + "7") == 7
    assert read_number(b"9" * 19) == 10**19 - 1


@pytest.mark.parametrize("value", [LONG, "²", LONG + "s"])
@pytest.mark.parametrize(
    "name",
    ["Nats-TTL", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence", "Nats-Batch-Sequence"],
)
def test_a_publish_with_such_a_number_is_answered_with_an_error(name: str, value: str) -> None:
    bench = Bench()
    bench.stream("S", subjects=["s.>"], allow_msg_ttl=True, allow_atomic=True)
    batch = "Nats-Batch-Id: b\r\n" if "Batch" in name else ""
    assert "error" in bench.request("s.a", b"x", headers(name, value, batch))
    assert bench.request("s.a", b"x")["seq"] == 1


@pytest.mark.parametrize("value", [LONG, "²"])
def test_such_a_required_level_is_refused(value: str) -> None:
    bench = Bench()
    bench.stream("S")
    answer = bench.request("$JS.API.STREAM.INFO.S", b"", headers("Nats-Required-Api-Level", value))
    assert answer["error"]["err_code"] == 10185


@pytest.mark.parametrize("value", [LONG, "²", LONG + "%"])
def test_such_a_sampling_frequency_is_refused(value: str) -> None:
    bench = Bench()
    bench.stream("S")
    body = {
        "stream_name": "S",
        "config": {"durable_name": "C", "ack_policy": "explicit", "sample_freq": value},
    }
    assert "error" in bench.request("$JS.API.CONSUMER.DURABLE.CREATE.S.C", body)


@pytest.mark.parametrize("position", [4, 5, 6])
def test_an_acknowledgement_with_such_a_number_finds_no_consumer(position: int) -> None:
    bench = Bench()
    bench.stream("S")
    bench.consumer("S", "C")
    tokens = ["$JS", "ACK", "S", "C", *"11111"]
    tokens[position] = LONG
    assert not bench.send(".".join(tokens), b"+ACK", b"_INBOX.ack")


@pytest.mark.parametrize("number", [LONG[:1000], "0", "2"])
@pytest.mark.parametrize("form", ["q.${}", "q.{{{{wildcard({})}}}}"])
def test_a_mapping_is_checked_when_it_is_stored(form: str, number: str) -> None:
    bench = Bench()
    mapping = {"src": "t.*", "dest": form.format(number)}
    config = {"name": "T", "subjects": ["t.*"], "storage": "memory"}
    assert bench.error("STREAM.CREATE.T", {**config, "subject_transform": mapping}).startswith("10156 ")
    assert bench.error("STREAM.CREATE.T", {**config, "republish": mapping}).startswith("10052 ")
    bench.stream("T", subjects=["t.*"], subject_transform={"src": "t.*", "dest": form.format(1)})
    assert bench.request("t.a", b"x")["seq"] == 1


def test_a_mapping_that_makes_a_subject_huge_is_refused() -> None:
    mapping = {"src": "t.*", "dest": "$1" * MAX_MAPPING_CHARACTERS}
    refused = Bench().error(
        "STREAM.CREATE.T", {"name": "T", "subjects": ["t.*"], "subject_transform": mapping}
    )
    assert refused.startswith("10156 ")


@pytest.mark.parametrize(
    "fields",
    [
        {"subject_transform": {"src": 5, "dest": "a"}},
        {"subject_transform": {"src": "s", "dest": ["a"]}},
        {"republish": {"src": "s", "dest": 5}},
        {"mirror": {"name": 5}},
        {"sources": [{"name": "A", "opt_start_seq": "x"}]},
        {"sources": [{"name": "A", "filter_subject": {}}]},
        {"sources": [{"name": "A", "external": "x"}]},
        {"sources": [{"name": "A", "subject_transforms": {"src": "a"}}]},
        {"mirror": {"name": "A", "subject_transforms": [{"src": "a", "dest": 5}]}},
        {"mirror": {"name": "A", "subject_transforms": [None]}},
    ],
)
def test_objects_of_a_configuration_have_the_types_that_are_read(fields: dict[str, Any]) -> None:
    bench = Bench()
    assert bench.error("STREAM.CREATE.S", {"name": "S", **fields}).startswith("10025 ")
    bench.stream("S", subjects=["s.*"])
    assert bench.request("s.a", b"x")["seq"] == 1


def test_a_mirror_with_very_many_transforms_is_refused() -> None:
    transforms = [{"src": f"a.{number}", "dest": "b"} for number in range(MAX_TRANSFORMS + 1)]
    config = {"name": "M", "mirror": {"name": "A", "subject_transforms": transforms}}
    assert Bench().error("STREAM.CREATE.M", config).startswith("10151 ")


def test_the_api_of_a_source_may_be_anything() -> None:
    bench = Bench()
    bench.stream("A", subjects=["a"])
    bench.stream("S", sources=[{"name": "A", "external": {"api": ["x"]}}])
    assert bench.request("a", b"x")["seq"] == 1


def test_null_in_an_object_of_a_configuration_is_no_value() -> None:
    bench = Bench()
    bench.stream(
        "S", subjects=["s.*"], subject_transform={"src": None, "dest": "t.>"}, republish={"src": None}
    )
    assert bench.request("s.a", b"x")["seq"] == 1


def test_times_beyond_the_calendar_are_shown_as_its_ends() -> None:
    assert format_time(10**30) == "9999-12-31T23:59:59.999999999Z"
    assert format_time(-(10**30)) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize("token", [b"a", b"*"])
def test_a_subject_may_have_any_number_of_tokens(token: bytes) -> None:
    sublist: Sublist[str] = Sublist()
    deep = b".".join([b"*"] + [token] * 2047)
    sublist.insert(deep, "deep")
    assert sublist.match(b".".join([b"a"] * 2048)) == ["deep"]
    assert sublist.match(b".".join([b"a"] * 2047)) == []
    sublist.remove(deep, "deep")
    assert sublist.match(b".".join([b"a"] * 2048)) == []


def test_the_widest_subscription_comes_first() -> None:
    sublist: Sublist[str] = Sublist()
    patterns = ["a.b", "a.*", "*.b", "a.>", "*.*", ">", "*.>"]
    for pattern in patterns:
        sublist.insert(pattern.encode(), pattern)
    assert sublist.match(b"a.b") == [">", "*.>", "*.*", "*.b", "a.>", "a.*", "a.b"]


@pytest.mark.parametrize("kind", ["sources", "republish"])
def test_streams_that_copy_from_each_other_end(kind: str) -> None:
    bench = Bench()
    for name, other in ("AB", "BA"):
        how = [{"name": other}] if kind == "sources" else {"src": f"{name}.*", "dest": f"{other}.$1"}
        bench.stream(name, subjects=[f"{name}.*"], **{kind: how})
    assert bench.request("A.x", b"x")["seq"] >= 1
    counts = [bench.api(f"STREAM.INFO.{name}")["state"]["messages"] for name in "AB"]
    assert counts == [1, 1]


def test_a_long_row_of_copies_and_many_of_them_are_bounded() -> None:
    bench = Bench()
    bench.stream("S0", subjects=["a"])
    for number in range(1, 400):
        bench.stream(f"S{number}", sources=[{"name": f"S{number - 1}"}])
    assert bench.request("a", b"x")["seq"] == 1
    counts = [bench.api(f"STREAM.INFO.S{number}")["state"]["messages"] for number in range(400)]
    assert counts == [1] * (MAX_COPY_DEPTH + 1) + [0] * (399 - MAX_COPY_DEPTH)


def test_copies_that_multiply_are_bounded() -> None:
    bench = Bench()
    bench.stream("L0-0", subjects=["a"])
    above = ["L0-0"]
    for layer in range(1, 12):
        here = [f"L{layer}-{number}" for number in range(3)]
        for name in here:
            bench.stream(name, sources=[{"name": source} for source in above])
        above = here
    assert bench.request("a", b"x")["seq"] == 1
    names = bench.api("STREAM.NAMES")["streams"]
    stored = sum(bench.api(f"STREAM.INFO.{name}")["state"]["messages"] for name in names)
    assert 100 < stored <= MAX_COPIES + 1


def test_a_mirror_does_not_count_to_a_sequence_that_is_far_away() -> None:
    bench = Bench()
    bench.stream("S", subjects=["s"])
    bench.stream("M", mirror={"name": "S"})
    bench.request("s", b"x")
    bench.api("STREAM.DELETE.S")
    bench.stream("S", subjects=["s"], first_seq=2**62)
    assert bench.request("s", b"x")["seq"] == 2**62
    assert bench.api("STREAM.INFO.M")["state"]["messages"] == 1
