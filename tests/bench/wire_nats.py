"""How many 128-byte messages a second one core decodes: ``python -m tests.bench.wire_nats [RUNS]``.

Text and random payloads, short and JetStream subjects, and segments as they come from a file, a socket buffer
and an Ethernet frame. A second is one of this process's CPU time, so that other processes do not count.
Target: a million plain messages.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from random import Random
from statistics import median
from time import process_time

from plumbline.wire.nats import Decoder, HMsg, Limits, Msg, Operation, Sender
from tests.bench.command_line import runs_asked

TARGET = 1_000_000
PAYLOAD_BYTES = 128
OPERATIONS = 4000
SEGMENTS = {"one buffer": 0, "64 KiB": 64 * 1024, "1460 B": 1460}
ACK_SUBJECT = "$JS.ACK.ORDERS.DISPATCH.1.1234567.1234567.1795245217069268390.0"


@dataclass(frozen=True)
class Rate:
    """Operations a CPU second, over the runs."""

    slowest: float
    middle: float
    fastest: float

    def __str__(self) -> str:
        return f"{self.slowest:>11,.0f} {self.middle:>11,.0f} {self.fastest:>11,.0f}"


def samples() -> dict[str, Operation]:
    """What is decoded, by name."""
    text = b"x" * PAYLOAD_BYTES
    noise = Random(1).randbytes(PAYLOAD_BYTES)
    return {
        "MSG, text": Msg.make("orders.new", 1, text),
        "MSG, random bytes": Msg.make("orders.new", 1, noise),
        "MSG, JetStream": Msg.make("ORDERS.new.eu", 12, text, ACK_SUBJECT),
        "HMSG, JetStream": HMsg.make("ORDERS.new.eu", 12, [("Nats-Msg-Id", "1")], text, ACK_SUBJECT),
    }


def segments(stream: bytes, size: int) -> list[bytes]:
    """``stream`` in pieces of ``size`` bytes; 0: in one."""
    step = size or len(stream)
    return [stream[start : start + step] for start in range(0, len(stream), step)]


def decode(chunks: list[bytes], limits: Limits) -> float:
    """CPU seconds that decoding takes."""
    decoder = Decoder(Sender.SERVER, limits)
    started = process_time()
    for chunk in chunks:
        decoder.feed(chunk)
    return process_time() - started


def measure(operation: Operation, segment: int, runs: int) -> Rate:
    """Decodes ``operation`` over and over in segments of that size."""
    chunks = segments(operation.raw * OPERATIONS, segment)
    rates = [OPERATIONS / decode(chunks, Limits()) for _ in range(runs)]
    return Rate(min(rates), median(rates), max(rates))


def main() -> None:
    """Prints a table."""
    runs = runs_asked(__doc__, 25)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"{python}, {runs} runs of {OPERATIONS} operations; target {TARGET:,} MSG a second")
    print(f"{'operations a second':30} {'segments':>10} {'min':>11} {'median':>11} {'max':>11}")
    for name, operation in samples().items():
        for segment, size in SEGMENTS.items():
            rate = measure(operation, size, runs)
            print(f"{name} ({len(operation.raw)} B)".ljust(30), f"{segment:>10} {rate}")


if __name__ == "__main__":
    main()
