"""Key-value stores of the small client library, as ADR-8 wants them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.wire.nats.jetstream import AckSubject, api_subject
from tests.mutation.clients.nats_client import Came, Client, LibraryError, say
from tests.mutation.clients.nats_jetstream import JetStream
from tests.mutation.clients.nats_ordered import Ordered

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
WAIT_S = 2.0
HEARTBEAT_S = 5.0
REFS_FROM = 1_000_000  # of values: no command names them


class KeyValue:
    """The buckets of a connection."""

    DELETED: Mapping[str, str] = {"KV-Operation": "DEL"}
    PURGED: Mapping[str, str] = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}

    def __init__(self, client: Client, js: JetStream) -> None:
        self.client = client
        self.js = js
        self.deleted = dict(self.DELETED)
        self.purged = dict(self.PURGED)

    def do(self, name: str, command: Mapping[str, Any]) -> dict[str, Any] | None:
        """One command. Raises ``LibraryError``."""
        bucket, key = command["bucket"], command["key"]
        data = command.get("data", "").encode("latin-1")
        match name:
            case "kv.put":
                return {"seq": self.put(bucket, key, data)}
            case "kv.create":
                return {"seq": self.create(bucket, key, data)}
            case "kv.update":
                return {"seq": self.update(bucket, key, data, command["revision"])}
            case "kv.delete":
                self.write(bucket, key, b"", self.deleted)
            case "kv.purge":
                self.write(bucket, key, b"", self.purged)
            case "kv.get":
                return {"message": self.get(bucket, key)}
        return None

    def write(self, bucket: str, key: str, data: bytes, headers: Mapping[str, str]) -> int:
        stored = self.js.publish(f"$KV.{bucket}.{key}", data, headers, WAIT_S)
        return int(stored["seq"])

    def put(self, bucket: str, key: str, data: bytes) -> int:
        return self.write(bucket, key, data, {})

    def update(self, bucket: str, key: str, data: bytes, revision: int) -> int:
        return self.write(bucket, key, data, {EXPECTED: str(revision)})

    def create(self, bucket: str, key: str, data: bytes) -> int:
        """A key that has no value, or a deleted one."""
        try:
            return self.update(bucket, key, data, 0)
        except LibraryError:
            last = self.last(bucket, key)
            if not self.is_deleted(last):
                raise
            return self.update(bucket, key, data, last["seq"])

    def last(self, bucket: str, key: str) -> dict[str, Any]:
        """The last message of a key: ``seq``, ``data`` and ``hdrs`` in base64."""
        asked = {"last_by_subj": f"$KV.{bucket}.{key}"}
        subject = api_subject("STREAM.MSG.GET", f"KV_{bucket}")
        answer = json.loads(self.client.request(subject, json.dumps(asked).encode()).payload)
        if "error" in answer:
            raise LibraryError(answer["error"]["description"], answer["error"]["err_code"])
        found: dict[str, Any] = answer["message"]
        return found

    def is_deleted(self, message: Mapping[str, Any]) -> bool:
        return "hdrs" in message

    def get(self, bucket: str, key: str) -> dict[str, Any]:
        message = self.last(bucket, key)
        if self.is_deleted(message):
            raise LibraryError("key not found")
        return self.value(message, key)

    def value(self, message: Mapping[str, Any], key: str) -> dict[str, Any]:
        data = base64.b64decode(message.get("data", "")).decode("latin-1")
        return {"ref": REFS_FROM + message["seq"], "subject": key, "data": data}

    def watch(self, bucket: str, name: str, handed: Callable[[Came], dict[str, Any]]) -> None:
        """Every key: the last value of each, then what is new."""
        Watch(self.client, bucket, name, handed).start()


class Watch(Ordered):
    """An ordered consumer that begins with the last value of each key."""

    def __init__(
        self, client: Client, bucket: str, name: str, handed: Callable[[Came], dict[str, Any]]
    ) -> None:
        super().__init__(client, f"KV_{bucket}", f"$KV.{bucket}.>", HEARTBEAT_S, self.report)
        self.prefix = f"$KV.{bucket}."
        self.name = name
        self.handed = handed
        self.is_complete = False

    def config(self, inbox: str) -> dict[str, Any]:
        return {"deliver_policy": "last_per_subject", **super().config(inbox)}

    def created(self, info: Mapping[str, Any]) -> None:
        if not info["num_pending"] and not info["delivered"]["consumer_seq"]:
            self.complete()

    def report(self, operation: Came) -> None:
        entry = self.handed(operation)
        say(event="message", subscription=self.name, message=self.entry(entry))
        if not AckSubject.parse(operation.reply or "").pending:
            self.complete()

    def entry(self, entry: dict[str, Any]) -> dict[str, Any]:
        return {**entry, "subject": entry["subject"].removeprefix(self.prefix)}

    def complete(self) -> None:
        """The end of the initial data, once."""
        if not self.is_complete:
            self.is_complete = True
            say(event="up-to-date", subscription=self.name)
