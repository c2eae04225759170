"""The least that a relay in Python can do: what comes is sent on. A yardstick of ``tests.bench.proxy``.

No back-pressure of its own, no half-close, no errors, no recording: it waits where it cannot send.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable

READ_BYTES = 60 * 1024


def run(server: tuple[str, int]) -> None:
    """Prints its port, then relays until it is killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    ways: dict[int, tuple[Callable[[int, int], bytes], Callable[[bytes], None]]] = {}
    pairs: dict[int, tuple[socket.socket, socket.socket]] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                pair = listener.accept()[0], socket.create_connection(server)
                for one, other in (pair, pair[::-1]):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    ways[one.fileno()] = one.recv, other.sendall
                    pairs[one.fileno()] = pair
                    poll.register(one.fileno(), select.EPOLLIN)
            elif descriptor in ways:
                receive, send = ways[descriptor]
                try:
                    if data := receive(READ_BYTES, socket.MSG_DONTWAIT):
                        send(data)
                        continue
                except BlockingIOError:
                    continue  # an event of a closed socket whose number is in use again
                except OSError:
                    pass  # a reset ends both sides, too
                for one in pairs[descriptor]:
                    del ways[one.fileno()], pairs[one.fileno()]
                    poll.unregister(one.fileno())
                    one.close()


if __name__ == "__main__":
    run((sys.argv[1], int(sys.argv[2])))
