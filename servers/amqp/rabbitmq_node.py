"""A RabbitMQ node in the foreground: ``python -m servers.amqp.rabbitmq_node PROGRAM -d FOLDER``.

Prints one line that starts with its URL when clients can connect. SIGTERM ends it in order; kill -9 of the
process group is a crash. What it stores lies in the folder, for the next one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import ServerError


def main() -> int:
    """Runs until the node has ended."""
    parser = argparse.ArgumentParser(
        prog="python -m plumbline.servers.amqp.rabbitmq_node", description=__doc__
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("-d", "--data-dir", type=Path, required=True)
    options = parser.parse_args()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    node = None
    try:
        node = RabbitMQ(options.program, options.data_dir, apart=False)
        node.launch()
        node.await_ready()
        print(f"{node.url} ready", flush=True)
        return node.wait()
    except ServerError as error:
        print(f"plumbline: {error}", flush=True)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        if node is not None:
            node.wait()


if __name__ == "__main__":
    raise SystemExit(main())
