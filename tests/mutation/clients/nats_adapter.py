"""The adapter of the small client library: commands of PROTOCOL.md in, answers and events out."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

from plumbline.wire.nats.jetstream import api_subject
from tests.mutation.clients.nats_client import Came, Client, LibraryError, say, status_of
from tests.mutation.clients.nats_jetstream import Consuming, JetStream
from tests.mutation.clients.nats_kv import KeyValue
from tests.mutation.clients.nats_objects import Objects
from tests.mutation.clients.nats_ordered import Ordered
from tests.mutation.clients.nats_services import Services

FEATURES = [
    "reset", "tls",
    "publish", "publish.flush", "request", "subscribe", "unsubscribe.after", "js.publish", "fetch",
    "fetch.no_wait", "fetch.heartbeat", "consume", "push", "ack", "ack.nak", "ack.nak.delay",
    "ack.progress", "ack.term", "ack.term.reason", "ack.next", "ack.next.batch", "ack.sync",
    "reconnect", "reconnect.buffer", "ping", "lame-duck", "drain",
    "ordered", "kv", "kv.watch",
    "obj", "obj.create", "obj.link", "obj.list", "obj.seal", "obj.update", "obj.watch",
    "service", "service.no_queue", "service.reset",
]  # fmt: skip


class Adapter:
    """Commands in, answers and events out."""

    def __init__(self) -> None:
        self.alter: Callable[[Client, JetStream], None] = lambda client, js: None
        self.forget()

    def forget(self) -> None:
        """Start again, with the same defect."""
        self.messages: dict[int, Came] = {}
        self.subscriptions: dict[str, int] = {}
        self.consuming: dict[str, Consuming] = {}
        self.services = Services()
        self.numbers = itertools.count(1)
        self.client = Client()
        self.js = JetStream(self.client)

    def handed(self, operation: Came) -> dict[str, Any]:
        ref = next(self.numbers)
        self.messages[ref] = operation
        headers: dict[str, list[str]] = {}
        for name, value in operation.headers.fields if operation.headers is not None else ():
            headers.setdefault(name, []).append(value)
        return {
            "ref": ref,
            "subject": operation.subject,
            "reply": operation.reply or "",
            "data": operation.payload.decode("latin-1"),
            "headers": headers,
        }

    def into(self, name: str) -> Callable[[Came], None]:
        return lambda operation: say(event="message", subscription=name, message=self.handed(operation))

    def do(self, name: str, command: dict[str, Any]) -> dict[str, Any] | None:
        """One command. Raises ``LibraryError``."""
        data = command.get("data", "").encode("latin-1")
        timeout = command.get("timeout_ms", 1000) / 1000
        headers = command.get("headers", {})
        client, js = self.client, self.js
        match name:
            case "connect":
                self.client = Client()
                self.js = JetStream(self.client)
                self.set_options(command)
                self.client.authority = command.get("tls_ca", "")
                self.alter(self.client, self.js)
                self.client.connect(command["url"])
            case "reset":
                client.close()
                self.forget()
            case "drain":
                client.drain()
            case "flush":
                client.flush()
            case "close":
                client.close()
            case "publish":
                client.publish(command["subject"], data, headers, command.get("reply", ""))
                if command.get("flush"):
                    client.flush_within_s = timeout
                    client.flush()
            case "request":
                return {"message": self.handed(client.request(command["subject"], data, headers, timeout))}
            case "subscribe":
                name = command["subscription"]
                take, group = self.into(name), command.get("queue", "")
                self.subscriptions[name] = client.subscribe(command["subject"], take, group)
            case "unsubscribe":
                client.unsubscribe(self.subscriptions[command["subscription"]], command.get("after", 0))
            case "js.publish":
                named = {**headers, **js.id_header(command.get("msg_id", ""))}
                return js.publish(command["subject"], data, named, timeout)
            case "fetch":
                return self.fetch(command)
            case "consume":
                name = command["subscription"]
                self.consuming[name] = Consuming(js, name, command, self.into(name))
            case "stop":
                self.consuming[command["subscription"]].stop()
            case "js.subscribe":
                self.push(command)
            case "ordered":
                heartbeat_s, take = command["heartbeat_ms"] / 1000, self.into(command["subscription"])
                Ordered(client, command["stream"], command["subject"], heartbeat_s, take).start()
            case "kv.watch":
                KeyValue(client, js).watch(command["bucket"], command["subscription"], self.handed)
            case _ if name.startswith("kv."):
                return KeyValue(client, js).do(name, command)
            case _ if name.startswith("obj."):
                return Objects(client, js, command["bucket"]).do(name, command)
            case _ if name.startswith("service."):
                self.services.do(client, name, command)
            case "ack":
                js.acknowledge(self.messages[command["ref"]], command.get("kind", "ack"), command)
            case "ack.sync":
                js.acknowledge_twice(self.messages[command["ref"]], timeout)
            case _:
                raise LibraryError("unknown command")
        return None

    def set_options(self, command: dict[str, Any]) -> None:
        """Of the connection."""
        client = self.client
        client.reconnects = command.get("reconnect", False)
        client.reconnect_wait_s = command.get("reconnect_wait_ms", 100) / 1000
        client.buffer_bytes = command.get("buffer_bytes", client.buffer_bytes)
        client.ping_s = command.get("ping_ms", 0) / 1000
        client.pings_out = command.get("pings_out", client.pings_out)

    def fetch(self, command: dict[str, Any]) -> dict[str, Any]:
        found, error = self.js.fetch(
            command["stream"],
            command["consumer"],
            command["batch"],
            command["expires_ms"] / 1000,
            no_wait=command.get("no_wait", False),
            heartbeat=command.get("heartbeat_ms", 0) / 1000,
        )
        if error is not None and not found:
            raise error
        return {"messages": [self.handed(operation) for operation in found]}

    def push(self, command: dict[str, Any]) -> None:
        info = self.client.request(api_subject("CONSUMER.INFO", command["stream"], command["consumer"]))
        subject = json.loads(info.payload)["config"]["deliver_subject"]
        hand = self.into(command["subscription"])
        self.client.subscribe(subject, lambda operation: self.pushed(operation, hand))

    def pushed(self, operation: Came, hand: Callable[[Came], None]) -> None:
        """A message for the user, or a status of the push consumer."""
        status = status_of(operation)
        if status is None or self.js.is_handed_over(status, 0):
            hand(operation)
        if status is not None and operation.reply:
            self.answer_flow_control(operation.reply)

    def answer_flow_control(self, reply: str) -> None:
        self.client.publish(reply, b"", {})


def serve(adapter: Adapter, version: str) -> None:
    """Until stdin ends."""
    say(hello="plumbline.adapter/1", protocol="nats", library="twin", version=version, features=FEATURES)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            say(id=command["id"], ok=adapter.do(command["do"], command) or {})
        except LibraryError as error:
            error_fields = {"text": str(error), "type": "LibraryError"}
            handed = {} if error.handed is None else {"ok": error.handed}
            say(
                id=command["id"],
                error=error_fields if error.code is None else {**error_fields, "code": error.code},
                **handed,
            )
