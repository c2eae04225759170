"""Decoding stays cheap next to work of known cost, done at the same moment: a busy machine fails nothing."""

from __future__ import annotations

from statistics import median
from time import process_time

import pytest

from plumbline.wire.nats import Limits
from tests.bench.wire_nats import OPERATIONS, SEGMENTS, decode, measure, samples, segments

# Medians measured beside other work: 3.0 to 5.7.
MOST = 8.0
ROUNDS = 15
TIMES = 4  # so that both sides of a round last about as long, and are interrupted about as often


def unavoidable(stream: bytes, size: int) -> float:
    """CPU seconds for what no decoder in Python can do without: find a line, split it, copy the operation."""
    started = process_time()
    for _ in range(TIMES):
        for start in range(0, len(stream), size):
            end = stream.find(b"\n", start)
            stream[start:end].split()
            stream[start : start + size]
    return (process_time() - started) / TIMES


@pytest.mark.parametrize("name", samples())
@pytest.mark.parametrize("segment", SEGMENTS)
def test_decoding_costs_a_few_times_what_no_decoder_can_do_without(name: str, segment: str) -> None:
    raw = samples()[name].raw
    stream = raw * OPERATIONS
    chunks = segments(stream, SEGMENTS[segment])
    rounds = (decode(chunks, Limits()) / unavoidable(stream, len(raw)) for _ in range(ROUNDS))
    assert median(rounds) < MOST


def test_the_bench_measures_something() -> None:
    rate = measure(samples()["MSG, text"], 0, runs=3)
    assert 0 < rate.slowest <= rate.middle <= rate.fastest
