"""The API's own manners: what is answered at all, counting, paging, strictness."""

from __future__ import annotations

import pytest

from plumbline.reference_broker.nats.levels import NEWEST, Level
from tests.reference_broker.jetstream.bench import LEVELS, OLDEST, Bench


@pytest.fixture(params=LEVELS, ids=("2.9", "newest"))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


@pytest.mark.parametrize("verb", ["BOGUS.X", "STREAM.CREATE", "STREAM.INFO.A.B", "CONSUMER.INFO.A", "INFO.X"])
def test_an_unknown_request_gets_silence_and_no_503(bench: Bench, verb: str) -> None:
    assert bench.send(f"$JS.API.{verb}", b"", b"_INBOX.1") is True
    assert bench.sent == []


def test_a_request_without_reply_is_carried_out_in_silence(bench: Bench) -> None:
    bench.send("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    assert bench.sent == []
    assert bench.api("STREAM.NAMES")["streams"] == ["S"]


def test_requests_and_errors_are_counted(bench: Bench) -> None:
    before = bench.api("INFO")["api"]
    bench.error("STREAM.INFO.NOPE")
    after = bench.api("INFO")["api"]
    assert (after["total"] - before["total"], after["errors"] - before["errors"]) == (2, 1)


def test_lists_are_sorted_and_paged(bench: Bench) -> None:
    for name in ("c", "a", "b"):
        bench.stream(name)
    assert bench.api("STREAM.NAMES", {"offset": 1})["streams"] == ["b", "c"]
    last = bench.api("STREAM.NAMES", {"offset": 9})
    assert (last["total"], last["offset"], last["limit"], last["streams"]) == (3, 3, 1024, None)
    listed = bench.api("STREAM.LIST", {"offset": 2})
    assert [stream["config"]["name"] for stream in listed["streams"]] == ["c"]
    assert listed["limit"] == 256


def test_a_stream_is_created_again_only_with_the_same_configuration(bench: Bench) -> None:
    bench.stream("S", subjects=["s"])
    assert bench.stream("S", subjects=["s"])["did_create"] is True
    error = bench.error("STREAM.CREATE.S", {"name": "S", "subjects": ["t"]})
    assert error == "10058 stream name already in use with a different configuration"


def test_a_field_that_is_null_is_not_given(bench: Bench) -> None:
    bench.stream("S", subjects=["s"])
    bench.send("s", b"1")
    info = bench.api("STREAM.INFO.S", {"offset": None, "subjects_filter": None})
    assert info["state"]["messages"] == 1
    got = bench.api("STREAM.MSG.GET.S", {"seq": 1, "last_by_subj": None, "next_by_subj": None})
    assert got["message"]["subject"] == "s"
    created = bench.api(
        "STREAM.CREATE.T", {"name": "T", "subjects": None, "placement": None, "sources": None}
    )
    assert created["config"]["name"] == "T"


@pytest.mark.parametrize(("level", "refused"), [(OLDEST, False), (NEWEST, True)])
def test_unknown_keys_are_refused_since_2_12(level: Level, refused: bool) -> None:
    bench = Bench(level)
    answer = bench.request("$JS.API.STREAM.CREATE.S", {"name": "S", "frobnicate": 1})
    assert ("error" in answer) is refused
    bench.stream("T")
    config = {"durable_name": "C", "frobnicate": 1}
    answer = bench.request("$JS.API.CONSUMER.DURABLE.CREATE.T.C", {"stream_name": "T", "config": config})
    assert ("error" in answer) is refused


@pytest.mark.parametrize("body", [b"{bad", b"[]", b'"x"', b"{" * 5000, b'{"name":1}', b"\xff\xfe", b"null"])
def test_bodies_that_are_no_configuration_are_invalid_json(bench: Bench, body: bytes) -> None:
    assert bench.error("STREAM.CREATE.S", body).startswith("10025 invalid JSON")


@pytest.mark.parametrize(("level", "refused"), [(OLDEST, False), (NEWEST, True)])
def test_a_required_api_level_above_ours_is_refused_since_2_12(level: Level, refused: bool) -> None:
    bench = Bench(level)
    answer = bench.request("$JS.API.INFO", b"", b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n")
    assert (answer.get("error", {}).get("err_code") == 10185) is refused


def test_a_stored_message_comes_back_with_its_headers(bench: Bench) -> None:
    bench.stream("S")
    bench.request("S", b"hello", b"NATS/1.0\r\nX: 1\r\n\r\n")
    message = bench.api("STREAM.MSG.GET.S", {"seq": 1})["message"]
    assert message == {
        "subject": "S",
        "seq": 1,
        "hdrs": "TkFUUy8xLjANClg6IDENCg0K",
        "data": "aGVsbG8=",
        "time": "2026-11-21T07:13:04Z",
    }


def test_account_info_sums_what_is_stored(bench: Bench) -> None:
    bench.stream("S")
    bench.stream("T", storage="file")
    bench.consumer("S", "C")
    bench.request("S", b"12345")
    bench.request("T", b"12345")
    info = bench.api("INFO")
    assert (info["streams"], info["consumers"], info["memory"], info["storage"]) == (2, 1, 22, 36)
