"""JetStream over the small client library, as ADR-13, ADR-37 and the deep dive want it."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.wire.nats.jetstream import PullRequest, next_subject
from tests.mutation.clients.nats_client import NS, Came, Client, LibraryError, say, status_of

NO_RESPONDERS = 503
RETRY_WAIT_S = 0.25
EARLIER_S = 0.1  # ADR-13: a request expires so much before the client gives up


class Pull:
    """One fetch: its inbox, and what came for it."""

    def __init__(self, inbox: str, sid: int, arrived: queue.SimpleQueue[Came]) -> None:
        self.inbox = inbox
        self.sid = sid
        self.arrived = arrived


class JetStream:
    """Streams and consumers over a client."""

    PAYLOADS: Mapping[str, bytes] = {
        "ack": b"+ACK", "nak": b"-NAK", "progress": b"+WPI", "term": b"+TERM", "next": b"+NXT",
    }  # fmt: skip

    def __init__(self, client: Client) -> None:
        self.client = client
        self.payloads = dict(self.PAYLOADS)
        self.acknowledged: set[str] = set()
        self.retries = 2  # of a publish

    def publish(
        self, subject: str, data: bytes, headers: Mapping[str, str], timeout: float
    ) -> dict[str, Any]:
        """The PubAck. ADR-22: while there is no answer it is tried again."""
        for _ in range(self.retries):
            try:
                return self.publish_once(subject, data, headers, timeout)
            except LibraryError as error:
                if error.code != NO_RESPONDERS:
                    raise
                self.client.over.wait(RETRY_WAIT_S)
        return self.publish_once(subject, data, headers, timeout)

    def publish_once(
        self, subject: str, data: bytes, headers: Mapping[str, str], timeout: float
    ) -> dict[str, Any]:
        answer = self.client.request(subject, data, headers, timeout)
        return self.pub_ack(json.loads(answer.payload))

    def pub_ack(self, answer: dict[str, Any]) -> dict[str, Any]:
        if error := answer.get("error"):
            raise LibraryError(error["description"], error["err_code"])
        return {"stream": answer["stream"], "seq": answer["seq"], "duplicate": bool(answer.get("duplicate"))}

    def id_header(self, msg_id: str) -> dict[str, str]:
        return {"Nats-Msg-Id": msg_id} if msg_id else {}

    # -- fetching ----------------------------------------------------------------------------

    def open_pull(self) -> Pull:
        """An inbox of its own for one fetch."""
        arrived: queue.SimpleQueue[Came] = queue.SimpleQueue()
        inbox = self.client.inbox()
        return Pull(inbox, self.client.subscribe(inbox, arrived.put), arrived)

    def close_pull(self, pull: Pull) -> None:
        if pull.sid in self.client.subscriptions:
            self.client.unsubscribe(pull.sid)

    def ask(self, pull: Pull, stream: str, consumer: str, request: PullRequest) -> None:
        self.client.publish(next_subject(stream, consumer), request.encode(), {}, pull.inbox)

    def first_request(self, batch: int, timeout: float, heartbeat: float) -> PullRequest:
        return PullRequest(batch=batch, no_wait=True)

    def lingering_request(self, batch: int, left: float, heartbeat: float) -> PullRequest:
        expires = int(max(left - EARLIER_S, left / 2, 0.001) * NS)
        return PullRequest(batch=batch, expires=expires, idle_heartbeat=int(heartbeat * NS))

    def unsubscribe_max(self, batch: int) -> int:
        """ADR-13: the batch, and the status that has come already. It knows of no heartbeats."""
        return batch + 1

    def fetch(
        self, stream: str, consumer: str, batch: int, timeout: float, *, no_wait: bool, heartbeat: float
    ) -> tuple[list[Came], LibraryError | None]:
        """What came, and the error that ended it."""
        deadline = time.monotonic() + timeout
        pull = self.open_pull()
        found: list[Came] = []
        try:
            self.ask(pull, stream, consumer, self.first_request(batch, timeout, heartbeat))
            may_linger = not no_wait
            while len(found) < batch:
                operation = self.next_of(pull, deadline)
                status = status_of(operation)
                if status is None or self.is_handed_over(status, len(found)):
                    found.append(operation)
                    continue
                if status[0] == 404 and may_linger and not found:
                    may_linger = False
                    if not heartbeat:
                        self.client.unsubscribe(pull.sid, self.unsubscribe_max(batch))
                    left = deadline - time.monotonic()
                    self.ask(pull, stream, consumer, self.lingering_request(batch, left, heartbeat))
                elif status[0] != 100:
                    return self.ended(found, status)
        except LibraryError as error:
            return found, None if found else error
        finally:
            self.close_pull(pull)
        return found, None

    def next_of(self, pull: Pull, deadline: float) -> Came:
        try:
            return pull.arrived.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise LibraryError("timeout") from None

    def is_handed_over(self, status: tuple[int, str], before: int) -> bool:
        """Whether a status is given to the user as if it were a message, after so many messages."""
        return False

    def ended(self, found: list[Came], status: tuple[int, str]) -> tuple[list[Came], LibraryError | None]:
        """A status has ended the request."""
        code, description = status
        return found, None if found and code in (404, 408) else LibraryError(description or "status", code)

    # -- acknowledging -----------------------------------------------------------------------

    def acknowledge(self, message: Came, kind: str, command: Mapping[str, Any]) -> None:
        if kind != "progress":
            self.refuse_second(message)
        payload, reply = self.payloads[kind], ""
        if kind == "nak" and "delay_ms" in command:
            payload += b" " + self.delay(command["delay_ms"])
        if kind == "term" and "reason" in command:
            payload += b" " + self.reason(command["reason"])
        if kind == "next":
            reply = self.next_reply()
            payload += b" " + self.next_batch(command["batch"]) if "batch" in command else b""
        self.client.publish(self.ack_subject(message), payload, {}, reply)

    def delay(self, milliseconds: int) -> bytes:
        return json.dumps({"delay": milliseconds * 1_000_000}).encode()

    def reason(self, text: str) -> bytes:
        return text.encode()

    def next_reply(self) -> str:
        return self.client.inbox()

    def next_batch(self, batch: int) -> bytes:
        return str(batch).encode()

    def ack_subject(self, message: Came) -> str:
        return message.reply or ""

    def refuse_second(self, message: Came) -> None:
        """Raises ``LibraryError`` if it is acknowledged already."""
        if message.reply in self.acknowledged:
            raise LibraryError("message was already acknowledged")
        self.acknowledged.add(message.reply or "")

    def acknowledge_twice(self, message: Came, timeout: float) -> None:
        """A double ack: done when the server has confirmed it."""
        self.refuse_second(message)
        self.client.request(self.ack_subject(message), self.payloads["ack"], None, timeout)


class Consuming:
    """Requests that follow each other; in the thread that reads, but for the watch over heartbeats."""

    def __init__(
        self, stream: JetStream, name: str, command: Mapping[str, Any], hand: Callable[[Came], Any]
    ) -> None:
        self.js = stream
        self.name = name
        self.stream, self.consumer = command["stream"], command["consumer"]
        heartbeat_ms = command.get("heartbeat_ms", 15_000)
        self.heartbeat = heartbeat_ms / 1000
        self.request = PullRequest(
            batch=command.get("batch", 100),
            expires=command.get("expires_ms", 30_000) * 1_000_000,
            idle_heartbeat=heartbeat_ms * 1_000_000,
        )
        self.hand = hand
        self.heard = time.monotonic()
        self.over = threading.Event()
        self.inbox = stream.client.inbox()
        self.sid = stream.client.subscribe(self.inbox, self.take)
        self.ask()
        stream.client.after_reconnect.append(self.request_ended)
        threading.Thread(target=self.watch, daemon=True).start()

    def ask(self) -> None:
        subject = next_subject(self.stream, self.consumer)
        self.js.client.publish(subject, self.request.encode(), {}, self.inbox)

    def take(self, operation: Came) -> None:
        self.heard = time.monotonic()
        status = status_of(operation)
        if status is None:
            self.hand(operation)
        elif status[1] == "Consumer Deleted" or status[0] == 503:
            self.deleted()
        elif status[1] == "Leadership Change":
            self.leader_changed()
        elif status[0] != 100:
            self.request_ended()

    def leader_changed(self) -> None:
        """The server that had the request has no part in the consumer any more."""
        self.request_ended()

    def request_ended(self) -> None:
        if not self.over.is_set():
            self.ask()

    def deleted(self) -> None:
        self.over.set()
        say(event="ended", subscription=self.name, text="Consumer Deleted")

    def watch(self) -> None:
        """ADR-37: twice the interval without a message is reported."""
        while not self.over.wait(self.heartbeat / 2) and not self.js.client.over.is_set():
            if time.monotonic() - self.heard > 2 * self.heartbeat:
                self.missed()
                self.heard = time.monotonic()

    def missed(self) -> None:
        say(event="error", subscription=self.name, text="no heartbeat")

    def stop(self) -> None:
        self.over.set()
        self.js.client.unsubscribe(self.sid)
