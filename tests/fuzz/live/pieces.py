"""Sessions as pieces, an operation or a frame each: so that mutations respect the structure, mostly."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzz.mutations import MAX_BYTES, mutated


def changed(random: Random, pieces: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """The session as it is, or with some pieces or bytes changed."""
    changes = list(pieces)
    match random.randrange(10):
        case 0 | 1 | 2:
            pass
        case 3 | 4 | 5 | 6:  # inside some pieces
            for _ in range(random.choice((1, 1, 2, 4))):
                place = random.randrange(len(changes))
                changes[place] = mutated(random, [changes[place]], words)
        case 7:  # in another order
            start = random.randrange(len(changes))
            some = changes[start : start + 8]
            random.shuffle(some)
            changes[start : start + 8] = some
        case 8:  # some are missing, or come many times
            place = random.randrange(len(changes))
            changes[place : place + 1] *= random.choice((0, 2, 50))
        case _:
            whole = b"".join(changes)
            return mutated(random, [whole[:MAX_BYTES]], words) + whole[MAX_BYTES:]
    return b"".join(changes)
