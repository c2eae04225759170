"""What adapters in Python share: the adapter protocol on stdin and stdout (``PROTOCOL.md``). It knows no
library.

The actions of an adapter are an object with a method for each command: ``do_tx_commit`` for ``tx.commit``.
It takes the command and gives the fields of ``ok`` or None, or raises what the library raises.
"""

from __future__ import annotations

import json
import os
import platform
import select
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

Command = dict[str, Any]
Errors = tuple[type[BaseException], ...]
Described = Callable[[BaseException], dict[str, Any]]
M = TypeVar("M")

_writing = threading.Lock()  # callbacks of libraries come from threads


def say(**line: Any) -> None:
    """Write one line."""
    with _writing:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def say_hello(protocol: str, library: str, features: str) -> None:
    """The first line; ``library`` is the name of its distribution."""
    say(
        hello="plumbline.adapter/1",
        protocol=protocol,
        library=library,
        version=version(library),
        language=f"python {platform.python_version()}",
        features=features.split(),
    )


def describe(error: BaseException) -> dict[str, Any]:
    """A report of an error: its text, its type, and its number if it has one."""
    code = next((value for name in ("reply_code", "code") if (value := getattr(error, name, None))), None)
    described = {"text": str(error) or repr(error), "type": type(error).__name__}
    return {**described, "code": int(code)} if isinstance(code, int) else described


class Messages(Generic[M]):
    """What the library handed over, for the commands that name it by its ref."""

    def __init__(self) -> None:
        self._kept: list[M] = []
        self._keeping = threading.Lock()

    def keep(self, message: M) -> int:
        """The ref of a message."""
        with self._keeping:
            self._kept.append(message)
            return len(self._kept)

    def __getitem__(self, ref: int) -> M:
        return self._kept[ref - 1]


class Server:
    """What an AMQP URL says: ``heartbeat`` in seconds, 0 if none is wanted."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        self.port = parts.port or 5672
        self.user = unquote(parts.username or "guest")
        self.password = unquote(parts.password or "guest")
        self.vhost = unquote(parts.path[1:]) or "/"
        self.heartbeat = int(parse_qs(parts.query).get("heartbeat", ["0"])[0])


def bodies(command: Command) -> Iterator[tuple[int, bytes]]:
    """The number and the body of each message of a ``publish`` command."""
    first = command.get("publish", 0)
    for number in range(first, first + command.get("count", 1)):
        data = command["data"] + (f"-{number}" if "count" in command else "")
        yield number, data.encode("latin-1")


def header_lists(headers: Any) -> dict[str, list[str]]:
    """Headers as the protocol has them: a list of texts for each name."""
    return {str(name): [str(value)] for name, value in (headers or {}).items()}


def method_of(actions: object, command: Command) -> Any:
    """The method for a command, or None."""
    return getattr(actions, "do_" + command["do"].replace(".", "_"), None)


UNKNOWN: dict[str, Any] = {"error": {"text": "unknown command", "type": "unsupported"}}


def answer(
    actions: object, command: Command, errors: Errors, describe: Described = describe
) -> dict[str, Any]:
    """Do a command: its answer. ``errors`` are what the library raises."""
    method = method_of(actions, command)
    if method is None:
        return UNKNOWN
    try:
        return {"ok": method(command) or {}}
    except errors as error:
        return {"error": describe(error)}


def serve(actions: object, errors: Errors, describe: Described = describe) -> None:
    """Answer commands until stdin ends. For a library with threads of its own."""
    for line in sys.stdin:
        command = json.loads(line)
        say(id=command["id"], **answer(actions, command, errors, describe))


def serve_beside(
    actions: object, errors: Errors, waiting: Callable[[], tuple[Any, float | None]], turn: Callable[[], None]
) -> None:
    """Answer commands until stdin ends, for a library that does nothing unless it is called. ``waiting``
    gives its socket, or None, and the longest pause in seconds, or None; ``turn`` is called when there is
    something to read or the pause is over."""
    unread = b""
    while True:
        found, pause = waiting()
        if isinstance(found, ssl.SSLSocket) and found.pending():
            pause = 0  # TLS has read more than the library has: select does not see it
        ready = select.select([0] if found is None else [0, found], [], [], pause)[0]
        if found is not None and (found in ready or not ready):
            turn()
        if 0 in ready:
            data = os.read(0, 1 << 20)
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                command = json.loads(line)
                say(id=command["id"], **answer(actions, command, errors))
