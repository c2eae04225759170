"""Relays between the nodes of a cluster, in a process of their own: one for each ordered pair of nodes.

The relay ``(one, other)`` is where node ``one`` connects to node ``other``. A connection carries bytes both
ways, whoever opened it, so what ``one`` sends to ``other`` passes both relays of the two. A cut holds the
bytes and passes them on when it heals, as TCP does after a partition: nothing is reset, nothing is left out.

The process reads commands as JSON lines from stdin and ends at its end. It works beside the workload, which
needs the interpreter of this process for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import IO

from plumbline.errors import ExitCode, PlumblineError
from plumbline.interpreter import python_command
from plumbline.interrupts import kept_from_children
from plumbline.proxy.addresses import Endpoint
from plumbline.proxy.faults.injection import Faults
from plumbline.proxy.faults.language import parse_fault
from plumbline.proxy.record import ANY_PORT
from plumbline.proxy.relay import Relay

Route = tuple[int, int]  # two nodes, counted from 0

CUT = "bandwidth 0"  # holds every byte until the fault is taken away
ENDED_WITHIN_S = 5.0


class RelayError(PlumblineError):
    """The process of the relays does not answer."""

    exit_code = ExitCode.HARNESS_ERROR


class RouteRelays:
    """The relays, from ``start`` until ``stop``. ``ports`` says where each one listens on 127.0.0.1."""

    def __init__(self) -> None:
        self.ports: dict[Route, int] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def start(self, servers: Sequence[int]) -> None:
        """Between nodes that listen on these ports for each other. Relays that run are ended before."""
        self.stop()
        with kept_from_children():
            self._process = subprocess.Popen(
                python_command("-m", "plumbline.cluster.relays"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        routes = list(permutations(range(len(servers)), 2))
        try:
            answer = self._ask([[*route, servers[route[1]]] for route in routes])
        except BaseException:
            self.stop()
            raise
        self.ports = dict(zip(routes, answer, strict=True))

    def set_faults(self, faults: Mapping[Route, Iterable[str]]) -> None:
        """From now on these and no others: ``CUT``, ``latency 50ms``, on what the first node of each pair
        sends to the second. Returns when they are active."""
        wanted: dict[Route, list[str]] = {route: [] for route in self.ports}
        for (sender, receiver), texts in faults.items():
            for text in texts:
                wanted[sender, receiver].append(f"{text} on upstream")
                wanted[receiver, sender].append(f"{text} on downstream")
        self._ask([wanted[route] for route in self.ports])

    def stop(self) -> None:
        """Ends the process. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(ENDED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, command: object) -> list[int]:
        assert self._process is not None, "the cluster was not started"
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            try:
                stdin.write(json.dumps(command).encode() + b"\n")
                stdin.flush()
                answer: list[int] = json.loads(stdout.readline())
            except (OSError, ValueError) as error:
                raise RelayError(f"the relays between the nodes have ended: {error}") from None
        return answer


class _RouteRelay:
    """One relay in a thread."""

    def __init__(self, port: int) -> None:
        local = Endpoint.parse(ANY_PORT)
        self._relay = Relay(Endpoint(local.protocol, "127.0.0.1", port), local, record_first=False)
        self._relay.loop.stays_awake = False  # several of them share a processor with the nodes
        self._faults = Faults(
            self._relay.loop, None, 0, lambda link, direction, text: None, self._relay.finished.append
        )
        self._faults.may_change = True
        self._relay.disturb = self._faults.attach
        threading.Thread(target=self._relay.run, daemon=True).start()

    @property
    def port(self) -> int:
        return self._relay.address.port

    def set_faults(self, texts: Iterable[str]) -> None:
        """Returns when they are active."""
        faults = {text: parse_fault(text) for text in texts}
        done = threading.Event()

        def change() -> None:
            self._faults.change(faults)
            done.set()

        self._relay.loop.call(change)
        done.wait()


def serve(commands: IO[bytes], answers: IO[bytes]) -> None:
    """Answers the first command, the servers, with the ports; each later one, the faults, with nothing."""
    relays: list[_RouteRelay] = []
    for line in commands:
        command = json.loads(line)
        if not relays:
            relays = [_RouteRelay(port) for _, _, port in command]
            answer = [relay.port for relay in relays]
        else:
            for relay, texts in zip(relays, command, strict=True):
                relay.set_faults(texts)
            answer = []
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)  # its threads forward until then
