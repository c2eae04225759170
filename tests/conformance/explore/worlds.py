"""A target and a witness to explore, both reference brokers behind sockets; the target may have a defect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plumbline.conformance.explore.search import Budget, Search
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, TargetAccess, open_target
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.reference_broker.nats.virtual import VirtualBroker

SEED = 1


def access(url: str, run: str, program: tuple[str, ...] = ()) -> TargetAccess:
    return open_target(RunningTarget(NatsUrl.parse(url), program=program), run=run)


def reference(level: str = "newest") -> VirtualBroker:
    return VirtualBroker(jetstream=True, level=level)


@contextmanager
def search(budget: Budget, *defects: str, level: str = "newest") -> Iterator[Search]:
    """Ready to run."""
    with (
        NatsBroker.in_thread(jetstream=True, level=level) as sound,
        NatsBroker.in_thread(jetstream=True, level=level, defect=defects) as broken,
    ):
        target, witness = access(broken, "target"), access(sound, "witness")
        yield Search(target, witness, lambda: reference(level), budget, first_seed=SEED)
