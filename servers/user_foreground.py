"""A server of a user's file in the foreground, for a check that restarts it.

``python -m plumbline.servers.user_foreground FILE NAME``, with ``-c FILE``, a configuration as nats-server
reads it, or ``-d FOLDER``, where it stores. It behaves as ``servers.foreground``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from plumbline.servers.foreground import run
from plumbline.servers.process import ServerProcess
from plumbline.servers.start_command import started_for_a_check
from plumbline.servers.user_targets import UserServer, user_target


def main() -> int:
    """Runs until the server has ended."""
    parser = argparse.ArgumentParser(prog="python -m plumbline.servers.user_foreground", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("name")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("-d", "--data-dir", type=Path)
    where.add_argument("-c", "--config", type=Path)
    options = parser.parse_args()
    return run(lambda: _server(options.file, options.name, options.data_dir, options.config))


def _server(file: Path, name: str, data: Path | None, config: Path | None) -> ServerProcess:
    target = user_target(file, name)
    if config is None:
        return UserServer(target, data=data, apart=False)
    return started_for_a_check(lambda given, store: UserServer(target, given, store, apart=False), config)


if __name__ == "__main__":
    raise SystemExit(main())
