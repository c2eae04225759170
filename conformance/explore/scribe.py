"""Carries commands out on the reference and writes down what crossed the wire: the text of a trace.

Behind every command stands the state of the stream it touched: that is evidence, and it waits until a
server that works in the background has come so far. Pure but for the reference it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import singledispatchmethod
from typing import Any

from msgspec import Struct

from conformance.explore.commands import (
    CONSUMERS,
    STREAMS,
    Acknowledge,
    AcknowledgeAndPull,
    Command,
    CreateConsumer,
    CreateStream,
    DeleteConsumer,
    DeleteMessage,
    DeleteStream,
    Describe,
    GetMessage,
    Publish,
    Pull,
    Purge,
    Restart,
    Wait,
)
from conformance.explore.lines import (
    INBOX,
    Captures,
    marked,
    pattern,
    publish_line,
    sent_subject,
    shown_state,
)
from conformance.explore.reference import Reference
from conformance.target import CONNECT_DEFAULTS
from wire.jetstream import ACK_PREFIX, api_subject, next_subject
from wire.nats import Connect, Decoder, HPub, Operation, Payload, Ping, Pub, Sender, Sub

CLIENT = "client"
STAGE = "stage"  # asks for state; not in the trace
REPLY = f"{INBOX}inbox"
COMMAND_S = 0.005  # what one command may well take on a target
MARGIN_S = 0.2  # a timer that is due so soon is waited for: nobody could say what came first
EARLY_S = 0.2  # before its time, counted from the last line sent: what was sent above took a while
LATE_S = 1.0
SHORTEST_SILENCE_S = 0.05
RESTART = "restart"
_COUNTED = ("messages", "first_seq", "last_seq")


class Delivery(Struct, frozen=True):
    """A message that a consumer has delivered."""

    stream: str
    consumer: str
    subject: str  # for its acknowledgement


class Script(Struct, frozen=True):
    """What a program did: the lines of a trace, and for each the number of the command it belongs to."""

    lines: tuple[str, ...]
    commands: tuple[int, ...]

    @property
    def restarts(self) -> bool:
        """Whether its trace needs a server of its own."""
        return RESTART in self.lines

    @property
    def shows(self) -> bool:
        """Whether anything is expected in it."""
        return any(">" not in line.split(" ")[0] and line != RESTART for line in self.lines)


class _Link:
    """One connection to the reference."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.number = reference.open()
        self.decoder = Decoder(Sender.SERVER)
        self.send(Connect.make(CONNECT_DEFAULTS), Ping.make())
        self.take()

    def send(self, *operations: Operation) -> None:
        self.reference.send(self.number, b"".join(operation.raw for operation in operations))

    def take(self) -> list[Operation]:
        return self.decoder.feed(self.reference.take(self.number))


def write(program: Iterable[Command], reference: Reference) -> Script:
    """Carry the program out; what was sent and what the reference answered, as a trace would say it."""
    scribe = _Scribe(reference)
    for number, command in enumerate(program):
        scribe.number = number
        scribe.settle()
        scribe.carry_out(command)
    return Script(tuple(scribe.lines), tuple(scribe.numbers))


class _Scribe:
    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.number = 0
        self.captures = Captures()
        self.deliveries: list[Delivery] = []
        self.published = 0
        self.since_sent = 0.0  # on the reference's clock
        self.stage = self._staged()
        self.links: dict[str, _Link] = {}
        self.inboxes: dict[str, str] = {}  # inbox -> the connection that listens there
        self.workers: dict[tuple[str, str], str] = {}  # of stream and consumer: the connection that pulls
        self._listen(CLIENT, REPLY)

    def _staged(self) -> _Link:
        stage = _Link(self.reference)
        stage.send(Sub.make(f"{INBOX}stage", 1))
        return stage

    # -- commands ----------------------------------------------------------------------------

    @singledispatchmethod
    def carry_out(self, command: Any) -> None:
        """Do it, and write what was sent and what came."""
        raise TypeError(f"no command: {command!r}")

    @carry_out.register
    def _(self, command: CreateStream) -> None:
        name = command.stream
        verb = "STREAM.UPDATE" if command.update else "STREAM.CREATE"
        body = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", **command.settings}
        self._request(api_subject(verb, name), body)
        self._states(name)

    @carry_out.register
    def _(self, command: DeleteStream) -> None:
        self._request(api_subject("STREAM.DELETE", command.stream))

    @carry_out.register
    def _(self, command: CreateConsumer) -> None:
        config = {"durable_name": command.consumer, **command.settings}
        self._request(
            api_subject("CONSUMER.DURABLE.CREATE", command.stream, command.consumer),
            {"stream_name": command.stream, "config": config},
        )
        self._states(command.stream)

    @carry_out.register
    def _(self, command: DeleteConsumer) -> None:
        self._request(api_subject("CONSUMER.DELETE", command.stream, command.consumer))
        self._states(command.stream)

    @carry_out.register
    def _(self, command: Publish) -> None:
        self.published += 1
        self._publish(
            f"{command.stream}.{command.token}",
            f"m{self.published}",
            reply=REPLY if command.acknowledged else None,
            headers=command.headers,
        )
        self._states(command.stream)

    @carry_out.register
    def _(self, command: Pull) -> None:
        worker, inbox = self._worker(command.stream, command.consumer, command.inbox)
        subject = next_subject(command.stream, command.consumer)
        self._publish(subject, _json(command.body), reply=inbox, connection=worker, json_body=True)
        self._states(command.stream)

    @carry_out.register
    def _(self, command: Acknowledge) -> None:
        if (delivery := self._delivery(command.ago)) is not None:
            reply = REPLY if command.replied else None
            self._publish(delivery.subject, command.payload, reply=reply)
            self._states(delivery.stream)

    @carry_out.register
    def _(self, command: AcknowledgeAndPull) -> None:
        if (delivery := self._delivery(command.ago)) is not None:
            worker, inbox = self._worker(delivery.stream, delivery.consumer, command.inbox)
            payload = f"+NXT {command.argument}".rstrip()
            self._publish(delivery.subject, payload, reply=inbox, connection=worker)
            self._states(delivery.stream)

    @carry_out.register
    def _(self, command: Purge) -> None:
        if self._floor_is_chance(command):
            return
        only = {"filter": f"{command.stream}.{command.token}"} if command.token else {}
        self._request(api_subject("STREAM.PURGE", command.stream), {**command.body, **only} or None)
        self._states(command.stream)

    @carry_out.register
    def _(self, command: DeleteMessage) -> None:
        self._request(api_subject("STREAM.MSG.DELETE", command.stream), {"seq": command.seq})
        self._states(command.stream)

    @carry_out.register
    def _(self, command: GetMessage) -> None:
        asked: dict[str, Any] = {"seq": command.seq} if command.seq is not None else {}
        if command.last is not None:
            asked["last_by_subj"] = f"{command.stream}.{command.last}"
        if command.next is not None:
            asked["next_by_subj"] = f"{command.stream}.{command.next}"
        self._request(api_subject("STREAM.MSG.GET", command.stream), asked)

    @carry_out.register
    def _(self, command: Describe) -> None:
        names = [command.stream] if command.consumer is None else [command.stream, command.consumer]
        self._request(api_subject(f"{'STREAM' if len(names) == 1 else 'CONSUMER'}.INFO", *names))

    @carry_out.register
    def _(self, command: Wait) -> None:
        self.wait(command.seconds)

    @carry_out.register
    def _(self, command: Restart) -> None:
        self._line(RESTART)
        self.reference.restart()
        self.stage = self._staged()
        self.links.clear()
        self.inboxes.clear()
        self._listen(CLIENT, REPLY)
        for stream in STREAMS:
            self._states(stream)
            self._request(api_subject("STREAM.INFO", stream))  # one that is gone, too
            for consumer in CONSUMERS:
                if "error" not in self._ask(api_subject("CONSUMER.INFO", stream, consumer)):
                    self._request(api_subject("CONSUMER.INFO", stream, consumer))

    # -- what crosses the wire ---------------------------------------------------------------

    def _request(self, subject: str, body: dict[str, Any] | None = None) -> None:
        self._publish(subject, _json(body) if body is not None else "", reply=REPLY, json_body=True)

    def _publish(
        self,
        subject: str,
        payload: str,
        *,
        reply: str | None,
        headers: tuple[tuple[str, str], ...] = (),
        connection: str = CLIENT,
        json_body: bool = False,
    ) -> None:
        shown, shown_reply = (
            sent_subject(name, self.captures) if name is not None else None for name in (subject, reply)
        )
        line = publish_line(shown or "", shown_reply, headers, payload, json_body=json_body)
        data = payload.encode()
        operation = HPub.make(subject, headers, data, reply) if headers else Pub.make(subject, data, reply)
        self._send(connection, operation, line)
        for name, arrived in self._taken():
            self._line(marked(name, "<", pattern(arrived, self.captures)))

    def _send(self, connection: str, operation: Operation, line: str) -> None:
        self._line(marked(connection, ">", line))
        self._link(connection).send(operation)
        self.since_sent = 0.0
        self._advance(COMMAND_S)

    def _line(self, line: str) -> None:
        self.lines.append(line)
        self.numbers.append(self.number)

    def _taken(self) -> list[tuple[str, Payload]]:
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
                self.deliveries.append(Delivery(tokens[2], tokens[3], str(operation.reply)))
        return taken

    def _link(self, name: str) -> _Link:
        if name not in self.links:
            self.links[name] = _Link(self.reference)
        return self.links[name]

    def _listen(self, connection: str, inbox: str) -> None:
        if inbox not in self.inboxes:
            self.inboxes[inbox] = connection
            sid = sum(name == connection for name in self.inboxes.values())
            subscribe = Sub.make(inbox, sid)
            self._send(connection, subscribe, f"SUB {sent_subject(inbox, self.captures)} {sid}")

    def _worker(self, stream: str, consumer: str, inbox: str) -> tuple[str, str]:
        """The connection of a consumer, of its own since only there the order is certain, and its inbox."""
        worker = self.workers.setdefault((stream, consumer), f"w{len(self.workers) + 1}")
        subject = f"{INBOX}{worker}{inbox}"
        self._listen(worker, subject)
        return worker, subject

    def _delivery(self, ago: int) -> Delivery | None:
        return self.deliveries[-1 - ago % len(self.deliveries)] if self.deliveries else None

    # -- state -------------------------------------------------------------------------------

    def _states(self, stream: str) -> None:
        """What a stream and its consumers must look like now, if they are there."""
        info = self._ask(api_subject("STREAM.INFO", stream))
        if "error" in info:
            return
        shown = (f"{key}={value}" for key, value in shown_state(info["state"]).items() if key in _COUNTED)
        self._line(f"expect stream {stream} {' '.join(shown)}")
        for consumer in CONSUMERS:
            info = self._ask(api_subject("CONSUMER.INFO", stream, consumer))
            if "error" not in info:
                pairs = (
                    f"{key}={info[key]['consumer_seq']}/{info[key]['stream_seq']}"
                    for key in ("delivered", "ack_floor")
                )
                counts = (
                    f"{key}={info[key]}" for key in ("num_ack_pending", "num_redelivered", "num_pending")
                )
                self._line(f"expect consumer {stream} {consumer} {' '.join((*pairs, *counts))}")

    def _floor_is_chance(self, purge: Purge) -> bool:
        """Servers acknowledge what a purge takes from pending in the background, in any order.

        It shows where messages go one by one, and where something behind them is acknowledged already.
        """
        infos = [self._ask(api_subject("CONSUMER.INFO", purge.stream, consumer)) for consumer in CONSUMERS]
        pending = [info for info in infos if info.get("num_ack_pending")]
        return any(
            purge.token or info["num_ack_pending"] < _unsettled(info["delivered"], info["ack_floor"])
            for info in pending
        )

    def _ask(self, subject: str) -> dict[str, Any]:
        self.stage.send(Pub.make(subject, b"", f"{INBOX}stage"))
        answers = [operation for operation in self.stage.take() if isinstance(operation, Payload)]
        answer: dict[str, Any] = json.loads(answers[-1].payload)
        return answer

    # -- time --------------------------------------------------------------------------------

    def settle(self) -> None:
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
            arrived = self._taken()
            if arrived:
                last = self.since_sent
                self._timed(arrived)
                left = max(left, MARGIN_S)
        silence = self.since_sent - last
        if silence > SHORTEST_SILENCE_S:
            self._line(f"< nothing for {_milliseconds(silence)}")
        for stream in STREAMS:
            self._states(stream)

    def _timed(self, arrived: list[tuple[str, Payload]]) -> None:
        """What timers sent at one moment: on each connection in any order."""
        window = (
            f"between {_milliseconds(max(self.since_sent - EARLY_S, 0.001))}"
            f" and {_milliseconds(self.since_sent + LATE_S)}"
        )
        written = [
            f"{marked(name, '<', pattern(operation, self.captures))} {window}" for name, operation in arrived
        ]
        block = written if len(written) == 1 else ["in any order", *written, "end"]
        for line in block:
            self._line(line)

    def _due_within(self, seconds: float) -> bool:
        due = self.reference.next_wake()
        return due is not None and due <= seconds

    def _advance(self, seconds: float) -> None:
        self.reference.advance(seconds)
        self.since_sent += seconds


def _unsettled(delivered: dict[str, int], floor: dict[str, int]) -> int:
    return delivered["consumer_seq"] - floor["consumer_seq"]


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


Write = Callable[[Iterable[Command], Reference], Script]
