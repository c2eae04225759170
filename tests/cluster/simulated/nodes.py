"""The servers of a simulated cluster: a replicated log with leaders, terms and votes, on a virtual clock.

One tick is 50 ms. What is sent in one tick arrives in a later one. Everything comes from a seed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from enum import StrEnum
from random import Random

from msgspec import Struct

from plumbline.cluster.plan import FaultType, PlannedFault, make_plan
from plumbline.wire.units import SECOND

NODES = 3
TICK_NS = SECOND // 20
LOST_QUORUM = 30  # ticks without a majority, after which a leader knows that it is none
TERM, ACKED, KEY = "term ", "ack ", "key "  # begin entries that are no messages of the stream
NO_MESSAGE = (TERM, ACKED, KEY)
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
    FORGETS_ACKS = "a new leader knows no acks of the consumer"
    CONFIRMS_ACKS_EARLY = "a double ack is answered before a majority has it"
    REDELIVERS_AFTER_ACK_WAIT = "a message comes again after its ack wait, although its ack was confirmed"
    SKIPS_UNDELIVERED = "a new leader delivers only what is stored after it was elected"
    NEVER_REDELIVERS = "a delivery without an ack is never repeated"
    ACKS_ALL_AT_CHANGE = "a new leader takes everything before the highest ack as acknowledged"
    LOWERS_FLOOR = "a leader states the floor of some time ago now and then"
    FLOOR_OF_DELIVERED = "the floor counts a delivery as acknowledged"
    LOSES_CONSUMER = "the consumer is gone when its leader was killed"
    COMPARES_WITH_COMMITTED = "an update is compared with what a majority has, not with the end of the log"
    COMPARES_NOT_AFTER_CHANGE = "a leader after the first one does not compare revisions"
    KEEPS_ACKNOWLEDGED = "a node that was killed keeps what was acknowledged and has to be removed"
    REMOVES_DELIVERED = "a message is removed when it is delivered, not when it is acknowledged"
    WATCH_SKIPS = "a watch that begins on another node leaves out what came meanwhile"
    OLD_VALUES = "a node that was killed has the value before the last one of each key"


class Entry(Struct, frozen=True):
    """One place of a log."""

    term: int
    id: str

    @property
    def is_message(self) -> bool:
        return not self.id.startswith(NO_MESSAGE)


class Node:
    """One server. ``log`` and ``term`` survive a kill."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.log: list[Entry] = []
        self.term = 0
        self.missing: set[int] = set()  # sequences that a defect left out
        self.changed: set[int] = set()  # sequences where a defect stored the message before
        self.is_deaf = False
        self.was_killed = False
        self.runs = True  # neither killed nor paused
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
        self.waiting: dict[int, list[Callable[[], None]]] = defaultdict(list)  # sequence -> when committed

    def messages(self) -> dict[int, str]:
        """What a reader of this node finds."""
        return {
            sequence: self.log[sequence - 2].id if sequence in self.changed else entry.id
            for sequence, entry in enumerate(self.log[: self.committed], 1)
            if sequence not in self.missing and entry.is_message
        }

    @property
    def leads(self) -> bool:
        return self.leader == self.number

    @property
    def last(self) -> tuple[int, int]:
        """What an election compares."""
        return (self.log[-1].term if self.log else 0, len(self.log))


class SimulatedNodes:
    """They run tick by tick. ``on_lead`` are called with a node that begins to lead, ``on_kill`` with one
    that starts again."""

    def __init__(self, seed: int, defect: SimulatedDefect | None, seconds: int) -> None:
        self.random = Random(f"simulation {seed}")
        self.defect = defect
        self.tick = 0
        self.nodes = [Node(number) for number in range(NODES)]
        self.on_lead: list[Callable[[Node], None]] = []
        self.on_kill: list[Callable[[Node], None]] = []
        self._faults: dict[int, list[tuple[PlannedFault, bool]]] = defaultdict(list)  # by tick; they begin
        for fault in make_plan(KINDS, NODES, seconds * SECOND, seed):
            self._faults[fault.start_ns // TICK_NS].append((fault, True))
            self._faults[fault.end_ns // TICK_NS].append((fault, False))
        self._cut: set[tuple[int, int]] = set()
        self._later: dict[int, list[Callable[[], None]]] = defaultdict(list)

    def step(self, tick: int) -> None:
        """Faults, what arrives, and the servers."""
        self.tick = tick
        for fault, begins in self._faults.get(tick, ()):
            self._apply(fault, begins=begins)
        for action in self._later.pop(tick, ()):
            action()
        for node in self.nodes:
            if node.runs:
                self._step(node)

    # -- time --------------------------------------------------------------------------------

    def now(self) -> int:
        """Moments in one tick differ."""
        return self.tick * TICK_NS + int(self.random.random() * TICK_NS / 2)

    def any_node(self) -> int:
        """A number."""
        return int(self.random.random() * NODES)

    def soon(self, action: Callable[[], None]) -> None:
        self.after(1 + int(self.random.random() * 3), action)

    def after(self, ticks: int, action: Callable[[], None]) -> None:
        self._later[self.tick + ticks].append(action)

    # -- for clients -------------------------------------------------------------------------

    def reaches(self, one: int, other: int) -> bool:
        nodes = self.nodes
        return nodes[one].runs and nodes[other].runs and (one, other) not in self._cut

    def talk(self, one: int, other: int) -> bool:
        return self.reaches(one, other) and self.reaches(other, one)

    def leader_of(self, number: int) -> Node | None:
        """The leader that this node knows and talks to, if it believes that it leads."""
        node = self.nodes[number]
        if not node.runs or node.leader is None:
            return None
        leader = self.nodes[node.leader]
        return leader if leader.leads and self.talk(number, leader.number) else None

    def is_sure(self, leader: Node) -> bool:
        """A majority follows it now, and it has everything that was committed before its term."""
        if not leader.committed or leader.log[leader.committed - 1].term != leader.term:
            return False
        asked = [other for other in self.nodes if other.term == leader.term]
        return sum(self.talk(leader.number, other.number) for other in asked) > NODES // 2

    def propose(self, leader: Node, entry: str, committed: Callable[[], None]) -> int:
        """Appends to the log of a leader. The sequence; ``committed`` is called when a majority has it."""
        leader.log.append(Entry(leader.term, entry))
        leader.waiting[len(leader.log)].append(committed)
        return len(leader.log)

    # -- faults ------------------------------------------------------------------------------

    def _apply(self, fault: PlannedFault, *, begins: bool) -> None:
        if fault.fault is FaultType.PARTITION:
            self._cut = set(fault.routes) if begins else set()
            return
        for number in fault.nodes:
            node = self.nodes[number]
            node.runs = not begins
            node.heard = self.tick
            if not begins and fault.fault is FaultType.KILL:
                self._start(node)

    def _start(self, node: Node) -> None:
        for action in self.on_kill:
            action(node)
        if self.defect is SimulatedDefect.LOSES_TAIL_WHEN_KILLED:
            del node.log[-10:]  # acks and updates of keys, too
        node.is_deaf = self.defect is SimulatedDefect.STAYS_BEHIND and node.number == 0
        node.was_killed = True
        node.start()
        node.heard = self.tick

    # -- elections and replication -----------------------------------------------------------

    def _step(self, node: Node) -> None:
        if node.leads:
            self._replicate(node)
        elif self.tick - node.heard > 10 + node.patience and not node.is_deaf:
            self._elect(node)

    def _elect(self, node: Node) -> None:
        node.heard, node.patience = self.tick, self.random.randrange(15)
        node.term += 1
        node.leader = None
        voters = [node]
        for other in self.nodes:
            if other is node or not self.talk(node.number, other.number) or other.term >= node.term:
                continue
            other.term, other.leader = node.term, None  # also of one that does not vote for it
            if other.last <= node.last or self.defect is SimulatedDefect.VOTES_BLINDLY:
                voters.append(other)
        for voter in voters:
            voter.term, voter.leader, voter.heard = node.term, None, self.tick
        if len(voters) > NODES // 2:
            self._lead(node)

    def _lead(self, node: Node) -> None:
        node.leader = node.number
        node.quorum_at = self.tick
        node.matched = [0] * NODES
        node.waiting.clear()
        if self.defect is SimulatedDefect.TRUNCATES_TAIL and node.term > 1:
            del node.log[-3:]
            node.committed = min(node.committed, len(node.log))
        node.log.append(Entry(node.term, f"{TERM}{node.term}"))
        for action in self.on_lead:
            action(node)

    def _replicate(self, leader: Node) -> None:
        """One round: followers that are reached take the log; what a majority has is committed."""
        higher = [
            one for one in self.nodes if one.term > leader.term and self.reaches(one.number, leader.number)
        ]
        if higher:
            leader.term, leader.leader, leader.heard = higher[0].term, None, self.tick
            return
        followers = 0
        for other in self.nodes:
            if other is leader or not self.reaches(leader.number, other.number) or other.term > leader.term:
                continue
            if other.is_deaf:
                other.heard = self.tick
                continue
            other.term, other.leader, other.heard = leader.term, leader.number, self.tick
            self._catch_up(leader, other)
            if self.reaches(other.number, leader.number):
                leader.matched[other.number] = len(other.log)
                followers += 1
            other.committed = max(other.committed, min(leader.committed, len(other.log)))
        leader.matched[leader.number] = len(leader.log)
        if followers + 1 > NODES // 2:
            leader.quorum_at = self.tick
        elif self.tick - leader.quorum_at > LOST_QUORUM:
            leader.leader, leader.heard = None, self.tick
            return
        majority = sorted(leader.matched)[NODES // 2]
        if majority > leader.committed and leader.log[majority - 1].term == leader.term:
            leader.committed = majority
        early = self.defect is SimulatedDefect.ACKS_BEFORE_MAJORITY
        upto = len(leader.log) if early else leader.committed
        for sequence in [one for one in leader.waiting if one <= upto]:
            for action in leader.waiting.pop(sequence):
                action()

    def _catch_up(self, leader: Node, other: Node) -> None:
        same = leader.matched[other.number]  # of this term, which no other leader has
        shorter = min(len(leader.log), len(other.log))
        while same < shorter and leader.log[same] == other.log[same]:
            same += 1
        missed = len(leader.log) - same
        if missed > 5 and self.defect is SimulatedDefect.SKIPS_ENTRY:
            other.missing |= {same + 1, same + 2, same + 3}
        if missed > 5 and self.defect is SimulatedDefect.CHANGES_ENTRY:
            other.changed |= {same + 4, same + 5, same + 6}
        if missed or len(other.log) > same:
            other.log[same:] = leader.log[same:]
            other.committed = min(other.committed, len(other.log))
