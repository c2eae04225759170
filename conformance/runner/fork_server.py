"""Workers of xdist as copies of one process, which has imported and read what all of them need.

A new Python takes a second of the processor for that, and a run has ten. So the process of a run forks
the fork server before it starts anything, and xdist starts ``fork_client`` for each worker: that hands its
standard input and output over, and the server forks a worker that speaks through them.

A worker ends without the exit handlers of the process that it is a copy of: what they would delete is not its
own. Linux only, for a process with one thread; everywhere else xdist starts its workers itself.
"""

from __future__ import annotations

import gc
import os
import secrets
import shlex
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import FrameType
from typing import NoReturn

from plumbline.conformance.runner import fork_client
from plumbline.interpreter import bare_python_command

THREADS = Path("/proc/self/task")  # a folder for each, also for those that Python did not start
DESCRIPTORS = Path("/proc/self/fd")
STANDARD = {0, 1, 2}
_PEER = struct.Struct("3i")  # pid, uid and gid of the other end: SO_PEERCRED in socket(7)


@contextmanager
def forked_workers() -> Iterator[str]:
    """The server runs meanwhile. What to give to xdist for each worker (``--tx``): empty where none can be
    forked."""
    if not _can_fork():
        yield ""
        return
    name = f"plumbline-{secrets.token_hex(16)}"
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + name)
        listening.listen(socket.SOMAXCONN)
        sys.stdout.flush()
        sys.stderr.flush()
        if (server := os.fork()) == 0:
            _run(listening, theirs)
        listening.close()
        theirs.close()
        try:
            yield f"popen//python={shlex.join(bare_python_command(fork_client.__file__, name))}"
        finally:
            ours.close()  # which ends the server
            os.waitpid(server, 0)


def _can_fork() -> bool:
    """A copy of a process with threads may wait for ever for what one of them held."""
    return sys.platform == "linux" and THREADS.is_dir() and len(list(THREADS.iterdir())) == 1


def _run(listening: socket.socket, owner: socket.socket) -> NoReturn:
    """The server. It ends with its owner, which has the other end of ``owner``; workers end by themselves."""
    try:
        _keep_only({*STANDARD, listening.fileno(), owner.fileno()})
        _forget_handlers()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the controller ends the workers
        signal.signal(signal.SIGCHLD, _reap)
        gc.freeze()  # a collection would write to all that is there, and so copy it
        _serve(listening, owner)
    except BaseException:  # whatever it is, it must not go on in the code of the owner
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(listening: socket.socket, owner: socket.socket) -> None:
    with DefaultSelector() as ready:
        ready.register(listening, EVENT_READ)
        ready.register(owner, EVENT_READ)
        while not any(key.fileobj is owner for key, _ in ready.select()):
            client, _ = listening.accept()
            with client:
                if _is_ours(client) and os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    ready.close()
                    listening.close()
                    owner.close()
                    _work(client)


def _is_ours(client: socket.socket) -> bool:
    """Whether this user's process is at the other end: a worker does what it is asked to."""
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.geteuid())


def _work(client: socket.socket) -> NoReturn:
    """A worker: what ``python -c`` would do with the line that execnet gives it."""
    code = fork_client.LOST
    try:
        _, given, _, _ = socket.recv_fds(client, 1, len(fork_client.HANDED_OVER))
        for descriptor, standard in zip(given, fork_client.HANDED_OVER, strict=True):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        threading.Thread(target=_end_with, args=(client,), name="plumbline-client", daemon=True).start()
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - until the process ends
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
        code = 0
    except BaseException:  # the same; what it is shows where the run prints its errors
        traceback.print_exc()
    finally:
        with suppress(OSError):
            client.send(bytes((code,)))
        os._exit(code)


def _end_with(client: socket.socket) -> None:
    """The end of the client is that of the worker: it is the client that xdist kills."""
    client.recv(1)
    os._exit(fork_client.LOST)


def _keep_only(descriptors: set[int]) -> None:
    """Close what else this process has open: it belongs to the one that it is a copy of."""
    for opened in [int(path.name) for path in DESCRIPTORS.iterdir()]:
        if opened not in descriptors:
            with suppress(OSError):  # the one that listed them is closed
                os.close(opened)


def _forget_handlers() -> None:
    """As a new process has it: what was handled is not, and what was ignored still is."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _reap(number: int, frame: FrameType | None) -> None:
    """Workers that have ended: their time is counted as that of the run."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
