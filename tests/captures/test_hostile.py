"""Captures that are damaged, or were never recorded: commands refuse them or show what they can read."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest

from plumbline import bounds
from plumbline.captures import diff_reports, trace_writer
from plumbline.captures.diff import compare
from plumbline.captures.files import read
from plumbline.captures.operations import OperationRow
from plumbline.captures.packets import ACK, SYN, PacketFlow
from plumbline.captures.pcapng import block, interface, packet, section_header
from plumbline.captures.plain import parsed_json, plain, plain_text
from plumbline.captures.reader import CaptureError, CaptureParser
from plumbline.captures.show import as_json, as_text, clock
from plumbline.captures.trace_text import TraceHeader
from plumbline.pipeline.audit.captures import AuditReader
from plumbline.pipeline.audit.reports import as_json as audit_json
from plumbline.pipeline.audit.reports import as_text as audit_text
from plumbline.pipeline.input.files import (
    NS_OF_DAY,
    CaptureProblem,
    Section,
    capture_files,
    packets,
    sections,
)
from plumbline.wire.amqp import PROTOCOL_HEADER, Method
from plumbline.wire.sender import Direction
from tests.cli.command import PLUMBLINE, ROOT, environment, one_sentence
from tests.fuzz.capture_samples import SAMPLES
from tests.patience import HANGS_AFTER_S

ASKS, ANSWERS = Direction.TO_SERVER, Direction.TO_CLIENT
HEAD = section_header("tests") + interface("i", "d")
OPENING = ((ANSWERS, b'INFO {"server_id":"X"}\r\n'), (ASKS, b"CONNECT {}\r\n"))
SHORT_BLOCKS = {
    "interface": section_header("tests") + block(1, b""),
    "simple packet": HEAD + block(3, b""),
    "enhanced packet": HEAD + block(6, bytes(8)),
    "obsolete packet": HEAD + block(2, bytes(8)),
}


class Int32(int):
    """As AMQP tables have integers of several sizes."""


DEEP = b'{"a":' * 8000 + b"1" + b"}" * 8000


def conversation(*spoken: tuple[Direction, bytes], comment: str = "", port: int = 4222) -> bytes:
    """One connection."""
    flow = PacketFlow(1, ("10.0.0.1", 40000), ("10.0.0.2", port))
    parts = [HEAD]
    packet(parts, 1, flow.head(ASKS, 0, SYN), b"", (comment,) if comment else ())
    packet(parts, 2, flow.head(ANSWERS, 0, SYN | ACK), b"")
    for place, (direction, data) in enumerate(spoken):
        packet(parts, place + 3, flow.head(direction, len(data)), data)
    return b"".join(parts)


def written(folder: Path, content: bytes, name: str = "a.pcapng") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


def nats(*spoken: tuple[Direction, bytes]) -> bytes:
    return conversation(*OPENING, *spoken)


def with_offset(seconds: int) -> bytes:
    """All times are that much later."""
    options = struct.pack("<HHq", 14, 8, seconds) + bytes(4)
    start = section_header("tests") + block(1, struct.pack("<HHI", 101, 0, 0) + options)
    return start + nats((ASKS, b"PING\r\n"))[len(HEAD) :]


def shown(path: Path) -> list[OperationRow]:
    rows = list(read([path]))
    for row in rows:
        as_text(row).encode()
        json.loads(as_json(row))
    return rows


@pytest.mark.parametrize("name", SHORT_BLOCKS)
def test_a_block_that_is_too_short_is_a_damaged_capture(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, SHORT_BLOCKS[name])
    with pytest.raises(CaptureError, match=r"damaged at byte \d+: a block that is too short"):
        list(read([path]))
    done = subprocess.run(
        [*PLUMBLINE, "show", path], capture_output=True, text=True, cwd=ROOT, env=environment(), check=False
    )
    assert done.returncode == 2
    assert one_sentence(done.stderr).startswith(f"{path}: damaged")
    (problem,) = [one for one in found(path) if isinstance(one, CaptureProblem)]
    assert problem.kind == "damaged"


def found(path: Path) -> list[object]:
    """Packets and problems, as a worker of Spark finds them."""
    files, _ = capture_files([str(path)])
    return [one for file in files for section in sections(file, 1000) for one in packets(section)]


@pytest.mark.parametrize("name", ["flate", "zst"])
def test_a_damaged_compressed_capture_is_a_problem(name: str, tmp_path: Path) -> None:
    suffix = "gz" if name == "flate" else "zst"
    content = bytearray(SAMPLES["jetstream.pcapng.gz"]())
    if suffix == "zst":
        pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install 'plumbline-mq[judge]'")
        content = bytearray(pa.compress(nats(), "zstd", asbytes=True))
    rng, kinds = random.Random(1), set()
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.randrange(10, len(damaged))] ^= 1 << rng.randrange(8)
        path = written(tmp_path, bytes(damaged), f"a.pcapng.{suffix}")
        kinds |= {one.kind for one in found(path) if isinstance(one, CaptureProblem)}
    assert "damaged" in kinds or "unreadable" in kinds


def test_a_file_that_is_damaged_at_its_start_is_one_section(tmp_path: Path) -> None:
    (problem,) = found(written(tmp_path, b"GIF89a" + bytes(5000)))
    assert isinstance(problem, CaptureProblem)
    assert problem.kind == "not-a-capture"


@pytest.mark.parametrize("digits", [10, 20, 4000, 5000])
def test_a_number_of_a_connection_that_is_too_large_is_none(digits: int, tmp_path: Path) -> None:
    comment = f"plumbline: connection {'9' * digits}: nats"
    rows = shown(written(tmp_path, conversation(*OPENING, comment=comment)))
    assert {row.connection.number for row in rows} == {1}


@pytest.mark.parametrize("seconds", [2**62, -(2**62), 2**40, -1_800_000_000_000])
def test_a_time_that_no_clock_has_becomes_the_nearest(seconds: int, tmp_path: Path) -> None:
    rows = shown(written(tmp_path, with_offset(seconds)))
    assert {row.time for row in rows} == {0 if seconds < 0 else bounds.CAPTURE_LAST_TIME_NS}
    assert clock(rows[0].time, "%Y") in ("1970.000000000", "2262.854775807")


def odd_names() -> bytes:
    """Subjects that are no UTF-8; one message is lost, one was never published."""
    return nats(
        (ASKS, b"SUB \xff.> 1\r\nPUB \xff.\xfe\x1b[31m 1\r\nx\r\nPUB \xff.\xfd 1\r\ny\r\n"),
        (ANSWERS, b"MSG \xff.\xfd 1 1\r\ny\r\nMSG \xff.zz 1 1\r\nq\r\n"),
    )


def test_names_that_are_no_utf8_are_escaped(tmp_path: Path) -> None:
    path = written(tmp_path, odd_names())
    reader = AuditReader([path])
    audited = reader.audit()
    text = "\n".join(audit_text(audited, reader.attempts, 10))
    assert text.startswith(r"subscription \xff.> of connection 1")
    assert "\x1b" not in text
    assert json.loads(audit_json(audited))["receivers"]
    trace = trace_writer.write(shown(path), TraceHeader("t", "s"))
    assert r"< MSG \xff.zz 1 | q" in trace.splitlines()
    pairs = compare(read([path]), read([written(tmp_path, nats(), "b.pcapng")]))
    for report in (*diff_reports.as_text(pairs), diff_reports.as_html(pairs, "a", "b")):
        report.encode()
    assert json.loads(diff_reports.as_json(pairs))["connections"]


def test_deep_json_is_text(tmp_path: Path) -> None:
    publish = b"PUB $JS.API.STREAM.CREATE.X _INBOX.a %d\r\n%s\r\n" % (len(DEEP), DEEP)
    answer = b"MSG _INBOX.a 1 %d\r\n%s\r\n" % (len(DEEP), DEEP)
    path = written(tmp_path, nats((ASKS, publish), (ANSWERS, answer)))
    rows = shown(path)
    assert len(trace_writer.write(rows, TraceHeader("t", "s"))) > len(DEEP)
    pairs = compare(rows, read([written(tmp_path, nats(), "b.pcapng")]))
    assert sum(len(pair.differences) for pair in pairs) == 2


def test_only_json_that_is_not_deep_is_parsed() -> None:
    for depth, is_parsed in ((bounds.JSON_DEPTH, True), (bounds.JSON_DEPTH + 1, False), (100_000, False)):
        assert (parsed_json("[" * depth + "]" * depth) is not None) == is_parsed
    assert parsed_json("9" * 5000) is None
    assert json.loads(json.dumps(plain({"a\udcff": ["\ud800", 10**30]}))) == {
        r"a\xff": [r"\ud800", str(10**30)]
    }
    assert plain(Int32(7)) == 7  # a range would look for a subclass of int one by one
    assert plain_text("caf\u00e9 \udce9") == r"café \xe9"


def test_comments_of_a_packet_are_bounded() -> None:
    body = struct.pack("<5I", 0, 0, 0, 4, 4) + bytes(4) + struct.pack("<HH", 1, 0) * 100_000
    (one,) = CaptureParser().feed(HEAD + block(6, body))
    assert len(one.comments) == bounds.CAPTURE_PACKET_COMMENTS


def test_interfaces_of_a_section_are_bounded() -> None:
    one = interface("i", "d")
    with pytest.raises(CaptureError, match="too many interfaces"):
        list(CaptureParser().feed(section_header("tests") + one * (bounds.CAPTURE_INTERFACES + 1)))


def test_packets_of_more_days_than_a_capture_has_are_a_problem(tmp_path: Path) -> None:
    flow, parts = PacketFlow(1, ("10.0.0.1", 40000), ("10.0.0.2", 4222)), [HEAD]
    for day in range(bounds.CAPTURE_DAYS + 2):
        packet(parts, day * NS_OF_DAY, flow.head(ASKS, 6), b"PING\r\n")
    (file,), _ = capture_files([str(written(tmp_path, b"".join(parts)))])
    *read_packets, problem = packets(Section(file))
    assert len(read_packets) == bounds.CAPTURE_DAYS
    assert isinstance(problem, CaptureProblem)
    assert problem.text == "a.pcapng: its packets are of more than 400 days"


def test_a_large_block_that_comes_in_small_pieces_is_copied_once() -> None:
    """As in a file that is followed while it is written."""
    size = 2_000_000
    data = HEAD + block(6, struct.pack("<5I", 0, 0, 0, size, size) + bytes(size))
    parser, copied = CaptureParser(), 0
    tracemalloc.start()
    try:
        for at in range(0, len(data), 1000):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            for _ in parser.feed(data[at : at + 1000]):
                pass
            copied += max(tracemalloc.get_traced_memory()[1] - before, 0)
    finally:
        tracemalloc.stop()
    assert copied < 20 * len(data)


def amqp(*answers: bytes) -> bytes:
    opening = ((ASKS, PROTOCOL_HEADER), (ASKS, Method.make("channel.open", 1).raw))
    return conversation(*opening, *((ANSWERS, answer) for answer in answers), port=5672)


def test_a_confirm_of_very_many_messages_is_compared_as_one(tmp_path: Path) -> None:
    acks = [
        Method.make("basic.ack", channel, delivery_tag=bounds.DIFF_CONFIRMS - 1, multiple=True).raw
        for channel in range(1, 50)
    ]
    (pair,) = compare(read([written(tmp_path, amqp(*acks))]), iter(()))
    assert pair.first is not None
    assert len(pair.first.operations) <= bounds.DIFF_CONFIRMS + len(acks)


def published(payloads: Iterable[bytes]) -> bytes:
    return nats(*((ASKS, b"PUB a %d\r\n%s\r\n" % (len(payload), payload)) for payload in payloads))


def test_operations_that_are_all_alike_are_compared_without_all_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = written(tmp_path, published([b"x"] * 30 + [b"y"] + [b"x"] * 20))
    other = written(tmp_path, published([b"x"] * 30 + [b"z"] + [b"x"] * 20), "b.pcapng")
    exact = list(diff_reports.as_text(compare(read([one]), read([other]))))
    monkeypatch.setattr(bounds, "DIFF_PAIRS", 10)
    assert list(diff_reports.as_text(compare(read([one]), read([other])))) == exact
    assert any("changed" in line for line in exact)


@pytest.mark.slow
def test_mutants_of_captures_keep_the_rules() -> None:
    """A few of them, new ones each time: ``python -m tests.fuzz.captures`` runs for long."""
    arguments = ("--seconds", "20", "--count", "100", "--seed", str(time.time_ns()))
    command = [sys.executable, "-m", "tests.fuzz.captures", *arguments]  # whose memory is bounded, too
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
