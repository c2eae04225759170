"""An adapter for ``plumbline gate`` around no library at all: a socket that sends what a command contains.

    python -m tests.pipeline.support.bare_client nats

Commands: ``connect`` to ``url``; ``say`` sends ``data`` and waits until ``count`` operations named ``until``
have come; ``close`` waits until the server has closed, too.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from plumbline.captures.dialects import known
from plumbline.wire.sender import Direction

PATIENCE_S = 300.0


class BareClient:
    """One connection."""

    def __init__(self, protocol: str) -> None:
        self._dialect = known()[protocol]

    def do(self, command: dict[str, Any]) -> None:
        """One command. Raises ``OSError``, ``EOFError``."""
        match command["do"]:
            case "connect":
                address = urlsplit(command["url"])
                self._decoder = self._dialect.decoder(Direction.TO_CLIENT)
                self._link = socket.create_connection((address.hostname, address.port or 0), PATIENCE_S)
            case "say":
                self._link.sendall(command["data"].encode("latin-1"))
                self._hear(command["until"], command["count"])
            case "close":
                self._link.shutdown(socket.SHUT_WR)
                while self._link.recv(65536):
                    pass
                self._link.close()

    def _hear(self, until: str, count: int) -> None:
        heard: Counter[str] = Counter()
        while heard[until] < count:
            data = self._link.recv(65536)
            if not data:
                raise EOFError(f"closed before {count} {until}")
            heard.update(self._dialect.fields(operation)["op"] for operation in self._decoder.feed(data))


def main(protocol: str) -> None:
    """Until stdin ends."""

    def say(**line: Any) -> None:
        print(json.dumps(line), flush=True)

    client = BareClient(protocol)
    say(hello="plumbline.adapter/1", protocol=protocol, library="bare", version="1", features=[])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            client.do(command)
        except (OSError, EOFError) as error:
            say(id=command["id"], error={"text": str(error), "type": type(error).__name__})
        else:
            say(id=command["id"], ok={})


if __name__ == "__main__":
    main(sys.argv[1])
