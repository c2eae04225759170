"""The user's own cluster: nodes by their URLs, killed and started by the user's commands."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from plumbline.cluster.nodes import RESTARTED_WITHIN_S, NodeProcesses
from plumbline.cluster.plan import FaultType
from plumbline.cluster.relays import RouteRelays
from plumbline.conformance.targets.urls import parse_url
from plumbline.errors import PlumblineError, UsageProblem
from plumbline.servers.process import ServerError

COMMAND_WITHIN_S = 60.0
LOOK_EVERY_S = 0.1
# In a command: the number of the node, counted from 1, and its URL, without a password: every user of the
# machine can read a command line.
NODE, URL = "{node}", "{url}"


class CommandError(PlumblineError):
    """A command of the user did not succeed."""


class CommandedNodes(NodeProcesses):
    """``kill`` and ``start`` are argument lists; no shell reads them. Empty: that is not possible."""

    def __init__(self, urls: Sequence[str], kill: Sequence[str], start: Sequence[str]) -> None:
        super().__init__(())
        self._urls = urls
        self._kill, self._start = kill, start

    def url_of(self, node: int) -> str:
        return "" if node in self._killed else self._urls[node]

    def kill(self, nodes: Collection[int]) -> None:
        """Raises ``CommandError``."""
        for one in nodes:
            self._killed.add(one)
            self._run(self._kill, one)

    def restart(self, nodes: Collection[int]) -> None:
        for one in nodes:
            self._run(self._start, one)
        for one in nodes:
            self._await_port(one)
            self._killed.discard(one)

    def start_all(self) -> None:
        """What was killed and not started again, as far as possible."""
        for one in sorted(self._killed):
            self._run(self._start, one)
        self._killed.clear()

    def _run(self, command: Sequence[str], node: int) -> None:
        url = self._urls[node]
        shown = str(parse_url(url)) if "@" in url else url
        words = [word.replace(NODE, str(node + 1)).replace(URL, shown) for word in command]
        try:
            ended = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_WITHIN_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise CommandError(f"the command {words[0]} for node {node + 1} failed: {problem}") from None
        if ended.returncode:
            printed = (ended.stdout + ended.stderr).strip()[-300:]
            how = f"ended with exit code {ended.returncode}: {printed}"
            raise CommandError(f"the command {words[0]} for node {node + 1} {how}")

    def _await_port(self, node: int) -> None:
        address = parse_url(self._urls[node])
        deadline = time.monotonic() + RESTARTED_WITHIN_S
        while True:
            try:
                with socket.create_connection((address.host, address.port), timeout=1.0):
                    return
            except OSError as problem:
                if time.monotonic() > deadline:
                    raise ServerError(f"node {node + 1} does not start again: {problem}") from None
            time.sleep(LOOK_EVERY_S)


class UserCluster:
    """Nodes that run already. Nothing is between them, so their routes cannot be disturbed."""

    is_lasting = True

    def __init__(self, urls: Sequence[str], kill: Sequence[str], start: Sequence[str]) -> None:
        self.processes = CommandedNodes(urls, kill, start)
        self.urls = urls

    @property
    def relays(self) -> RouteRelays:
        raise UsageProblem("routes between nodes of your own cluster cannot be cut or delayed")

    def store_files(self, node: int) -> Sequence[Path]:
        return ()

    def lose_power(self, node: int) -> str:
        raise UsageProblem("a node of your own cluster cannot lose power")

    def launch(self) -> None:
        pass

    def await_ready(self) -> None:
        pass

    def stop(self) -> None:
        """Starts what was killed and is still down. Raises ``CommandError``."""
        self.processes.start_all()


def possible_faults(kill: Sequence[str]) -> frozenset[FaultType]:
    """Those that can be made from outside."""
    return frozenset({FaultType.NONE, FaultType.LEADER, *([FaultType.KILL] if kill else [])})
