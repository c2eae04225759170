"""Free ports of this machine, for servers that cannot choose one themselves.

Between the choice and the server's own bind, nothing may take the port: the server would end, and who waits
for it would reach another one. So these are not ports that a system gives to outgoing connections (from 32768
on Linux, from 49152 elsewhere), and each process has a range of its own: it holds the first port of it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import cycle
from threading import Lock

FIRST, LAST = 12000, 31999
OF_A_PROCESS = 64
RANGES = (LAST + 1 - FIRST) // OF_A_PROCESS
_claiming = Lock()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on, and that connections have left. A program that is none of
    Plumbline's may take one first. Raises ``OSError`` if the system has none."""
    with ExitStack() as held:
        return [held.enter_context(_free()).getsockname()[1] for _ in range(count)]


def _free() -> socket.socket:
    with _claiming:
        _, ports = _range_of(os.getpid())
        for _ in range(OF_A_PROCESS - 1):  # a port that was just left comes last
            if (server := _bound(next(ports))) is not None:
                return server
    return socket.create_server(("127.0.0.1", 0))  # other programs have all of them


@cache
def _range_of(process: int) -> tuple[socket.socket, Iterator[int]]:
    """What holds a range for that process until it ends, and the ports of the range, again and again. After a
    fork the new process has another one."""
    for number in range(RANGES):
        first = FIRST + (process + number) % RANGES * OF_A_PROCESS
        if (holder := _bound(first)) is not None:
            return holder, cycle(range(first + 1, first + OF_A_PROCESS))
    return socket.create_server(("127.0.0.1", 0)), cycle((0,))  # all have an owner: the system chooses


def _bound(port: int) -> socket.socket | None:
    server = socket.socket()  # without SO_REUSEADDR, as some servers
    try:
        server.bind(("127.0.0.1", port))
    except OSError:
        server.close()
        return None
    return server
