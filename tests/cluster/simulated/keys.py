"""Keys that several writers update by compare-and-set in the simulated cluster, and watches of them. An
update is an entry of the replicated log, and its place there is the revision."""

from __future__ import annotations

from functools import partial
from random import Random

from plumbline.cluster.history import AttemptOutcome
from plumbline.cluster.nats.keys.history import KeyCopy, KeyHistory, KeyUpdate, KeyWatch, WatchedUpdate
from tests.cluster.simulated.nodes import KEY, NODES, TICK_NS, Node, SimulatedDefect, SimulatedNodes

WRITERS = 3
KEYS = 2
WATCHERS = 2
WATCHED_AT_ONCE = 5  # entries of a log in one tick
NOTICED = 30  # ticks without anything, after which a watch begins on another node


class SimulatedKeys:
    """Writers, and their part of the servers."""

    def __init__(self, servers: SimulatedNodes) -> None:
        self._servers = servers
        self._last: list[dict[str, int]] = [{} for _ in range(NODES)]  # of each leader: in its log
        self._committed: list[dict[str, int]] = [{} for _ in range(NODES)]
        self._updates: list[KeyUpdate] = []
        self._revisions: list[dict[str, int]] = [{} for _ in range(WRITERS)]  # that each writer knows
        self._watches = [SimulatedWatch(servers, number) for number in range(WATCHERS)]
        servers.on_lead.append(self._lead)

    def watch(self) -> None:
        """Each watch gets what its node has committed."""
        for watch in self._watches:
            watch.step()

    def step(self) -> None:
        """Each writer updates a key now and then, with the last revision that it knows."""
        servers = self._servers
        for writer in range(WRITERS):
            if servers.random.random() > 0.2:
                continue
            key = f"k{servers.random.randrange(KEYS)}"
            expected = self._revisions[writer].get(key, 0)
            node = servers.any_node()
            update = KeyUpdate(key, f"value-{writer}-{len(self._updates)}", expected, node, servers.now())
            self._updates.append(update)
            servers.soon(partial(self._arrive, writer, update))

    def history(self) -> KeyHistory:
        """What each node has at the end."""
        copies = [self._copy(node) for node in self._servers.nodes]
        return KeyHistory(self._updates, copies, [watch.watch for watch in self._watches])

    # -- servers -----------------------------------------------------------------------------

    def _lead(self, node: Node) -> None:
        self._last[node.number] = _revisions(node, len(node.log))
        self._committed[node.number] = _revisions(node, node.committed)

    def _arrive(self, writer: int, update: KeyUpdate) -> None:
        """An update reaches its node, which hands it to the leader."""
        leader = self._servers.leader_of(update.node)
        if leader is None:
            return
        last = self._last[leader.number]
        match self._servers.defect:
            case SimulatedDefect.COMPARES_WITH_COMMITTED:
                has = self._committed[leader.number].get(update.key, 0)
            case SimulatedDefect.COMPARES_NOT_AFTER_CHANGE if leader.term > 1:
                has = update.expected
            case _:
                has = last.get(update.key, 0)
        if has != update.expected:
            self._servers.soon(partial(self._refused, writer, update, has))
            return
        committed = partial(self._store, writer, update, leader)
        last[update.key] = self._servers.propose(leader, f"{KEY}{update.key} {update.value}", committed)

    def _store(self, writer: int, update: KeyUpdate, leader: Node) -> None:
        place = next(
            sequence
            for sequence in range(len(leader.log), 0, -1)
            if leader.log[sequence - 1].id == f"{KEY}{update.key} {update.value}"
        )
        committed = self._committed[leader.number]
        committed[update.key] = max(committed.get(update.key, 0), place)
        if self._servers.reaches(leader.number, update.node):
            self._servers.soon(partial(self._answer, writer, update, place))

    def _copy(self, node: Node) -> KeyCopy:
        found: dict[str, list[tuple[int, str]]] = {}
        for sequence, entry in enumerate(node.log[: node.committed], 1):
            if entry.id.startswith(KEY):
                key, _, value = entry.id.removeprefix(KEY).partition(" ")
                found.setdefault(key, []).append((sequence, value))
        back = 2 if self._servers.defect is SimulatedDefect.OLD_VALUES and node.was_killed else 1
        return KeyCopy(node.number, {key: places[-back] for key, places in found.items()})

    # -- clients -----------------------------------------------------------------------------

    def _answer(self, writer: int, update: KeyUpdate, revision: int) -> None:
        if self._servers.nodes[update.node].runs:
            update.outcome, update.completed = AttemptOutcome.OK, self._servers.now() + TICK_NS
            update.revision = revision
            self._revisions[writer][update.key] = revision

    def _refused(self, writer: int, update: KeyUpdate, last: int) -> None:
        if self._servers.nodes[update.node].runs:
            update.outcome, update.completed = AttemptOutcome.FAILED, self._servers.now() + TICK_NS
            self._revisions[writer][update.key] = last


class SimulatedWatch:
    """A consumer on one node; on another one, after what it got, when that is killed or paused."""

    def __init__(self, servers: SimulatedNodes, number: int) -> None:
        self._servers = servers
        self._random = Random(f"watch {number}")
        self._node = number
        self._consumer = 1
        self._silent = 0
        self._next = 1
        self.watch = KeyWatch([])

    def step(self) -> None:
        """At most some entries."""
        servers = self._servers
        if not servers.nodes[self._node].runs:
            self._silent += 1
            if self._silent < NOTICED:
                return
            self._silent = 0
            self._node = self._random.randrange(NODES)
            self._consumer += 1
            if servers.defect is SimulatedDefect.WATCH_SKIPS:
                self._next = max(self._next, servers.nodes[self._node].committed + 1)
            return
        node = servers.nodes[self._node]
        for sequence in range(self._next, min(node.committed, self._next + WATCHED_AT_ONCE) + 1):
            entry = node.log[sequence - 1]
            self._next = sequence + 1
            if entry.id.startswith(KEY):
                key, _, value = entry.id.removeprefix(KEY).partition(" ")
                self.watch.updates.append(
                    WatchedUpdate(key, value, sequence, self._consumer, servers.tick * TICK_NS)
                )


def _revisions(node: Node, upto: int) -> dict[str, int]:
    return {
        entry.id.removeprefix(KEY).partition(" ")[0]: sequence
        for sequence, entry in enumerate(node.log[:upto], 1)
        if entry.id.startswith(KEY)
    }
