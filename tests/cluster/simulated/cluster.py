"""A simulated cluster on a virtual clock, with its publishers and readers, a consumer and writers of keys.

It is the proof that the judge can fail: without a defect no history is convicted, with each defect every
history is. The servers are ``nodes.py``.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from plumbline.cluster.history import Attempt, AttemptOutcome, Retention
from plumbline.cluster.nats.history import ClusterHistory, LeaderRead, NodeLog
from plumbline.wire.units import SECOND
from tests.cluster.simulated.consumers import DRAINED_WITHIN, SimulatedConsumers
from tests.cluster.simulated.keys import SimulatedKeys
from tests.cluster.simulated.nodes import TICK_NS, Node, SimulatedDefect, SimulatedNodes

PROCESSES = 3
UNANSWERED = 40  # ticks
SETTLE = 150  # ticks after the last request


class SimulatedCluster:
    """``run`` gives the history of one seed."""

    def __init__(
        self,
        seed: int,
        defect: SimulatedDefect | None = None,
        seconds: int = 60,
        retention: Retention = Retention.LIMITS,
    ) -> None:
        self._retention = retention
        self._servers = SimulatedNodes(seed, defect, seconds)
        self._consumers = SimulatedConsumers(self._servers)
        self._keys = SimulatedKeys(self._servers)
        self._servers.on_lead.append(self._lead)
        self._random = self._servers.random
        self._defect = defect
        self._ticks = seconds * SECOND // TICK_NS
        self._attempts: list[Attempt] = []
        self._reads: list[LeaderRead] = []
        self._counters = [0] * PROCESSES
        self._again: list[list[int]] = [[] for _ in range(PROCESSES)]
        self._highest = 0
        self._tries: dict[str, int] = defaultdict(int)

    def run(self) -> ClusterHistory:
        """Publishes, consumes and updates keys while faults strike, heals, and reads every node."""
        servers = self._servers
        tick, is_drained = 0, False
        while tick < self._ticks:
            servers.step(tick)
            self._publish()
            self._keys.step()
            self._keys.watch()
            self._consumers.step()
            self._read()
            tick += 1
        while not is_drained and tick < self._ticks + DRAINED_WITHIN:
            servers.step(tick)
            is_drained = self._consumers.drain()
            self._keys.watch()
            self._read()
            tick += 1
        for _ in range(SETTLE):
            servers.step(tick)
            self._keys.watch()
            tick += 1
        logs = [NodeLog(node.number, self._kept(node)) for node in servers.nodes]
        whole = len({node.committed for node in servers.nodes}) == 1
        return ClusterHistory(
            self._attempts,
            self._reads,
            logs,
            is_whole=whole,
            consumer=self._consumers.history(),
            keys=self._keys.history(),
            retention=self._retention,
        )

    # -- servers -----------------------------------------------------------------------------

    def _kept(self, node: Node) -> dict[int, str]:
        """What this node has, without what the retention removes."""
        messages = node.messages()
        if self._retention is Retention.LIMITS:
            return messages
        if self._defect is SimulatedDefect.KEEPS_ACKNOWLEDGED and node.was_killed:
            return messages
        removed = self._consumers.removed(node)
        return {sequence: name for sequence, name in messages.items() if sequence not in removed}

    def _lead(self, node: Node) -> None:
        forgets = self._defect is SimulatedDefect.FORGETS_MESSAGE_IDS
        node.known = {} if forgets else {entry.id: at for at, entry in enumerate(node.log, 1)}

    def _arrive(self, attempt: Attempt) -> None:
        """A publish reaches its node, which hands it to the leader that it knows."""
        servers = self._servers
        node = servers.nodes[attempt.node]
        if not node.runs:
            return
        if node.leader is None:
            attempt.outcome, attempt.completed = AttemptOutcome.FAILED, servers.now() + TICK_NS
            return
        leader = servers.nodes[node.leader]
        if not leader.leads or not servers.reaches(node.number, leader.number):
            return
        sequence = leader.known.get(attempt.id)
        if sequence is not None:
            leader.waiting[sequence].append(partial(self._acknowledge, attempt, leader, sequence, True))
            return
        sequence = len(leader.log) + 1
        leader.known[attempt.id] = sequence
        refuses = self._defect is SimulatedDefect.REFUSES_AND_STORES and sequence % 50 == 0
        if refuses:
            attempt.outcome, attempt.completed = AttemptOutcome.FAILED, servers.now() + TICK_NS
        acknowledge = partial(self._acknowledge, attempt, leader, sequence, False)
        servers.propose(leader, attempt.id, _nothing if refuses else acknowledge)

    def _acknowledge(self, attempt: Attempt, leader: Node, sequence: int, duplicate: bool) -> None:
        if self._servers.reaches(leader.number, attempt.node):
            stated = self._stated(sequence) if leader.term > 1 else sequence
            self._servers.soon(partial(self._answer, attempt, stated, duplicate))

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
        servers = self._servers
        for process in range(PROCESSES):
            if self._random.random() > 0.4:
                continue
            again = self._again[process]
            if again:
                counter = again.pop()
            else:
                counter = self._counters[process]
                self._counters[process] += 1
            attempt = Attempt(process, counter, servers.any_node(), servers.now())
            self._attempts.append(attempt)
            servers.soon(partial(self._arrive, attempt))
            self._tries[attempt.id] += 1
            if counter % 2 == 0 and self._tries[attempt.id] < 3:
                servers.after(UNANSWERED, partial(self._retry, attempt))

    def _retry(self, attempt: Attempt) -> None:
        if attempt.outcome is AttemptOutcome.INDETERMINATE:
            self._again[attempt.process].append(attempt.counter)

    def _answer(self, attempt: Attempt, sequence: int, duplicate: bool) -> None:
        if self._servers.nodes[attempt.node].runs:
            attempt.outcome, attempt.completed = AttemptOutcome.OK, self._servers.now() + TICK_NS
            attempt.sequence, attempt.duplicate = sequence, duplicate
            self._highest = max(self._highest, sequence)

    def _read(self) -> None:
        """In every second tick, each node is asked for the newest acknowledged message; only a leader
        answers."""
        servers = self._servers
        if servers.tick % 2 == 0 or not self._highest:
            return
        for node in servers.nodes:
            leader = servers.leader_of(node.number)
            stale = self._defect is SimulatedDefect.STALE_READS
            if leader is None or not (stale or servers.is_sure(leader)):
                continue
            place = self._highest - 1
            found = leader.log[place].id if place < leader.committed else None
            if self._retention is not Retention.LIMITS and self._highest in self._consumers.removed(leader):
                found = None
            now = servers.tick * TICK_NS + TICK_NS - 2
            self._reads.append(LeaderRead(now, now + 1, node.number, self._highest, found))


def _nothing() -> None:
    """A publish that gets no answer any more."""
