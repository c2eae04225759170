"""A pull consumer in the simulated cluster. Acks are entries of the replicated log; what was delivered is
known to the leader only, so a new one delivers again what is not acknowledged."""

from __future__ import annotations

from functools import partial

from plumbline.cluster.nats.consumers.history import (
    AckKind,
    ConsumerHistory,
    ConsumerState,
    PullDelivery,
)
from tests.cluster.simulated.nodes import ACKED, NODES, TICK_NS, Node, SimulatedDefect, SimulatedNodes

CLIENTS = 3
BATCH = 10
ACK_WAIT = 40  # ticks
QUIET = 100  # ticks without a delivery, after which nothing is expected any more
DRAINED_WITHIN = 3000  # ticks
INFO_EVERY = 4  # ticks
EARLIER = 25  # messages: how far a defect goes back


class LeaderConsumer:
    """What a leader knows of the consumer: starts again with each leader."""

    def __init__(self) -> None:
        self.applied = 0  # entries of the log that were looked at
        self.acknowledged: set[int] = set()
        self.pending: dict[int, int] = {}  # delivered and not acknowledged -> when
        self.next = 1  # the first sequence that was not delivered by this leader
        self.floor = 0


class SimulatedConsumers:
    """Clients of one consumer, and its part of the servers."""

    def __init__(self, servers: SimulatedNodes) -> None:
        self._servers = servers
        self._of_leader = [LeaderConsumer() for _ in range(NODES)]
        self._deliveries: list[PullDelivery] = []
        self._states: list[ConsumerState] = []
        self._is_gone = False
        self._is_draining = False
        self._delivered_at = 0
        servers.on_lead.append(self._lead)
        servers.on_kill.append(self._killed)

    def step(self) -> None:
        """Pull requests, and requests for the state of the consumer."""
        servers = self._servers
        for _ in range(CLIENTS):
            if servers.random.random() < 0.3:
                servers.soon(partial(self._pull, servers.any_node(), servers.now()))
        if servers.tick % INFO_EVERY == 0:
            self._state(servers.any_node())

    def drain(self) -> bool:
        """One tick after all faults; whether nothing is left, or nothing came for long. Every delivery is
        acknowledged twice over."""
        if not self._is_draining:
            self._is_draining, self._delivered_at = True, self._servers.tick
        self.step()
        if self._servers.tick - self._delivered_at > QUIET:
            return True
        leader = self._leader(0)
        if leader is None:
            return False
        consumer = self._applied(leader)
        return consumer.next > leader.committed == len(leader.log) and not consumer.pending

    def history(self) -> ConsumerHistory:
        """After ``drain``."""
        self._state(0)
        last = self._states.pop() if self._leader(0) is not None else None
        answers = last is not None
        problem = "" if answers else "no leader answers"
        return ConsumerHistory(self._deliveries, self._states, last, is_drained=answers, problem=problem)

    # -- servers -----------------------------------------------------------------------------

    def _lead(self, node: Node) -> None:
        consumer = self._of_leader[node.number] = LeaderConsumer()
        match self._servers.defect:
            case SimulatedDefect.FORGETS_ACKS if node.term > 1:
                consumer.applied = len(node.log)
            case SimulatedDefect.SKIPS_UNDELIVERED:
                consumer.next = len(node.log)
            case SimulatedDefect.ACKS_ALL_AT_CHANGE:
                acks = [int(one.id.removeprefix(ACKED)) for one in node.log if one.id.startswith(ACKED)]
                consumer.acknowledged.update(range(max(acks, default=0)))

    def _killed(self, node: Node) -> None:
        if self._servers.defect is SimulatedDefect.LOSES_CONSUMER and node.leads:
            self._is_gone = True

    def _leader(self, node: int) -> Node | None:
        """The leader that serves the consumer."""
        leader = self._servers.leader_of(node)
        return None if leader is None or self._is_gone or not self._servers.is_sure(leader) else leader

    def _applied(self, leader: Node) -> LeaderConsumer:
        """With all acks that a majority has."""
        consumer = self._of_leader[leader.number]
        for entry in leader.log[consumer.applied : leader.committed]:
            if entry.id.startswith(ACKED):
                sequence = int(entry.id.removeprefix(ACKED))
                consumer.acknowledged.add(sequence)
                if self._servers.defect is not SimulatedDefect.REDELIVERS_AFTER_ACK_WAIT or sequence % 20:
                    consumer.pending.pop(sequence, None)
        consumer.applied = max(consumer.applied, leader.committed)
        done = self._servers.defect is SimulatedDefect.FLOOR_OF_DELIVERED
        while consumer.floor < leader.committed:
            sequence = consumer.floor + 1
            is_delivered = done and sequence < consumer.next
            if (
                leader.log[consumer.floor].is_message
                and sequence not in consumer.acknowledged
                and not is_delivered
            ):
                break
            consumer.floor = sequence
        return consumer

    def removed(self, node: Node) -> set[int]:
        """Sequences that a stream removes which keeps what is not acknowledged, as this node knows."""
        if self._servers.defect is SimulatedDefect.REMOVES_DELIVERED:
            return {one.sequence for one in self._deliveries}
        return {
            int(entry.id.removeprefix(ACKED))
            for entry in node.log[: node.committed]
            if entry.id.startswith(ACKED)
        }

    def _pull(self, node: int, pulled: int) -> None:
        """A request reaches its node, which hands it to the leader."""
        leader = self._leader(node)
        if leader is None:
            return
        consumer = self._applied(leader)
        waited = self._servers.tick - ACK_WAIT
        again = [sequence for sequence, at in consumer.pending.items() if at < waited]
        if self._servers.defect in (SimulatedDefect.NEVER_REDELIVERS, SimulatedDefect.REMOVES_DELIVERED):
            again = []
        batch = again[:BATCH]
        while len(batch) < BATCH and consumer.next <= leader.committed:
            sequence = consumer.next
            consumer.next += 1
            if leader.log[sequence - 1].is_message and sequence not in consumer.acknowledged:
                batch.append(sequence)
        for sequence in batch:
            consumer.pending[sequence] = self._servers.tick
            message = leader.log[sequence - 1].id
            self._servers.soon(partial(self._take, node, sequence, message, pulled))

    # -- clients -----------------------------------------------------------------------------

    def _take(self, node: int, sequence: int, message: str, pulled: int) -> None:
        servers = self._servers
        if not servers.nodes[node].runs:
            return
        now = servers.now()
        one = PullDelivery(sequence, message, node, pulled, now)
        self._deliveries.append(one)
        self._delivered_at = servers.tick
        chance = 1.0 if self._is_draining else servers.random.random()
        if chance < 0.2:
            return
        one.settlement = AckKind.ACK if chance < 0.4 else AckKind.DOUBLE
        one.acknowledged = now + 1
        servers.soon(partial(self._acknowledge, one))

    def _acknowledge(self, one: PullDelivery) -> None:
        """An ack reaches the leader, if there is one."""
        leader = self._servers.leader_of(one.node)
        if leader is None or self._is_gone:
            return
        answer = partial(self._committed, one, leader)
        if self._servers.defect is SimulatedDefect.CONFIRMS_ACKS_EARLY:
            answer()
        self._servers.propose(leader, f"{ACKED}{one.sequence}", answer)

    def _committed(self, one: PullDelivery, leader: Node) -> None:
        if one.settlement is AckKind.DOUBLE and self._servers.reaches(leader.number, one.node):
            self._servers.soon(partial(self._confirmed, one))

    def _confirmed(self, one: PullDelivery) -> None:
        if self._servers.nodes[one.node].runs and not one.confirmed:
            one.confirmed = self._servers.now()

    def _state(self, node: int) -> None:
        leader = self._leader(node)
        if leader is None:
            return
        floor = self._applied(leader).floor
        if self._servers.defect is SimulatedDefect.LOWERS_FLOOR and self._servers.random.random() < 0.1:
            floor = max(floor - EARLIER, 0)
        now = self._servers.tick * TICK_NS + TICK_NS - 2
        self._states.append(ConsumerState(now, now + 1, node, f"node {leader.number + 1}", floor))
