"""Mutated sessions: whatever comes, the codec answers with operations or an ``AmqpError``, and soon.

Runs for a fixed time, from a fixed seed. For longer: PLUMBLINE_FUZZ_SECONDS=600 PLUMBLINE_FUZZ_SEED=7.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from random import Random

import pytest

from plumbline.wire.amqp import PROTOCOL_HEADER, Heartbeat, Limits, Method, Operation, Sender, SentBy
from tests.wire.amqp.amqp_strategies import TIGHT, outcome
from tests.wire.amqp.test_amqp_transcripts import ALL
from tests.wire.segments import cut

pytestmark = pytest.mark.slow  # make test-all runs it

SECONDS = float(os.environ.get("PLUMBLINE_FUZZ_SECONDS", "2"))
FEWEST = 2000  # sessions, however slow the machine
SEED = int(os.environ.get("PLUMBLINE_FUZZ_SEED", "1"))
CORPUS = [raw for _, _, _, raw in ALL]
CLIENTS = [raw for sent_by, _, _, raw in ALL if sent_by is SentBy.CLIENT]
LIMITS = [Limits(), TIGHT, Limits(frame_max=4096, table_depth=3)]


def mutated(random: Random, sender: Sender) -> bytes:
    """Some operations in a row, with a few wounds."""
    pieces = random.choices(CORPUS, k=random.randrange(1, 5))
    data = (PROTOCOL_HEADER if sender is Sender.CLIENT else b"") + b"".join(pieces)
    for _ in range(random.choice((0, 1, 1, 2, 3, 6))):
        at = random.randrange(len(data) + 1)
        until = min(len(data), at + random.choice((0, 1, 1, 2, 5, 20)))
        match random.randrange(5):
            case 0:
                piece = bytes([random.randrange(256)])
            case 1:
                piece = random.choice([*CORPUS, Heartbeat.make().raw])
            case 2:
                piece = data[at:until] * random.choice((2, 3, 50))
            case 3:
                piece = random.randbytes(random.randrange(8))
            case _:
                piece = b""
        data = data[:at] + piece + data[until:]
    return data


def look_at_everything(operation: Operation) -> None:
    """Reads all that can be read from an operation: nothing is raised."""
    assert str(operation).isprintable()
    if isinstance(operation, Method):
        assert sum(len(payload) + 8 for _, payload in operation.frames()) == len(operation.raw)
        assert len(operation.body) + len(operation.raw_properties) <= len(operation.raw)


def test_whatever_comes_is_operations_or_an_error() -> None:
    random = Random(SEED)
    until = time.monotonic() + SECONDS
    seen: Counter[str] = Counter()
    sessions = 0
    while sessions < FEWEST or time.monotonic() < until:
        sessions += 1
        sender, limits = random.choice(list(Sender)), random.choice(LIMITS)
        data = mutated(random, sender)
        whole = outcome([data], sender, limits)
        assert outcome(cut(random, data), sender, limits) == whole
        for operation in whole.operations:
            look_at_everything(operation)
        seen[(whole.error or "none")[:3]] += 1
    # Both ends were met, and every kind of answer.
    assert set(seen) == {"non", "501", "503", "505"}
