"""A responder of NATS' compatibility tests over the small client library of ``tests.mutation``.

plumbline gate --nats-compat -- python -m tests.conformance.clients.twin_responder [broken|by-position]
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

from plumbline.wire.nats.jetstream import api_subject
from tests.mutation.clients.defect import replace
from tests.mutation.clients.nats_client import Came, Client
from tests.mutation.clients.nats_jetstream import JetStream
from tests.mutation.clients.nats_kv import KeyValue, Watch
from tests.mutation.clients.nats_objects import Objects, ObjectWatch
from tests.mutation.clients.nats_services import Endpoint, Service
from tests.patience import HANGS_AFTER_S


class Answers:
    """What the tests ask for, by suite and test: each method returns the payload of its answer."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.objects = Objects(client, JetStream(client), "test")
        self.service: Service | None = None

    def answer(self, suite: str, test: str, command: dict[str, Any]) -> bytes:
        if suite == "kv":
            return self.kv(test, command)
        method: Callable[[dict[str, Any]], bytes] = getattr(self, test.replace("-", "_"))
        return method(command)

    def default_bucket(self, command: dict[str, Any]) -> bytes:
        config = {**self.objects.config(), "storage": "file", "max_bytes": -1, "num_replicas": 1}
        self.objects.api("STREAM.CREATE", config)
        return b""

    def custom_bucket(self, command: dict[str, Any]) -> bytes:
        wanted = {
            name: value for name, value in command["config"].items() if name not in ("bucket", "compression")
        }
        self.objects.api("STREAM.CREATE", {**self.objects.config(), **wanted})
        return b""

    def put_object(self, command: dict[str, Any]) -> bytes:
        with urllib.request.urlopen(command["url"]) as answer:
            data = answer.read()
        described, config = self.objects.described, command["config"]
        replace(self.objects, "described", lambda *given: {**described(*given), **config})
        self.objects.put(config["name"], data, 128 * 1024)
        return b""

    def get_object(self, command: dict[str, Any]) -> bytes:
        return hashlib.sha256(self.objects.get(command["object"])).digest()

    get_link = get_object

    def update_metadata(self, command: dict[str, Any]) -> bytes:
        config = command["config"]
        self.objects.update(command["object"], config["name"], config["description"])
        return b""

    def put_link(self, command: dict[str, Any]) -> bytes:
        self.objects.link(command["link_name"], command["object"])
        return b""

    def digests(self, count: int) -> list[str]:
        found: queue.SimpleQueue[str] = queue.SimpleQueue()
        watch = ObjectWatch(self.objects, "w")
        watch.hand = lambda operation: found.put(json.loads(operation.payload)["digest"])
        replace(watch, "missed", lambda: None)  # its stream is deleted when the test is over
        watch.start()
        return [found.get(timeout=HANGS_AFTER_S) for _ in range(count)]

    def watch(self, command: dict[str, Any]) -> bytes:
        return ",".join(self.digests(2)).encode()

    def watch_updates(self, command: dict[str, Any]) -> bytes:
        return self.digests(2)[1].encode()

    def kv(self, name: str, command: dict[str, Any]) -> bytes:
        """The tests of key-value stores."""
        store, bucket = KeyValue(self.client, self.objects.js), command.get("bucket", "")
        match name:
            case "default-bucket":
                self.make_bucket(command["config"]["bucket"])
            case "watch":
                return ",".join(self.watched(bucket, command["count"])).encode()
            case "get":
                return str(store.get(bucket, command["key"])["data"]).encode()
            case _:
                answer = store.do(f"kv.{name}", {**command, "data": command.get("value", "")})
                return str(answer["seq"]).encode() if answer is not None else b""
        return b""

    def make_bucket(self, name: str) -> None:
        config = {
            "name": f"KV_{name}",
            "subjects": [f"$KV.{name}.>"],
            "storage": "memory",
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
        }
        self.client.request(api_subject("STREAM.CREATE", f"KV_{name}"), json.dumps(config).encode())

    def watched(self, bucket: str, count: int) -> list[str]:
        found: queue.SimpleQueue[str] = queue.SimpleQueue()
        watch = Watch(self.client, bucket, "w", lambda operation: {})
        prefix = f"$KV.{bucket}."
        watch.hand = lambda operation: found.put(
            f"{operation.subject.removeprefix(prefix)}={operation.payload.decode()}"
        )
        replace(watch, "missed", lambda: None)
        replace(watch, "complete", lambda: None)
        watch.start()
        return [found.get(timeout=HANGS_AFTER_S) for _ in range(count)]

    def core(self, command: dict[str, Any]) -> bytes:
        if self.service is not None:
            self.service.stop()
            return b""
        config = command["config"]
        self.service = Service(self.client, config)
        groups = {group["name"]: group.get("queue_group") for group in config["groups"]}
        for endpoint in config["endpoints"]:
            asked = {
                **endpoint,
                "queue": endpoint.get("queue_group"),
                "group_queue": groups.get(endpoint.get("group")),
            }
            if endpoint["name"] == "faulty":
                asked.update(error_code="500", error_text="handler error")
            self.service.add(asked)
        return b""


# The tests as the responder of nats.js does them: in this order, whatever the subject of the command is.
POSITIONS = (
    "default-bucket",
    "custom-bucket",
    "put-object",
    "get-object",
    "update-metadata",
    "watch-updates",
    "watch",
    "get-link",
    "put-link",
)
ALL = ("tests.object-store.>", "tests.service.>", "tests.kv.>", "tests.done")


def gets_the_first_chunk() -> None:
    """A fault: of an object one chunk is handed over."""
    replace(Objects, "joined", lambda part, chunks: chunks[0])


def with_data(stats: Callable[[Endpoint], dict[str, Any]]) -> Callable[[Endpoint], dict[str, Any]]:
    """As the stats handler of the tests."""
    return lambda part: {**stats(part), "data": {"endpoint": part.name}}


def main() -> int:
    """Until tests.done, which is not heard by position. 1 if a result was a failure."""
    if "broken" in sys.argv:
        gets_the_first_chunk()
    positions = iter(POSITIONS) if "by-position" in sys.argv else None
    replace(Endpoint, "stats", with_data(Endpoint.stats))
    client = Client()
    client.connect(os.environ["NATS_URL"])
    came: queue.SimpleQueue[Came] = queue.SimpleQueue()
    for subject in ALL if positions is None else ALL[:1]:
        client.subscribe(subject, came.put)
    client.flush()
    answers, failures = Answers(client), 0
    while (message := came.get()).subject != "tests.done":
        _, suite, test, step, last = message.subject.split(".")  # as the responder of nats.java
        if last == "result":
            failures += step == "fail"
            answers = Answers(client)
        else:
            command = json.loads(message.payload or b"{}")
            test = test if positions is None else next(positions)
            client.publish(message.reply or "", answers.answer(suite, test, command), {})
    client.close()
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
