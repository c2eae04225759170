"""A broker in the foreground: ``python -m plumbline.servers.foreground SOFTWARE PROGRAM -d FOLDER``.

With ``-c FILE``, the settings of an AMQP variant as JSON, SIGUSR1 raises an alarm, and SIGUSR2 ends it.
Of a NATS server ``-c FILE`` alone is a configuration as nats-server reads it, which names the folder.
Prints one line that starts with its URL when clients can connect. SIGTERM ends it in order; kill -9 of the
process group is a crash. What it stores is in the folder, for the next one. If it ends by itself, the end of
what it printed follows, and the exit code is not 0.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from plumbline.servers.process import ServerError, ServerProcess
from plumbline.servers.start_command import started_for_a_check
from plumbline.servers.starting import new_server
from plumbline.servers.targets import Software, software

POLL_INTERVAL_S = 0.5
LOG_LINES = 10
_ENDS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Runs until the server has ended."""
    parser = argparse.ArgumentParser(prog="python -m plumbline.servers.foreground", description=__doc__)
    parser.add_argument(
        "software",
        choices=[name for name, known in software().items() if known.protocol == "amqp" or known.start],
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("-d", "--data-dir", type=Path)
    parser.add_argument("-c", "--config", type=Path)
    options = parser.parse_args()
    known = software()[options.software]
    needed = options.data_dir if known.protocol == "amqp" else options.config
    if needed is None:
        parser.error(f"{known.name} needs {'-d FOLDER' if known.protocol == 'amqp' else '-c FILE'}")
    return run(lambda: _server(known, options.program, options.data_dir, options.config))


def _server(known: Software, program: Path, data: Path | None, config: Path | None) -> ServerProcess:
    if data is None:
        assert config is not None
        return started_for_a_check(
            lambda given, store: new_server(known, program, store, config=given, apart=False), config
        )
    server = new_server(known, program, data, apart=False)
    if config is not None:
        server.configure(json.loads(config.read_bytes()))  # written by Plumbline
    return server


def run(make: Callable[[], ServerProcess]) -> int:
    """Runs a server of the process group of this process until it has ended. The exit code."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    for number in _ENDS:
        signal.signal(number, lambda *_: sys.exit(0))
    server = None
    try:
        server = make()
        server.start()
        print(f"{server.url} ready", flush=True)
        return _serve(server)
    except ServerError as error:
        print(f"plumbline: {error}", flush=True)
        return 1
    finally:
        end = server.end_signal if server is not None else signal.SIGTERM
        for number in {*_ENDS, end}:
            signal.signal(number, signal.SIG_IGN)
        os.killpg(0, end)  # the server may have children
        if server is not None:
            server.shut_down()


def _serve(server: ServerProcess) -> int:
    """Waits until the server has ended, or one of ``_ENDS`` has come. The exit code."""
    awaited = {*_ENDS, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # awaited here: a handler may come at any place
    while (status := server.poll()) is None:
        came = signal.sigtimedwait(awaited, POLL_INTERVAL_S)
        if came is None:
            continue
        if came.si_signo in _ENDS:
            return 0
        if came.si_signo == signal.SIGUSR1:
            server.raise_alarm()
        elif came.si_signo == signal.SIGUSR2:
            server.end_alarm()
    print(*_last_words(server.log), sep="\n", flush=True)
    return status if status > 0 else 1


def _last_words(log: str) -> list[str]:
    """Why it died, if it says so, else the last lines."""
    lines = log.splitlines()
    died = [number for number, line in enumerate(lines) if line.startswith(("panic:", "fatal error:"))]
    return lines[died[0] :][:LOG_LINES] if died else lines[-LOG_LINES:]


if __name__ == "__main__":
    raise SystemExit(main())
