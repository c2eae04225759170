"""Which faults strike which nodes, and when: decided by a seed before anything runs.

The same seed, kinds, nodes and duration always give the same plan. Times are nanoseconds from the start of
the workload. Only one fault is active at a time, and each one heals before the plan ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from random import Random

from msgspec import Struct

from plumbline.errors import UsageProblem
from plumbline.wire.units import SECOND

QUIET_NS = 3 * SECOND  # before the first fault, and at least so long after the last
SMALLEST = 3  # nodes
SHORTEST_NS, LONGEST_NS = 2 * SECOND, 5 * SECOND  # of a fault, and of the pause after it


class FaultType(StrEnum):
    """What is done to nodes or to the routes between them."""

    NONE = "none"
    KILL = "kill"  # SIGKILL, later a restart with the same store
    PAUSE = "pause"  # SIGSTOP, later SIGCONT
    PARTITION = "partition"  # no byte passes between nodes, for a while
    DELAY = "delay"  # every byte between nodes is late
    ROLLING = "rolling"  # every node is stopped in order and started again, one after another
    LEADER = "leader"  # the leader is asked to step down
    PAUSE_KILL = "pause-kill"  # nodes are paused, miss messages, and go on when another node is killed
    DAMAGE = "damage"  # SIGKILL, bits of stored files are flipped or their ends cut off, restart
    POWER = "power"  # SIGKILL, and what was not fsynced is gone; restart
    PAUSE_POWER = "pause-power"  # paused nodes miss messages, and go on with one that lost power


class FaultScope(StrEnum):
    """How many nodes a fault concerns; of a partition, its shape."""

    ONE = "one"
    MINORITY = "minority"
    MAJORITY = "majority"
    ALL = "all"
    HALVES = "halves"  # a majority and the rest do not reach each other
    ONE_WAY = "one-way"  # what one node sends does not reach the others
    RING = "ring"  # every node reaches a majority, and no two the same one


NODE_SCOPES = (FaultScope.ONE, FaultScope.MINORITY, FaultScope.MAJORITY, FaultScope.ALL)
ROUTE_SCOPES = (FaultScope.HALVES, FaultScope.ONE_WAY, FaultScope.RING)
OF_ROUTES = (FaultType.PARTITION, FaultType.DELAY)
OF_MINORITIES = (FaultType.PAUSE_KILL, FaultType.DAMAGE, FaultType.PAUSE_POWER)
OF_POWER = frozenset({FaultType.POWER, FaultType.PAUSE_POWER})


class PlannedFault(Struct, frozen=True):
    """One fault. ``nodes`` are those that it strikes; ``routes`` the ordered pairs (sender, receiver) between
    which it strikes; ``killed`` those that ``PAUSE_KILL`` kills, or that lose power in ``PAUSE_POWER``. Nodes
    count from 0."""

    start_ns: int
    end_ns: int
    fault: FaultType
    scope: FaultScope
    nodes: tuple[int, ...] = ()
    routes: tuple[tuple[int, int], ...] = ()
    killed: tuple[int, ...] = ()

    def __str__(self) -> str:
        """``kill majority: nodes 1 3``."""
        how = "without power" if self.fault is FaultType.PAUSE_POWER else "killed"
        killed = f", and {_names(self.killed)} {how}" if self.killed else ""
        return f"{self.fault} {self.scope}: {_names(self.nodes)}{killed}"


def make_plan(
    kinds: Sequence[FaultType], nodes: int, duration_ns: int, seed: int
) -> tuple[PlannedFault, ...]:
    """Faults of these kinds, one after another, as many as fit into ``duration_ns``."""
    random = Random(f"plan {seed}")
    chosen = [kind for kind in kinds if kind is not FaultType.NONE]
    faults: list[PlannedFault] = []
    at = min(QUIET_NS, duration_ns // 5)
    last_end = duration_ns - at
    order: list[FaultType] = []
    while chosen:
        if not order:  # every kind comes before one comes again
            order = random.sample(chosen, len(chosen))
        length = min(random.randrange(SHORTEST_NS, LONGEST_NS), duration_ns // 3)
        if at + length > last_end:
            break
        faults.append(_fault(order.pop(), nodes, at, at + length, random))
        at += length + random.randrange(SHORTEST_NS, LONGEST_NS)
    return tuple(faults)


def is_power_loss_of_majority(plan: Sequence[PlannedFault], nodes: int) -> bool:
    """Whether most nodes lose power at once, so that no majority has what only they stored."""
    return any(fault.fault is FaultType.POWER and len(fault.nodes) > nodes // 2 for fault in plan)


def parse_faults(text: str) -> tuple[FaultType, ...]:
    """Reads ``kill,pause``. Raises ``UsageProblem``."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in list(FaultType)]
    if unknown or not names:
        raise UsageProblem(f"--faults {text}: write one or more of {', '.join(FaultType)}")
    return tuple(dict.fromkeys(map(FaultType, names)))


def _fault(kind: FaultType, nodes: int, start: int, end: int, random: Random) -> PlannedFault:
    if kind in OF_ROUTES:
        scope = random.choice(ROUTE_SCOPES)
        struck, routes = _routes(scope, nodes, random)
        return PlannedFault(start, end, kind, scope, struck, routes)
    everyone = tuple(range(nodes))
    if kind in (FaultType.ROLLING, FaultType.LEADER):
        order = random.sample(everyone, nodes) if kind is FaultType.ROLLING else everyone
        return PlannedFault(start, end, kind, FaultScope.ALL, tuple(order))
    scope = FaultScope.MINORITY if kind in OF_MINORITIES else random.choice(NODE_SCOPES)
    struck = tuple(sorted(random.sample(everyone, _count(scope, nodes))))
    killed: tuple[int, ...] = ()
    if kind in (FaultType.PAUSE_KILL, FaultType.PAUSE_POWER):
        killed = (random.choice([node for node in everyone if node not in struck]),)
    return PlannedFault(start, end, kind, scope, struck, killed=killed)


def _routes(
    scope: FaultScope, nodes: int, random: Random
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The nodes that a fault of routes strikes, and the ordered pairs."""
    everyone = range(nodes)
    if scope is FaultScope.ONE_WAY:
        one = random.randrange(nodes)
        return (one,), tuple((one, other) for other in everyone if other != one)
    if scope is FaultScope.RING:
        order = random.sample(everyone, nodes)
        pairs = [(one, other) for at, one in enumerate(order) for other in order[at + 2 :]]
        pairs = [pair for pair in pairs if nodes == SMALLEST or pair != (order[0], order[-1])]
        struck = tuple(sorted({node for pair in pairs for node in pair}))
    else:
        struck = tuple(sorted(random.sample(everyone, _count(FaultScope.MINORITY, nodes))))
        pairs = [(one, other) for one in struck for other in everyone if other not in struck]
    return struck, tuple(route for one, other in pairs for route in ((one, other), (other, one)))


def _count(scope: FaultScope, nodes: int) -> int:
    minority = (nodes - 1) // 2
    counts = {
        FaultScope.ONE: 1,
        FaultScope.MINORITY: max(minority, 1),
        FaultScope.MAJORITY: nodes // 2 + 1,
        FaultScope.ALL: nodes,
    }
    return counts[scope]


def _names(nodes: Sequence[int]) -> str:
    return f"node{'s' if len(nodes) > 1 else ''} {' '.join(str(node + 1) for node in nodes)}"
