"""What tests of push consumers share: one that delivers to ``dlv``, and what came there."""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.nats.levels import Level
from tests.reference_broker.jetstream.bench import Bench, Sent

DLV = b"dlv"


def with_stream(level: Level) -> Bench:
    """A stream ``S`` on ``s.*``."""
    bench = Bench(level)
    bench.stream("S", subjects=["s.*"])
    return bench


def push(bench: Bench, name: str = "P", **config: Any) -> dict[str, Any]:
    """A push consumer without acknowledgements."""
    return bench.consumer("S", name, **{"deliver_subject": "dlv", "ack_policy": "none", **config})


def publish(bench: Bench, count: int, size: int = 1) -> None:
    for number in range(1, count + 1):
        bench.request("s.a", b"%d" % number if size == 1 else bytes(size))


def delivered(bench: Bench) -> list[Sent]:
    return [one for one in bench.sent if one.target == DLV and not one.status]


def statuses(bench: Bench) -> list[str]:
    return [str(one) for one in bench.sent if one.status]
