"""A server of a user's file in the foreground, for a check that restarts it.

``python -m plumbline.servers.user_foreground FILE NAME``, with ``-c FILE``, a configuration as nats-server
reads it, or ``-d FOLDER``, where it stores. It behaves as ``servers.foreground``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from plumbline.servers.foreground import run
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


def _server(file: Path, name: str, data: Path | None, config: Path | None) -> UserServer:
    if config is None:
        return UserServer(user_target(file, name), data=data, apart=False)
    given = json.loads(config.read_bytes())  # written by Plumbline
    store = Path(given.pop("jetstream")["store_dir"])
    del given["ports_file_dir"]
    return UserServer(user_target(file, name), given, store, apart=False)


if __name__ == "__main__":
    raise SystemExit(main())
