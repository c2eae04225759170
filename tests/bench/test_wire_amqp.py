"""Decoding stays cheap next to work of known cost, done at the same moment: a busy machine fails nothing."""

from __future__ import annotations

from statistics import median
from time import process_time

import pytest

from plumbline.wire.amqp import Limits
from tests.bench.wire_amqp import decode, measure, samples, write_deliveries
from tests.bench.wire_nats import SEGMENTS, segments

# Medians measured beside other work: 1.9 to 5.8; the most for the shortest operations.
MOST = 10.0
ROUNDS = 15
TIMES = 4  # so that both sides of a round last about as long, and are interrupted about as often


def unavoidable(stream: bytes) -> float:
    """CPU seconds for what no decoder in Python can do without: find the frames, copy what is in them."""
    started = process_time()
    for _ in range(TIMES):
        at = 0
        while at < len(stream):
            size = int.from_bytes(stream[at + 3 : at + 7], "big")
            stream[at + 7 : at + 7 + size]
            stream[at : at + size + 8]
            at += size + 8
    return (process_time() - started) / TIMES


@pytest.mark.parametrize("name", samples())
@pytest.mark.parametrize("segment", SEGMENTS)
def test_decoding_costs_a_few_times_what_no_decoder_can_do_without(name: str, segment: str) -> None:
    stream = samples()[name]
    chunks = segments(stream, SEGMENTS[segment])
    assert median(decode(chunks, Limits()) / unavoidable(stream) for _ in range(ROUNDS)) < MOST


def test_the_bench_measures_something() -> None:
    rate = measure(write_deliveries, runs=3)
    assert 0 < rate.slowest <= rate.middle <= rate.fastest
