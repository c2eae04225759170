"""The ways to cut a stream into segments: every decoder gives the same for all of them."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn


def byte_by_byte(stream: bytes) -> list[bytes]:
    return [stream[index : index + 1] for index in range(len(stream))]


@st.composite
def cuts(draw: DrawFn, stream: bytes) -> list[bytes]:
    """The same bytes in segments; some may be empty."""
    points = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    return [stream[start:end] for start, end in zip([0, *points], [*points, len(stream)], strict=True)]


def cut(random: Random, data: bytes) -> list[bytes]:
    """The same, by chance and not for Hypothesis to shrink."""
    points = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(6)))
    return [data[start:end] for start, end in zip([0, *points], [*points, len(data)], strict=True)]
