"""Decoding stays cheap next to work of known cost, done at the same moment: a busy machine fails nothing."""

from __future__ import annotations

from time import process_time

import pytest

from plumbline.wire.nats import Limits
from tests.bench.wire_nats import OPERATIONS, SEGMENTS, decode, measure, samples, segments

# Measured: 2.5 to 4.2.
MOST = 8.0
ROUNDS = 7


def unavoidable(stream: bytes, size: int) -> float:
    """CPU seconds for what no decoder in Python can do without: find a line, split it, copy the operation."""
    started = process_time()
    for start in range(0, len(stream), size):
        end = stream.find(b"\n", start)
        stream[start:end].split()
        stream[start : start + size]
    return process_time() - started


@pytest.mark.parametrize("name", samples())
@pytest.mark.parametrize("segment", SEGMENTS)
def test_decoding_costs_a_few_times_what_no_decoder_can_do_without(name: str, segment: str) -> None:
    raw = samples()[name].raw
    stream = raw * OPERATIONS
    chunks = segments(stream, SEGMENTS[segment])
    rounds = [(decode(chunks, Limits()), unavoidable(stream, len(raw))) for _ in range(ROUNDS)]
    assert min(spent for spent, _ in rounds) < MOST * min(least for _, least in rounds)


def test_the_bench_measures_something() -> None:
    rate = measure(samples()["MSG, text"], 0, runs=3)
    assert 0 < rate.slowest <= rate.middle <= rate.fastest
