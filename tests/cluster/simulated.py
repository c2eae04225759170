"""A simulated cluster on a virtual clock: a replicated log with leaders, terms and votes, and its clients.

It is the proof that the judge can fail: without a defect no history is convicted, with each defect every
history is. One tick is 50 ms. What is sent in one tick arrives in a later one. Everything comes from a seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from random import Random

from msgspec import Struct

from plumbline.cluster.history import Attempt, AttemptOutcome
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead, NodeLog
from plumbline.cluster.plan import FaultType, PlannedFault, make_plan
from plumbline.wire.units import SECOND

NODES = 3
PROCESSES = 3
TICK_NS = SECOND // 20
UNANSWERED = 40  # ticks
LOST_QUORUM = 30  # ticks without a majority, after which a leader knows that it is none
TERM = "term "  # begins the entry with which a leader starts: no message
SETTLE = 150  # ticks after the last fault
KINDS = (FaultType.KILL, FaultType.PAUSE, FaultType.PARTITION)


class SimulatedDefect(StrEnum):
    """What the simulated servers can do wrong."""

    ACKS_BEFORE_MAJORITY = "acknowledges what only the leader has"
    FORGETS_MESSAGE_IDS = "a new leader knows no message ids"
    TRUNCATES_TAIL = "a new leader drops the end of its log"
    STALE_READS = "a leader answers reads without asking a majority"
    VOTES_BLINDLY = "nodes vote for a candidate with a shorter log"
    SKIPS_ENTRY = "a follower that catches up leaves a message out"
    ACKS_TOO_HIGH = "an acknowledgement states a sequence too high after a leader change"
    ACKS_TOO_LOW = "an acknowledgement states a sequence of long ago after a leader change"
    ACKS_ONE_SEQUENCE_TWICE = "two messages are acknowledged with one sequence after a leader change"
    REFUSES_AND_STORES = "a publish is refused that the leader stores"
    CHANGES_ENTRY = "a follower that catches up stores another message in one place"
    STAYS_BEHIND = "the first node takes nothing from a leader any more after it was killed"
    LOSES_TAIL_WHEN_KILLED = "the end of a log is not on disk yet when its node is killed"


class Entry(Struct, frozen=True):
    """One place of a log."""

    term: int
    id: str


class Node:
    """One server. ``log`` and ``term`` survive a kill."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log: list[Entry] = []
        self.term = 0
        self.missing: set[int] = set()  # sequences that a defect left out
        self.changed: set[int] = set()  # sequences where a defect stored the message before
        self.is_deaf = False
        self.runs = True  # neither killed nor paused
        self.voted = 0  # the last term
        self.start()

    def start(self) -> None:
        """After a kill."""
        self.leader: int | None = None
        self.heard = 0
        self.patience = 0
        self.committed = 0
        self.matched = [0] * NODES
        self.quorum_at = 0
        self.known: dict[str, int] = {}
        self.waiting: dict[int, list[tuple[Attempt, bool]]] = defaultdict(list)

    def messages(self) -> dict[int, str]:
        """What a reader of this node finds."""
        return {
            sequence: self.log[sequence - 2].id if sequence in self.changed else entry.id
            for sequence, entry in enumerate(self.log[: self.committed], 1)
            if sequence not in self.missing and not entry.id.startswith(TERM)
        }

    @property
    def leads(self) -> bool:
        return self.leader == self.number

    @property
    def last(self) -> tuple[int, int]:
        """What an election compares."""
        return (self.log[-1].term if self.log else 0, len(self.log))


class SimulatedCluster:
    """``run`` gives the history of one seed."""

    def __init__(self, seed: int, defect: SimulatedDefect | None = None, seconds: int = 60) -> None:
        self._random = Random(f"simulation {seed}")
        self._defect = defect
        self._faults: dict[int, list[tuple[PlannedFault, bool]]] = defaultdict(list)  # by tick; they begin
        for fault in make_plan(KINDS, NODES, seconds * SECOND, seed):
            self._faults[fault.start_ns // TICK_NS].append((fault, True))
            self._faults[fault.end_ns // TICK_NS].append((fault, False))
        self._ticks = seconds * SECOND // TICK_NS
        self._nodes = [Node(number) for number in range(NODES)]
        self._cut: set[tuple[int, int]] = set()
        self._tick = 0
        self._later: dict[int, list[Callable[[], None]]] = defaultdict(list)
        self._attempts: list[Attempt] = []
        self._reads: list[LeaderRead] = []
        self._counters = [0] * PROCESSES
        self._again: list[list[int]] = [[] for _ in range(PROCESSES)]
        self._highest = 0
        self._tries: dict[str, int] = defaultdict(int)

    def run(self) -> ClusterHistory:
        """Publishes while faults strike, heals, and reads every node."""
        for tick in range(self._ticks + SETTLE):
            self._tick = tick
            for fault, begins in self._faults.get(tick, ()):
                self._apply(fault, begins=begins)
            for action in self._later.pop(self._tick, ()):
                action()
            for node in self._nodes:
                if node.runs:
                    self._step(node)
            if self._tick < self._ticks:
                self._publish()
            if self._tick % 2:
                self._read()
        logs = [NodeLog(node.number, node.messages()) for node in self._nodes]
        whole = len({node.committed for node in self._nodes}) == 1
        return ClusterHistory(self._attempts, self._reads, logs, is_whole=whole)

    # -- time and faults ---------------------------------------------------------------------

    def _now(self) -> int:
        """Moments in one tick differ."""
        return self._tick * TICK_NS + self._random.randrange(TICK_NS // 2)

    def _soon(self, action: Callable[[], None]) -> None:
        self._later[self._tick + self._random.randint(1, 3)].append(action)

    def _apply(self, fault: PlannedFault, *, begins: bool) -> None:
        if fault.fault is FaultType.PARTITION:
            self._cut = set(fault.routes) if begins else set()
            return
        for number in fault.nodes:
            node = self._nodes[number]
            node.runs = not begins
            node.heard = self._tick
            if not begins and fault.fault is FaultType.KILL:
                self._start(node)

    def _start(self, node: Node) -> None:
        if self._defect is SimulatedDefect.LOSES_TAIL_WHEN_KILLED:
            del node.log[-3:]
        node.is_deaf = self._defect is SimulatedDefect.STAYS_BEHIND and node.number == 0
        node.start()
        node.heard = self._tick

    def _reaches(self, one: int, other: int) -> bool:
        running = self._nodes[one].runs and self._nodes[other].runs
        return running and (one == other or (one, other) not in self._cut)

    def _talk(self, one: int, other: int) -> bool:
        return self._reaches(one, other) and self._reaches(other, one)

    # -- servers -----------------------------------------------------------------------------

    def _step(self, node: Node) -> None:
        if node.leads:
            self._replicate(node)
        elif self._tick - node.heard > 10 + node.patience and not node.is_deaf:
            self._elect(node)

    def _elect(self, node: Node) -> None:
        node.heard, node.patience = self._tick, self._random.randrange(15)
        node.term += 1
        node.leader = None
        voters = [node]
        for other in self._nodes:
            if other is node or not self._talk(node.number, other.number) or other.term >= node.term:
                continue
            other.term, other.leader = node.term, None  # also of one that does not vote for it
            if other.last <= node.last or self._defect is SimulatedDefect.VOTES_BLINDLY:
                voters.append(other)
        for voter in voters:
            voter.term, voter.leader, voter.heard = node.term, None, self._tick
        if len(voters) > NODES // 2:
            self._lead(node)

    def _lead(self, node: Node) -> None:
        node.leader = node.number
        node.quorum_at = self._tick
        node.matched = [0] * NODES
        node.waiting.clear()
        if self._defect is SimulatedDefect.TRUNCATES_TAIL and node.term > 1:
            del node.log[-3:]
            node.committed = min(node.committed, len(node.log))
        node.log.append(Entry(node.term, f"{TERM}{node.term}"))
        forgets = self._defect is SimulatedDefect.FORGETS_MESSAGE_IDS
        node.known = {} if forgets else {entry.id: at for at, entry in enumerate(node.log, 1)}

    def _replicate(self, leader: Node) -> None:
        """One round: followers that are reached take the log; what a majority has is committed."""
        higher = [
            one for one in self._nodes if one.term > leader.term and self._reaches(one.number, leader.number)
        ]
        if higher:
            leader.term, leader.leader, leader.heard = higher[0].term, None, self._tick
            return
        followers = 0
        for other in self._nodes:
            if other is leader or not self._reaches(leader.number, other.number) or other.term > leader.term:
                continue
            if other.is_deaf:
                other.heard = self._tick
                continue
            other.term, other.leader, other.heard = leader.term, leader.number, self._tick
            self._catch_up(leader, other)
            if self._reaches(other.number, leader.number):
                leader.matched[other.number] = len(other.log)
                followers += 1
            other.committed = max(other.committed, min(leader.committed, len(other.log)))
        leader.matched[leader.number] = len(leader.log)
        if followers + 1 > NODES // 2:
            leader.quorum_at = self._tick
        elif self._tick - leader.quorum_at > LOST_QUORUM:
            leader.leader, leader.heard = None, self._tick
            return
        majority = sorted(leader.matched)[NODES // 2]
        if majority > leader.committed and leader.log[majority - 1].term == leader.term:
            leader.committed = majority
        early = self._defect is SimulatedDefect.ACKS_BEFORE_MAJORITY
        self._acknowledge(leader, len(leader.log) if early else leader.committed)

    def _catch_up(self, leader: Node, other: Node) -> None:
        same = leader.matched[other.number]  # of this term, which no other leader has
        shorter = min(len(leader.log), len(other.log))
        while same < shorter and leader.log[same] == other.log[same]:
            same += 1
        missed = len(leader.log) - same
        if missed > 5 and self._defect is SimulatedDefect.SKIPS_ENTRY:
            other.missing.add(same + 2)
        if missed > 5 and self._defect is SimulatedDefect.CHANGES_ENTRY:
            other.changed.add(same + 4)
        if missed or len(other.log) > same:
            other.log[same:] = leader.log[same:]
            other.committed = min(other.committed, len(other.log))

    def _acknowledge(self, leader: Node, upto: int) -> None:
        for sequence in [one for one in leader.waiting if one <= upto]:
            for attempt, duplicate in leader.waiting.pop(sequence):
                if self._reaches(leader.number, attempt.node):
                    stated = self._stated(sequence) if leader.term > 1 else sequence
                    self._soon(partial(self._answer, attempt, stated, duplicate))

    def _stated(self, sequence: int) -> int:
        """In an acknowledgement, after a leader change."""
        match self._defect:
            case SimulatedDefect.ACKS_TOO_HIGH:
                return sequence + 1
            case SimulatedDefect.ACKS_TOO_LOW:
                return max(sequence - 50, 1)
            case SimulatedDefect.ACKS_ONE_SEQUENCE_TWICE:
                return sequence - 1 + sequence % 2
            case _:
                return sequence

    # -- clients -----------------------------------------------------------------------------

    def _publish(self) -> None:
        for process in range(PROCESSES):
            if self._random.random() > 0.4:
                continue
            again = self._again[process]
            if again:
                counter = again.pop()
            else:
                counter = self._counters[process]
                self._counters[process] += 1
            attempt = Attempt(process, counter, self._random.randrange(NODES), self._now())
            self._attempts.append(attempt)
            self._soon(partial(self._arrive, attempt))
            self._tries[attempt.id] += 1
            if counter % 2 == 0 and self._tries[attempt.id] < 3:
                self._later[self._tick + UNANSWERED].append(partial(self._retry, attempt))

    def _retry(self, attempt: Attempt) -> None:
        if attempt.outcome is AttemptOutcome.INDETERMINATE:
            self._again[attempt.process].append(attempt.counter)

    def _arrive(self, attempt: Attempt) -> None:
        """A publish reaches its node, which hands it to the leader that it knows."""
        node = self._nodes[attempt.node]
        if not node.runs:
            return
        if node.leader is None:
            attempt.outcome, attempt.completed = AttemptOutcome.FAILED, self._now() + TICK_NS
            return
        leader = self._nodes[node.leader]
        if not leader.leads or not self._reaches(node.number, leader.number):
            return
        sequence = leader.known.get(attempt.id)
        if sequence is None:
            leader.log.append(Entry(leader.term, attempt.id))
            sequence = leader.known[attempt.id] = len(leader.log)
            if self._defect is SimulatedDefect.REFUSES_AND_STORES and sequence % 50 == 0:
                attempt.outcome, attempt.completed = AttemptOutcome.FAILED, self._now() + TICK_NS
                return
            leader.waiting[sequence].append((attempt, False))
        else:
            leader.waiting[sequence].append((attempt, True))

    def _answer(self, attempt: Attempt, sequence: int, duplicate: bool) -> None:
        if self._nodes[attempt.node].runs:
            attempt.outcome, attempt.completed = AttemptOutcome.OK, self._now() + TICK_NS
            attempt.sequence, attempt.duplicate = sequence, duplicate
            self._highest = max(self._highest, sequence)

    def _read(self) -> None:
        """Each node is asked for the newest acknowledged message; only a leader answers."""
        for node in self._nodes if self._highest else ():
            leader = self._nodes[node.leader] if node.runs and node.leader is not None else None
            if leader is None or not leader.leads or not self._talk(node.number, leader.number):
                continue
            asked = sum(
                self._talk(leader.number, other.number) and other.term == leader.term for other in self._nodes
            )
            ready = leader.committed and leader.log[leader.committed - 1].term == leader.term
            if self._defect is not SimulatedDefect.STALE_READS and (asked <= NODES // 2 or not ready):
                continue
            place = self._highest - 1
            found = leader.log[place].id if place < leader.committed else None
            now = self._tick * TICK_NS + TICK_NS - 2
            self._reads.append(LeaderRead(now, now + 1, node.number, self._highest, found))
