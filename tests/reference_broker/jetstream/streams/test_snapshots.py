"""STREAM.SNAPSHOT and STREAM.RESTORE on the pure core: the flow of pieces, what is restored, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.reference_broker.nats.jetstream.streams.archive import masked_crc
from tests.reference_broker.jetstream.bench import Bench

PIECES = b"pieces"


def with_stream(**config: Any) -> Bench:
    """Ten messages of 200 bytes, of which the third and the last are deleted, and a consumer."""
    bench = Bench()
    bench.stream("S", subjects=["s.*"], **config)
    for number in range(10):
        bench.request("s.a", b"%d" % number * 200)
    bench.consumer("S", "C")
    bench.pull("S", "C", {"batch": 2})
    for seq in (3, 10):
        bench.api("STREAM.MSG.DELETE.S", {"seq": seq})
    bench.sent.clear()
    bench.subscribe(PIECES)
    return bench


def snapshot(bench: Bench, **options: Any) -> list[tuple[bytes | None, bytes, str]]:
    """Reply subject, data and status of what comes at once."""
    bench.api("STREAM.SNAPSHOT.S", {"deliver_subject": "pieces", **options})
    return taken(bench, 0.0)


def taken(bench: Bench, seconds: float) -> list[tuple[bytes | None, bytes, str]]:
    bench.advance(seconds)
    found = [(one.reply, one.payload, one.status) for one in bench.sent if one.target == PIECES]
    bench.sent.clear()
    return found


def archive(bench: Bench) -> bytes:
    return b"".join(data for _, data, _ in snapshot(bench, chunk_size=1024))


def restore(bench: Bench, data: bytes, **config: Any) -> dict[str, Any]:
    """The last answer."""
    body = {"config": {"name": "S", "subjects": ["s.*"], "storage": "memory", **config}, "state": {}}
    subject = bench.api("STREAM.RESTORE.S", body)["deliver_subject"]
    for start in range(0, len(data), 1000):
        bench.send(subject, data[start : start + 1000], b"_INBOX.piece")
        assert bench.sent.pop().payload == b""
    return bench.request(subject)


def test_no_more_than_the_window_is_under_way() -> None:
    bench = with_stream()
    first = snapshot(bench, chunk_size=1024, window_size=2048)
    assert [(len(data), status) for _, data, status in first] == [(1024, ""), (1024, "")]
    assert taken(bench, 4.9) == []
    (ack, _, _), (following, _, _) = first
    assert ack is not None
    assert following is not None
    assert ack.startswith(b"$JS.SNAPSHOT.ACK.S.")
    assert (ack[-7:], following[-7:]) == (b".1024.1", b".1024.2")
    bench.send(ack)
    third, end = taken(bench, 0.0)
    assert third[0] is None, "the last piece is not acknowledged"
    assert end[1:] == (b"", "204")
    assert taken(bench, 10) == []


def test_a_receiver_that_does_not_answer_gets_408() -> None:
    bench = with_stream()
    snapshot(bench, chunk_size=1024, window_size=1024)
    assert taken(bench, 5.1) == [(None, b"", "408 No Flow Response")]


def test_pieces_wait_for_a_receiver() -> None:
    bench = with_stream()
    bench.unsubscribe(PIECES)
    assert snapshot(bench) == []
    bench.advance(1)
    bench.subscribe(PIECES)
    assert [len(data) > 0 for _, data, _ in taken(bench, 0.2)] == [True, False]


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a_restored_stream_is_as_it_was(storage: str) -> None:
    bench = with_stream(storage=storage)
    before, consumer = bench.api("STREAM.INFO.S"), bench.state("S", "C")
    data = archive(bench)
    bench.api("STREAM.DELETE.S")
    answer = restore(bench, data, storage=storage)
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response"
    after = bench.api("STREAM.INFO.S")
    assert (after["state"], after["config"]) == (before["state"], before["config"])
    assert bench.state("S", "C") == consumer
    assert bench.request("s.a")["seq"] == 11
    assert bench.api("STREAM.MSG.GET.S", {"seq": 4})["message"]["subject"] == "s.a"


def test_what_is_not_whole_or_changed_is_not_restored() -> None:
    bench = with_stream()
    data = archive(bench)
    bench.api("STREAM.DELETE.S")
    changed = data.replace(b"4" * 50, b"5" * 50)
    for broken in (b"", b"x", data[:-1], data[:14], changed):
        assert restore(bench, broken)["error"]["err_code"] == 10062
        assert bench.error("STREAM.INFO.S") == "10059 stream not found"


def test_a_restore_without_pieces_is_given_up() -> None:
    bench = with_stream()
    data = archive(bench)
    bench.api("STREAM.DELETE.S")
    subject = bench.api("STREAM.RESTORE.S", {"config": {"name": "S"}})["deliver_subject"]
    bench.advance(5.1)
    bench.send(subject, data, b"_INBOX.piece")
    assert bench.sent == []


def test_refusals() -> None:
    bench = with_stream()
    assert bench.error("STREAM.SNAPSHOT.S") == "10003 bad request"
    assert bench.error("STREAM.SNAPSHOT.T", {"deliver_subject": "x"}) == "10059 stream not found"
    assert bench.error("STREAM.SNAPSHOT.S", {"deliver_subject": "x.*"}) == "10015 deliver subject not valid"
    assert bench.error("STREAM.RESTORE.S") == "10003 bad request"
    body = {"config": {"name": "S", "subjects": ["s.*"]}}
    assert bench.error("STREAM.RESTORE.S", body) == "10130 stream name already in use, cannot restore"
    assert bench.error("STREAM.RESTORE.T", body).startswith("10056 ")


def test_crc_32c() -> None:
    # RFC 3720, appendix B.4: 32 bytes of zeroes have 8a9136aa; masked as the framing format says
    crc = 0x8A9136AA
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc(bytes(32)) == masked.to_bytes(4, "little")
