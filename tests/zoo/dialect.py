"""A relay that makes another dialect of a NATS server's answers: same meaning, other text.

A server that is not written in Go writes flags that are false, or leaves them out where nats-server writes
them; it has descriptions, identifiers and offsets of times of its own. Nothing of that is wrong, so what the
relay makes of a conformant server is conformant.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from plumbline.wire.nats import Decoder, HMsg, Msg, Operation, Sender

_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_NO_DESCRIPTION = b"NATS/1.0 503\r\n"


@contextmanager
def other_dialect(host: str, port: int) -> Iterator[str]:
    """``host:port`` of a relay to the server there."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_relay, args=(client, host, port), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def translated(operation: Operation) -> bytes:
    """The bytes of an operation of a server in the other dialect."""
    if isinstance(operation, HMsg):
        block = operation.raw[operation.head :][: int(operation.args[-2])]
        if not block.startswith(_NO_DESCRIPTION):
            return operation.raw
        block = b"NATS/1.0 503 No Responders\r\n" + block[len(_NO_DESCRIPTION) :]
        words = [
            b"HMSG",
            *operation.args[:-2],
            b"%d" % len(block),
            b"%d" % (len(block) + len(operation.payload)),
        ]
        return b" ".join(words) + b"\r\n" + block + operation.payload + b"\r\n"
    if not isinstance(operation, Msg) or not operation.payload.startswith(b"{"):
        return operation.raw
    try:
        body = json.loads(operation.payload)
    except ValueError:
        return operation.raw
    if "type" not in body and not {"stream", "seq"} <= body.keys() and "error" not in body:
        return operation.raw  # the payload of a client
    payload = json.dumps(_other(body)).encode()
    words = [b"MSG", *operation.args[:-1], b"%d" % len(payload)]
    return b" ".join(words) + b"\r\n" + payload + b"\r\n"


def _other(body: dict[str, Any]) -> dict[str, Any]:
    if {"stream", "seq"} <= body.keys() and "error" not in body:
        body.setdefault("duplicate", False)
    if "deliver_subject" in body.get("config", {}):
        body.setdefault("push_bound", False)
    if "error" in body:
        body["error"]["description"] = f"the request is refused for reason {body['error'].get('err_code')}"
    if "id" in body and "timestamp" in body:
        body["id"] = str(uuid.uuid4())
    changed: dict[str, Any] = _values(body)
    return changed


def _values(value: Any) -> Any:
    """Flags that are false are left out below the first level, times have an offset."""
    if isinstance(value, dict):
        return {
            key: _values(child if key != "config" else {k: v for k, v in child.items() if v is not False})
            for key, child in value.items()
        }
    if isinstance(value, list):
        return [_values(item) for item in value]
    return value[:-1] + "+00:00" if isinstance(value, str) and _UTC.fullmatch(value) else value


def _relay(client: socket.socket, host: str, port: int) -> None:
    """Both directions of one connection, until one side ends it."""
    decoder = Decoder(Sender.SERVER)
    with client, socket.create_connection((host, port)) as server, suppress(OSError):
        while True:
            readable, _, _ = select.select((client, server), (), ())
            if client in readable:
                if not (data := client.recv(65536)):
                    return
                server.sendall(data)
            if server in readable:
                if not (data := server.recv(65536)):
                    return
                client.sendall(b"".join(map(translated, decoder.feed(data))))
