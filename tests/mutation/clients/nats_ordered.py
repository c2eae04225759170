"""Ordered consumers of the small client library, as ADR-17 wants them."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.wire.nats.jetstream import AckSubject, api_subject
from tests.mutation.clients.nats_client import NS, Came, Client, LibraryError, status_of


class Ordered:
    """One ordered subscription, in a thread of its own. ``hand`` gets every message once and in order."""

    def __init__(
        self, client: Client, stream: str, subject: str, heartbeat_s: float, hand: Callable[[Came], Any]
    ) -> None:
        self.client = client
        self.stream, self.subject = stream, subject
        self.heartbeat_s = heartbeat_s
        self.hand = hand
        self.arrived: queue.SimpleQueue[Came] = queue.SimpleQueue()
        self.sid = 0
        self.consumer_seq = 0  # of the last good message
        self.stream_seq = 0

    def start(self) -> None:
        self.create()
        threading.Thread(target=self.run, daemon=True).start()

    def config(self, inbox: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "deliver_subject": inbox,
            "filter_subject": self.subject,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(self.heartbeat_s * NS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        if not self.stream_seq:
            return found
        return {**found, "deliver_policy": "by_start_sequence", "opt_start_seq": self.next_sequence()}

    def next_sequence(self) -> int:
        return self.stream_seq + 1

    def create(self) -> None:
        """Another consumer, behind the last good message."""
        if self.sid:
            self.client.unsubscribe(self.sid)
        self.arrived = queue.SimpleQueue()
        self.consumer_seq = 0
        inbox = self.client.inbox()
        self.sid = self.client.subscribe(inbox, self.arrived.put)
        request = {"stream_name": self.stream, "config": self.config(inbox)}
        subject = api_subject("CONSUMER.CREATE", self.stream)
        answer = json.loads(self.client.request(subject, json.dumps(request).encode()).payload)
        if "error" in answer:
            raise LibraryError(answer["error"]["description"], answer["error"]["err_code"])
        self.created(answer)

    def created(self, info: Mapping[str, Any]) -> None:
        """There is a consumer, with this ``CONSUMER.INFO``."""

    def run(self) -> None:
        while not self.client.over.is_set():
            try:
                self.take(self.arrived.get(timeout=2 * self.heartbeat_s))
            except queue.Empty:
                self.missed()
            except LibraryError:
                return

    def missed(self) -> None:
        """No heartbeat for two intervals."""
        self.create()

    def take(self, operation: Came) -> None:
        if status_of(operation) is not None:
            if operation.reply:
                self.answer_flow_control(operation.reply)
            return
        place = AckSubject.parse(operation.reply or "")
        if place.consumer_seq != self.consumer_seq + 1:
            self.gap(operation)
            return
        self.consumer_seq, self.stream_seq = place.consumer_seq, place.stream_seq
        self.hand(operation)

    def gap(self, operation: Came) -> None:
        """A message is missing before this one."""
        self.create()

    def answer_flow_control(self, reply: str) -> None:
        self.client.publish(reply, b"", {})
