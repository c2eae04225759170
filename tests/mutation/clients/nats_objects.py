"""Object stores of the small client library, as ADR-20 wants them."""

from __future__ import annotations

import base64
import hashlib
import json
import queue
import secrets
from collections.abc import Mapping
from typing import Any

from plumbline.wire.nats.jetstream import AckSubject, api_subject
from tests.mutation.clients.nats_client import Came, Client, LibraryError, say
from tests.mutation.clients.nats_jetstream import JetStream
from tests.mutation.clients.nats_kv import REFS_FROM, WAIT_S
from tests.mutation.clients.nats_ordered import Ordered

CHUNK_BYTES = 128 * 1024
HEARTBEAT_S = 5.0


class Objects:
    """The object store of one bucket."""

    def __init__(self, client: Client, js: JetStream, bucket: str) -> None:
        self.client = client
        self.js = js
        self.bucket = bucket
        self.stream = f"OBJ_{bucket}"

    def do(self, name: str, command: Mapping[str, Any]) -> dict[str, Any] | None:
        """One command. Raises ``LibraryError``."""
        wanted = command.get("name", "")
        match name:
            case "obj.create":
                self.api("STREAM.CREATE", self.config())
            case "obj.put":
                self.put(wanted, command["data"].encode("latin-1"), command.get("chunk_bytes", CHUNK_BYTES))
            case "obj.get":
                return {"message": self.handed({"name": wanted}, self.get(wanted))}
            case "obj.info":
                return {"message": self.handed(self.existing(wanted))}
            case "obj.delete":
                self.delete(wanted)
            case "obj.update":
                self.update(wanted, command["new_name"], command["description"])
            case "obj.link":
                self.link(wanted, command["target"])
            case "obj.list":
                return {"messages": [self.handed(info) for info in self.listed()]}
            case "obj.watch":
                ObjectWatch(self, command["subscription"]).start()
            case "obj.seal":
                config = self.api("STREAM.INFO")["config"]
                self.api("STREAM.UPDATE", {**config, "sealed": True})
        return None

    def handed(self, info: Mapping[str, Any], data: bytes = b"") -> dict[str, Any]:
        return {"ref": REFS_FROM, "subject": info["name"], "data": data.decode("latin-1")}

    # -- the stream --------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        return {
            "name": self.stream,
            "subjects": [self.chunks_of(">"), f"$O.{self.bucket}.M.>"],
            "storage": "memory",
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }

    def chunks_of(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"

    def metadata_of(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    def api(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(
            self.client.request(api_subject(verb, self.stream), payload).payload
        )
        if "error" in answer:
            raise LibraryError(answer["error"]["description"], answer["error"]["err_code"])
        return answer

    def purge(self, subject: str) -> None:
        self.api("STREAM.PURGE", {"filter": subject})

    # -- metadata ----------------------------------------------------------------------------

    def store(self, info: Mapping[str, Any]) -> None:
        self.js.publish(self.metadata_of(info["name"]), json.dumps(info).encode(), self.rollup(), WAIT_S)

    def rollup(self) -> dict[str, str]:
        return {"Nats-Rollup": "sub"}

    def find(self, name: str) -> dict[str, Any] | None:
        """The metadata, also of a deleted object; None if there is none."""
        try:
            message = self.api("STREAM.MSG.GET", {"last_by_subj": self.metadata_of(name)})["message"]
        except LibraryError:
            return None
        found: dict[str, Any] = json.loads(base64.b64decode(message["data"]))
        return found

    def info(self, name: str) -> dict[str, Any]:
        """The metadata of an object that is not deleted. Raises ``LibraryError``."""
        found = self.find(name)
        if found is None or found.get("deleted"):
            raise LibraryError("no such object")
        return found

    def existing(self, name: str) -> dict[str, Any]:
        """What a user gets who asks for the information."""
        return self.info(name)

    # -- objects -----------------------------------------------------------------------------

    def cut(self, data: bytes, size: int) -> list[bytes]:
        return [data[start : start + size] for start in range(0, len(data), size)]

    def described(self, name: str, nuid: str, chunks: list[bytes]) -> dict[str, Any]:
        data = b"".join(chunks)
        return {
            "name": name,
            "bucket": self.bucket,
            "nuid": nuid,
            "size": len(data),
            "chunks": len(chunks),
            "digest": self.digest(data),
        }

    def digest(self, data: bytes) -> str:
        return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()

    def put(self, name: str, data: bytes, size: int) -> None:
        before = self.find(name)
        nuid, chunks = secrets.token_hex(11), self.cut(data, size)
        for chunk in chunks:
            self.js.publish(self.chunks_of(nuid), chunk, {}, WAIT_S)
        self.store(self.described(name, nuid, chunks))
        if before is not None and not before.get("deleted"):
            self.replaced(before)

    def replaced(self, before: Mapping[str, Any]) -> None:
        """There is new metadata, and this was the old one."""
        self.purge(self.chunks_of(before["nuid"]))

    def get(self, name: str) -> bytes:
        info = self.info(name)
        if link := self.link_of(info):
            return self.follow(link)
        if not info["size"]:
            return b""
        chunks = Chunks(self, info["nuid"]).read()
        self.compare(info, b"".join(chunks))
        return self.joined(chunks)

    def joined(self, chunks: list[bytes]) -> bytes:
        return b"".join(chunks)

    def link_of(self, info: Mapping[str, Any]) -> dict[str, str] | None:
        found: dict[str, str] | None = info.get("options", {}).get("link")
        return found

    def follow(self, link: Mapping[str, str]) -> bytes:
        return Objects(self.client, self.js, link["bucket"]).get(link["name"])

    def compare(self, info: Mapping[str, Any], data: bytes) -> None:
        if info["digest"] != self.digest(data):
            raise LibraryError("another digest")

    def delete(self, name: str) -> None:
        info = self.info(name)
        self.store({**info, "deleted": True, "size": 0, "chunks": 0, "digest": ""})
        self.purge(self.chunks_of(info["nuid"]))

    # -- changes -----------------------------------------------------------------------------

    def update(self, name: str, new_name: str, description: str) -> None:
        info = self.updatable(name)
        if name != new_name:
            self.require_free(new_name)
        self.store(self.updated({**info, "name": new_name, "description": description}))
        if name != new_name:
            self.renamed(name)

    def updatable(self, name: str) -> dict[str, Any]:
        return self.info(name)

    def updated(self, info: dict[str, Any]) -> dict[str, Any]:
        return info

    def require_free(self, name: str) -> None:
        """Raises ``LibraryError`` if there is an object of that name."""
        found = self.find(name)
        if found is not None and not found.get("deleted"):
            raise LibraryError("there is such an object")

    def renamed(self, name: str) -> None:
        """It was the old name."""
        self.purge(self.metadata_of(name))

    def link(self, name: str, target: str) -> None:
        info = self.info(target)
        self.require_object(info)
        self.require_no_object(name)
        options = {"link": self.leading_to(info)}
        self.store({**self.described(name, secrets.token_hex(11), []), "digest": "", "options": options})

    def leading_to(self, info: Mapping[str, Any]) -> dict[str, str]:
        return {"bucket": info["bucket"], "name": info["name"]}

    def require_object(self, info: Mapping[str, Any]) -> None:
        if self.link_of(info):
            raise LibraryError("a link to a link")

    def require_no_object(self, name: str) -> None:
        """There may be a link or a deleted object. Raises ``LibraryError``."""
        found = self.find(name)
        if found is not None and not found.get("deleted") and not self.link_of(found):
            raise LibraryError("there is such an object")

    def listed(self) -> list[dict[str, Any]]:
        subjects = self.api("STREAM.INFO", {"subjects_filter": f"$O.{self.bucket}.M.>"})["state"]["subjects"]
        names = [base64.urlsafe_b64decode(subject.rpartition(".")[2]).decode() for subject in subjects]
        found = [self.find(name) for name in names]
        return [info for info in found if info is not None and self.is_listed(info)]

    def is_listed(self, info: Mapping[str, Any]) -> bool:
        return not info.get("deleted")


class Chunks(Ordered):
    """An ordered consumer of the chunks of one object."""

    def __init__(self, objects: Objects, nuid: str) -> None:
        super().__init__(
            objects.client, objects.stream, objects.chunks_of(nuid), HEARTBEAT_S, self.next_chunk
        )
        self.chunks: queue.SimpleQueue[Came] = queue.SimpleQueue()

    def next_chunk(self, operation: Came) -> None:
        self.chunks.put(operation)

    def read(self) -> list[bytes]:
        """All of them. Raises ``LibraryError`` if they do not come."""
        self.start()
        found = []
        while True:
            try:
                operation = self.chunks.get(timeout=WAIT_S)
            except queue.Empty:
                raise LibraryError("timeout") from None
            found.append(operation.payload)
            if not AckSubject.parse(operation.reply or "").pending:
                return found


class ObjectWatch(Ordered):
    """An ordered consumer of metadata that begins with the last of each object."""

    def __init__(self, objects: Objects, name: str) -> None:
        subject = f"$O.{objects.bucket}.M.>"
        super().__init__(objects.client, objects.stream, subject, HEARTBEAT_S, self.report)
        self.objects = objects
        self.name = name
        self.is_complete = False

    def config(self, inbox: str) -> dict[str, Any]:
        return {"deliver_policy": "last_per_subject", **super().config(inbox)}

    def report(self, operation: Came) -> None:
        info = json.loads(operation.payload)
        say(event="message", subscription=self.name, message=self.objects.handed(info))
        if not AckSubject.parse(operation.reply or "").pending:
            self.complete()

    def complete(self) -> None:
        """The end of the initial data, once."""
        if not self.is_complete:
            self.is_complete = True
            say(event="up-to-date", subscription=self.name)
