"""What xdist starts in place of a worker: it hands its standard input and output to the fork server.

``python fork_client.py NAME``; NAME is the server's socket in Linux' abstract namespace. It ends when the
worker does, with the worker's exit code, or with ``LOST`` if that was killed. It imports nothing but the
standard library, so it starts in 20 ms.
"""

from __future__ import annotations

import os
import socket
import sys

LOST = 1
HANDED_OVER = (0, 1)  # the descriptors that a worker of xdist speaks through


def main() -> int:
    """Hands over, waits, and gives the exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect("\0" + sys.argv[1])
        socket.send_fds(server, [b"\0"], HANDED_OVER)
        for descriptor in HANDED_OVER:
            os.close(descriptor)  # so that they end with the worker
        code = server.recv(1)
    return code[0] if code else LOST


if __name__ == "__main__":
    sys.exit(main())
