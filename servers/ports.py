"""Free ports of this machine, for servers that cannot choose one themselves.

Between the choice and the server's own bind, nothing may take the port: the server would end, and who waits
for it would reach another one. So these are not ports that a system gives to outgoing connections (from 32768
on Linux, from 49152 elsewhere), and processes that choose at the same time choose different ones.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count as counter

FIRST, LAST = 12000, 31999
OF_A_PROCESS = 64  # of the next 311 process ids the ports are others
SLICES = (LAST + 1 - FIRST) // OF_A_PROCESS


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing listens on, and that connections have left. Another program may take
    one first. Raises ``OSError`` if the system has none."""
    with ExitStack() as held:
        return [held.enter_context(_bound(os.getpid())).getsockname()[1] for _ in range(count)]


def _bound(process: int) -> socket.socket:
    first = FIRST + process % SLICES * OF_A_PROCESS
    for _ in range(OF_A_PROCESS):  # a port that was just left comes last
        server = socket.socket()  # without SO_REUSEADDR, as some servers
        try:
            server.bind(("127.0.0.1", first + next(_turns(process)) % OF_A_PROCESS))
        except OSError:
            server.close()
        else:
            return server
    return socket.create_server(("127.0.0.1", 0))  # other programs have all of them


@cache
def _turns(process: int) -> Iterator[int]:
    del process  # each has its own, also after a fork
    return counter()
