"""Services of the small client library, as ADR-32 wants them."""

from __future__ import annotations

import datetime
import json
import queue
import re
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any

from tests.mutation.clients.nats_client import Came, Client, LibraryError

NAME = re.compile(r"[A-Za-z0-9_-]+")
VERSION = re.compile(r"\d+\.\d+\.\d+([-+].*)?")
VERBS = ("PING", "INFO", "STATS")


class Endpoint:
    """One endpoint of a service. Its requests are handled one after the other, in a thread of its own."""

    def __init__(self, service: Service, command: Mapping[str, Any]) -> None:
        self.service = service
        self.command = command
        self.name = command["name"]
        self.subject = self.full_subject()
        self.queue = self.queue_group()
        self.requests = self.errors = self.time_ns = 0
        self.last_error = ""
        self.arrived: queue.SimpleQueue[Came] = queue.SimpleQueue()
        self.is_stopped = False
        self.sid = service.client.subscribe(self.subject, self.arrived.put, self.queue)
        threading.Thread(target=self.run, daemon=True).start()

    def full_subject(self) -> str:
        subject: str = self.command.get("subject") or self.name
        return f"{self.command['group']}.{subject}" if "group" in self.command else subject

    def queue_group(self) -> str:
        if self.command.get("no_queue"):
            return ""
        nearest = (self.command.get("queue"), self.command.get("group_queue"), self.service.queue, "q")
        return next(group for group in nearest if group)

    def run(self) -> None:
        while True:
            operation = self.arrived.get()
            if self.is_stopped and not self.is_answered_after_stop():
                return
            began = time.monotonic_ns()
            time.sleep(self.command.get("delay_ms", 0) / 1000)  # the work of a handler
            self.count(time.monotonic_ns() - began)
            self.handle(operation)

    def is_answered_after_stop(self) -> bool:
        return True

    def count(self, spent_ns: int) -> None:
        self.requests += 1
        self.time_ns += spent_ns

    def handle(self, operation: Came) -> None:
        if "error_code" not in self.command:
            self.service.client.publish(operation.reply or "", operation.payload, {})
            return
        self.failed()
        self.service.client.publish(operation.reply or "", b"", self.error_headers())

    def failed(self) -> None:
        self.errors += 1
        self.last_error = f"{self.command['error_code']}:{self.command['error_text']}"

    def error_headers(self) -> dict[str, str]:
        return {
            "Nats-Service-Error-Code": self.command["error_code"],
            "Nats-Service-Error": self.command["error_text"],
        }

    def info(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "subject": self.subject,
            "queue_group": self.queue,
            "metadata": self.command.get("metadata", {}),
        }

    def stats(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "subject": self.subject,
            "queue_group": self.queue,
            "num_requests": self.requests,
            "num_errors": self.errors,
            "last_error": self.last_error,
            "processing_time": self.time_ns,
            "average_processing_time": self.average(),
        }

    def average(self) -> int:
        return self.time_ns // self.requests if self.requests else 0

    def reset(self) -> None:
        self.requests = self.errors = self.time_ns = 0
        self.last_error = ""


class Service:
    """One instance of a service."""

    def __init__(self, client: Client, command: Mapping[str, Any]) -> None:
        self.refuse_name(command["name"])
        self.refuse_version(command["version"])
        self.client = client
        self.command = command
        self.name = command["name"]
        self.queue = command.get("queue", "")
        self.id = self.own_id()
        self.started = datetime.datetime.now(datetime.UTC)
        self.endpoints: list[Endpoint] = []
        self.sids = [
            client.subscribe(subject, self.answering(verb), self.discovery_group())
            for verb in VERBS
            for subject in self.subjects(verb)
        ]

    def refuse_name(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise LibraryError("invalid name")

    def refuse_version(self, version: str) -> None:
        if not VERSION.fullmatch(version):
            raise LibraryError("invalid version")

    def own_id(self) -> str:
        return secrets.token_hex(11)

    def discovery_group(self) -> str:
        return ""

    def subjects(self, verb: str) -> list[str]:
        return [f"$SRV.{verb}", f"$SRV.{verb}.{self.name}", f"$SRV.{verb}.{self.name}.{self.id}"]

    def answering(self, verb: str) -> Any:
        def answer(operation: Came) -> None:
            described = json.dumps(self.described(verb)).encode()
            self.client.publish(operation.reply or "", described, {})

        return answer

    def described(self, verb: str) -> dict[str, Any]:
        found = self.identity(f"io.nats.micro.v1.{verb.lower()}_response")
        match verb:
            case "INFO":
                found["description"] = self.command.get("description", "")
                found["endpoints"] = [one.info() for one in self.endpoints]
            case "STATS":
                found["started"] = self.started.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                found["endpoints"] = [one.stats() for one in self.endpoints]
        return found

    def identity(self, kind: str) -> dict[str, Any]:
        return {
            "type": kind,
            "name": self.name,
            "id": self.id,
            "version": self.command["version"],
            "metadata": self.command.get("metadata", {}),
        }

    def add(self, command: Mapping[str, Any]) -> None:
        self.endpoints.append(Endpoint(self, command))

    def stop(self) -> None:
        for endpoint in self.endpoints:
            endpoint.is_stopped = True
        self.client.unsubscribe_later(*self.sids, *(endpoint.sid for endpoint in self.endpoints))

    def reset(self) -> None:
        for endpoint in self.endpoints:
            endpoint.reset()


class Services:
    """All of a connection, by the name that its user gave them."""

    def __init__(self) -> None:
        self.running: dict[str, Service] = {}

    def do(self, client: Client, name: str, command: Mapping[str, Any]) -> None:
        """One command. Raises ``LibraryError``."""
        service = command["service"]
        match name:
            case "service.add":
                self.running[service] = Service(client, command)
            case "service.endpoint":
                self.running[service].add(command)
            case "service.stop":
                self.running[service].stop()
            case "service.reset":
                self.running[service].reset()
