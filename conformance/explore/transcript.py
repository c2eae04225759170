"""The state while a trace is written: connections to the reference broker, lines, server state and time.

Behind every command stands the state of the stream it touched: that is evidence, and it waits until a
server that works in the background has come so far. Pure but for the reference it is given.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from plumbline.conformance.explore.commands import CONSUMERS, STREAMS
from plumbline.conformance.explore.lines import (
    INBOX,
    TimeCaptures,
    connection_line,
    pattern,
    publish_line,
    sent_subject,
    shown_state,
)
from plumbline.conformance.explore.reference import SimulatedBroker
from plumbline.conformance.targets.target import CONNECT_DEFAULTS
from plumbline.wire.nats import Connect, Decoder, HPub, Operation, Payload, Ping, Pub, Sender, Sub, Unsub
from plumbline.wire.nats.jetstream import ACK_PREFIX, api_subject

CLIENT = "client"
STAGE = "stage"  # asks for state; not in the trace
REPLY = f"{INBOX}inbox"
COMMAND_S = 0.005  # what one command may well take on a target
MARGIN_S = 0.2  # a timer that is due so soon is waited for: the order would be unknown
EARLY_S = 0.2  # before its time, counted from the last line sent: what was sent above took a while
LATE_S = 1.0
SHORTEST_SILENCE_S = 0.05
_COUNTED = ("messages", "first_seq", "last_seq")


class ReferenceDelivery(Struct, frozen=True):
    """A message that a consumer has delivered."""

    stream: str
    consumer: str
    subject: str  # for its acknowledgement


class _ReferenceConnection:
    """One connection to the reference."""

    def __init__(self, reference: SimulatedBroker) -> None:
        self.reference = reference
        self.number = reference.open()
        self.decoder = Decoder(Sender.SERVER)
        self.sids: dict[str, int] = {}  # of the inboxes that it listens to
        self._subscriptions = 0
        self.send(Connect.make(CONNECT_DEFAULTS), Ping.make())
        self.take()

    def send(self, *operations: Operation) -> None:
        self.reference.send(self.number, b"".join(operation.raw for operation in operations))

    def new_sid(self, inbox: str) -> int:
        """Of a subscription; none is used again."""
        self._subscriptions += 1
        return self.sids.setdefault(inbox, self._subscriptions)

    def take(self) -> list[Operation]:
        return self.decoder.feed(self.reference.take(self.number))


class Transcript:
    """The lines so far, and the reference that they are about."""

    def __init__(self, reference: SimulatedBroker) -> None:
        self.reference = reference
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.number = 0
        self.captures = TimeCaptures()
        self.deliveries: list[ReferenceDelivery] = []
        self.published = 0
        self.since_sent = 0.0  # on the reference's clock
        self.stage = self.staged()
        self.links: dict[str, _ReferenceConnection] = {}
        self.inboxes: dict[str, str] = {}  # inbox -> the connection that listens there
        self.workers: dict[tuple[str, str], str] = {}  # of stream and consumer: the connection that pulls
        self.subscribe(CLIENT, REPLY)

    def staged(self) -> _ReferenceConnection:
        stage = _ReferenceConnection(self.reference)
        stage.send(Sub.make(f"{INBOX}stage", 1))
        return stage

    # -- what crosses the wire ---------------------------------------------------------------

    def request(self, subject: str, body: dict[str, Any] | None = None) -> None:
        self.publish(subject, as_json(body) if body is not None else "", reply=REPLY, json_body=True)

    def publish(
        self,
        subject: str,
        payload: str,
        *,
        reply: str | None,
        headers: tuple[tuple[str, str], ...] = (),
        connection: str = CLIENT,
        json_body: bool = False,
    ) -> None:
        written_subject, shown_reply = (
            sent_subject(name, self.captures) if name is not None else None for name in (subject, reply)
        )
        body = payload.replace(INBOX, "$") if json_body else payload
        line = publish_line(written_subject or "", shown_reply, headers, body, json_body=json_body)
        data = payload.encode()
        operation = HPub.make(subject, headers, data, reply) if headers else Pub.make(subject, data, reply)
        self._send(connection, operation, line)
        self.arrivals()

    def arrivals(self) -> None:
        """Write what has come, which must come at once."""
        for name, arrived in self._take_all():
            self.line(connection_line(name, "<", pattern(arrived, self.captures)))

    def _send(self, connection: str, operation: Operation, line: str) -> None:
        self.line(connection_line(connection, ">", line))
        self._connection(connection).send(operation)
        self.since_sent = 0.0
        self._advance(COMMAND_S)

    def line(self, line: str) -> None:
        self.lines.append(line)
        self.numbers.append(self.number)

    def _take_all(self) -> list[tuple[str, Payload]]:
        """What has come on each connection; deliveries among it can be acknowledged from now on."""
        taken = [
            (name, operation)
            for name, link in self.links.items()
            for operation in link.take()
            if isinstance(operation, Payload)  # PING and INFO come whenever a server likes
        ]
        for _, operation in taken:
            if (operation.reply or "").startswith(f"{ACK_PREFIX}."):
                tokens = str(operation.reply).split(".")
                self.deliveries.append(ReferenceDelivery(tokens[2], tokens[3], str(operation.reply)))
        return taken

    def _connection(self, name: str) -> _ReferenceConnection:
        if name not in self.links:
            self.links[name] = _ReferenceConnection(self.reference)
        return self.links[name]

    def subscribe(self, connection: str, inbox: str) -> None:
        if inbox not in self.inboxes:
            self.inboxes[inbox] = connection
            sid = self._connection(connection).new_sid(inbox)
            subscribe = Sub.make(inbox, sid)
            self._send(connection, subscribe, f"SUB {sent_subject(inbox, self.captures)} {sid}")

    def unsubscribe(self, inbox: str) -> None:
        """Listen there no more, if anybody does; what follows is sent when that is known to be so."""
        connection = self.inboxes.pop(inbox, None)
        if connection is not None:
            link = self._connection(connection)
            sid = link.sids.pop(inbox)
            self._send(connection, Unsub.make(sid), f"UNSUB {sid}")
            self.line(connection_line(connection, ">", "PING"))
            self.line(connection_line(connection, "<", "PONG"))

    def consumer_connection(self, stream: str, consumer: str, inbox: str) -> tuple[str, str]:
        """The connection of a consumer, of its own since only there the order is certain, and its inbox."""
        name = self.workers.setdefault((stream, consumer), f"w{len(self.workers) + 1}")
        return name, f"{INBOX}{name}{inbox}"

    def subscribed_connection(self, stream: str, consumer: str, inbox: str) -> tuple[str, str]:
        """The same, and somebody listens there."""
        name, subject = self.consumer_connection(stream, consumer, inbox)
        self.subscribe(name, subject)
        return name, subject

    def delivery(self, ago: int) -> ReferenceDelivery | None:
        return self.deliveries[-1 - ago % len(self.deliveries)] if self.deliveries else None

    # -- state -------------------------------------------------------------------------------

    def states(self, stream: str) -> None:
        """What a stream and its consumers must look like now, if they are there."""
        info = self.ask(api_subject("STREAM.INFO", stream))
        if "error" in info:
            return
        fields = (f"{key}={value}" for key, value in shown_state(info["state"]).items() if key in _COUNTED)
        self.line(f"expect stream {stream} {' '.join(fields)}")
        for consumer in CONSUMERS:
            info = self.ask(api_subject("CONSUMER.INFO", stream, consumer))
            if "error" not in info:
                pairs = (
                    f"{key}={info[key]['consumer_seq']}/{info[key]['stream_seq']}"
                    for key in ("delivered", "ack_floor")
                )
                counts = (
                    f"{key}={info[key]}" for key in ("num_ack_pending", "num_redelivered", "num_pending")
                )
                bound: tuple[str, ...] = ()
                if "deliver_subject" in info["config"]:
                    bound = (f"push_bound={json.dumps(info.get('push_bound'))}",)
                self.line(f"expect consumer {stream} {consumer} {' '.join((*pairs, *counts, *bound))}")

    def ask(self, subject: str) -> dict[str, Any]:
        self.stage.send(Pub.make(subject, b"", f"{INBOX}stage"))
        answers = [operation for operation in self.stage.take() if isinstance(operation, Payload)]
        answer: dict[str, Any] = json.loads(answers[-1].payload)
        return answer

    # -- time --------------------------------------------------------------------------------

    def await_due_timer(self) -> None:
        """Wait for a timer that is due so soon that it would race with the next command."""
        if self._due_within(MARGIN_S):
            self.wait(MARGIN_S)

    def wait(self, seconds: float) -> None:
        """Let time pass, and longer until no timer is about to be due; write what came and when."""
        began = self.since_sent
        last = began
        left = seconds
        while left > 0 or self._due_within(MARGIN_S):
            step = self.reference.next_wake()
            if step is None or (step > left and step > MARGIN_S):
                step = max(left, 0.0)
            self._advance(step)
            left -= step
            arrived = self._take_all()
            if arrived:
                last = self.since_sent
                self._write_timed(arrived)
                left = max(left, MARGIN_S)
        silence = self.since_sent - last
        if silence > SHORTEST_SILENCE_S:
            self.line(f"< nothing for {_milliseconds(silence)}")
        for stream in STREAMS:
            self.states(stream)

    def _write_timed(self, arrived: list[tuple[str, Payload]]) -> None:
        """What timers sent at one moment: on each connection in any order."""
        window = (
            f"between {_milliseconds(max(self.since_sent - EARLY_S, 0.001))}"
            f" and {_milliseconds(self.since_sent + LATE_S)}"
        )
        written = [
            f"{connection_line(name, '<', pattern(operation, self.captures))} {window}"
            for name, operation in arrived
        ]
        block = written if len(written) == 1 else ["in any order", *written, "end"]
        for line in block:
            self.line(line)

    def _due_within(self, seconds: float) -> bool:
        due = self.reference.next_wake()
        return due is not None and due <= seconds

    def _advance(self, seconds: float) -> None:
        self.reference.advance(seconds)
        self.since_sent += seconds


def as_json(fields: dict[str, Any]) -> str:
    """``fields`` as the body of a request."""
    return json.dumps(fields, separators=(",", ":"))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
