"""Random changes of bytes, for the short form of the fuzzers: reproducible from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

MAX_BYTES = 4096
INTERESTING = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x80\x00\x00\x00",
)


def mutated(random: Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One of ``corpus`` with one to five changes."""
    data = random.choice(corpus)
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        data = _changed(random, data, corpus, words)
    return data[:MAX_BYTES]


def damaged(random: Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """A long input with no change, or with a few: most of them near its end, so that most of it is read."""
    for _ in range(random.choice((0, 1, 1, 3))):
        kept = random.choice((0, len(data) // 2, len(data) * 9 // 10))
        data = data[:kept] + _changed(random, data[kept:], (data[:64],), words)
    return data


def _changed(random: Random, data: bytes, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    until = min(len(data), at + random.choice((0, 1, 1, 2, 4, 16)))
    match random.randrange(7):
        case 0:  # other bytes of the same number
            return data[:at] + random.randbytes(until - at) + data[until:]
        case 1:  # one bit
            return (
                data[: at - 1] + bytes((data[at - 1] ^ 1 << random.randrange(8),)) + data[at:] if at else data
            )
        case 2:
            return data[:at] + data[until:]
        case 3:
            return data[:until] + data[at:until] * random.choice((1, 2, 30)) + data[until:]
        case 4:
            return data[:at] + random.choice(words or INTERESTING) + data[until:]
        case 5:
            return data[:at] + random.choice(INTERESTING) + data[until:]
        case _:  # the beginning of one, the end of another
            other = random.choice(corpus)
            return data[:at] + other[random.randint(0, len(other)) :]
