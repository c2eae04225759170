"""Runs commands on the reference broker and writes the traffic as the text of a trace.

Connections, state and time are the ``transcript``'s. Pure but for the reference it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatchmethod
from typing import Any

from plumbline.conformance.explore.commands import (
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
    Leave,
    Listen,
    Publish,
    Pull,
    Purge,
    Restart,
    Wait,
)
from plumbline.conformance.explore.reference import SimulatedBroker
from plumbline.conformance.explore.script import RESTART, Script
from plumbline.conformance.explore.transcript import CLIENT, REPLY, Transcript, as_json
from plumbline.wire.nats.jetstream import api_subject, next_subject


def write(program: Iterable[Command], reference: SimulatedBroker) -> Script:
    """Carry the program out; what was sent and what the reference answered, as a trace would say it."""
    scribe = _ProgramWriter(reference)
    for number, command in enumerate(program):
        scribe.number = number
        scribe.await_due_timer()
        scribe.carry_out(command)
    return Script(tuple(scribe.lines), tuple(scribe.numbers))


class _ProgramWriter(Transcript):
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
        self.request(api_subject(verb, name), body)
        self.states(name)

    @carry_out.register
    def _(self, command: DeleteStream) -> None:
        self.request(api_subject("STREAM.DELETE", command.stream))

    @carry_out.register
    def _(self, command: CreateConsumer) -> None:
        config = {"durable_name": command.consumer, **command.settings}
        if command.deliver:
            config["deliver_subject"] = self.consumer_connection(
                command.stream, command.consumer, command.deliver
            )[1]
        self.request(
            api_subject("CONSUMER.DURABLE.CREATE", command.stream, command.consumer),
            {"stream_name": command.stream, "config": config},
        )
        self.states(command.stream)

    @carry_out.register
    def _(self, command: DeleteConsumer) -> None:
        self.request(api_subject("CONSUMER.DELETE", command.stream, command.consumer))
        self.states(command.stream)

    @carry_out.register
    def _(self, command: Publish) -> None:
        self.published += 1
        self.publish(
            f"{command.stream}.{command.token}",
            f"m{self.published}",
            reply=REPLY if command.acknowledged else None,
            headers=command.headers,
        )
        self.states(command.stream)

    @carry_out.register
    def _(self, command: Pull) -> None:
        worker, inbox = self.subscribed_connection(command.stream, command.consumer, command.inbox)
        subject = next_subject(command.stream, command.consumer)
        self.publish(subject, as_json(command.body), reply=inbox, connection=worker, json_body=True)
        self.states(command.stream)

    @carry_out.register
    def _(self, command: Listen) -> None:
        self.subscribed_connection(command.stream, command.consumer, command.inbox)
        self.arrivals()
        self.states(command.stream)

    @carry_out.register
    def _(self, command: Leave) -> None:
        subject = self.consumer_connection(command.stream, command.consumer, command.inbox)[1]
        info = self.ask(api_subject("CONSUMER.INFO", command.stream, command.consumer))
        if info.get("config", {}).get("deliver_subject") == subject:  # who waits there has asked for nothing
            self.unsubscribe(subject)
            self.states(command.stream)

    @carry_out.register
    def _(self, command: Acknowledge) -> None:
        if (delivery := self.delivery(command.ago)) is not None:
            reply = REPLY if command.replied else None
            self.publish(delivery.subject, command.payload, reply=reply)
            self.states(delivery.stream)

    @carry_out.register
    def _(self, command: AcknowledgeAndPull) -> None:
        if (delivery := self.delivery(command.ago)) is not None:
            worker, inbox = self.subscribed_connection(delivery.stream, delivery.consumer, command.inbox)
            payload = f"+NXT {command.argument}".rstrip()
            self.publish(delivery.subject, payload, reply=inbox, connection=worker)
            self.states(delivery.stream)

    @carry_out.register
    def _(self, command: Purge) -> None:
        if self._floor_is_indeterminate(command):
            return
        only = {"filter": f"{command.stream}.{command.token}"} if command.token else {}
        self.request(api_subject("STREAM.PURGE", command.stream), {**command.body, **only} or None)
        self.states(command.stream)

    @carry_out.register
    def _(self, command: DeleteMessage) -> None:
        self.request(api_subject("STREAM.MSG.DELETE", command.stream), {"seq": command.seq})
        self.states(command.stream)

    @carry_out.register
    def _(self, command: GetMessage) -> None:
        asked: dict[str, Any] = {"seq": command.seq} if command.seq is not None else {}
        if command.last is not None:
            asked["last_by_subj"] = f"{command.stream}.{command.last}"
        if command.next is not None:
            asked["next_by_subj"] = f"{command.stream}.{command.next}"
        self.request(api_subject("STREAM.MSG.GET", command.stream), asked)

    @carry_out.register
    def _(self, command: Describe) -> None:
        names = [command.stream] if command.consumer is None else [command.stream, command.consumer]
        self.request(api_subject(f"{'STREAM' if len(names) == 1 else 'CONSUMER'}.INFO", *names))

    @carry_out.register
    def _(self, command: Wait) -> None:
        self.wait(command.seconds)

    @carry_out.register
    def _(self, command: Restart) -> None:
        self.line(RESTART)
        self.reference.restart()
        self.stage = self.staged()
        self.links.clear()
        self.inboxes.clear()
        self.subscribe(CLIENT, REPLY)
        for stream in STREAMS:
            self.states(stream)
            self.request(api_subject("STREAM.INFO", stream))  # one that is gone, too
            for consumer in CONSUMERS:
                if "error" not in self.ask(api_subject("CONSUMER.INFO", stream, consumer)):
                    self.request(api_subject("CONSUMER.INFO", stream, consumer))

    # -- what is left out -----------------------------------------------------------------------

    def _floor_is_indeterminate(self, purge: Purge) -> bool:
        """Servers acknowledge what a purge takes from pending in the background, in any order.

        It shows where messages go one by one, and where something behind them is acknowledged already.
        """
        infos = [self.ask(api_subject("CONSUMER.INFO", purge.stream, consumer)) for consumer in CONSUMERS]
        pending = [info for info in infos if info.get("num_ack_pending")]
        return any(
            purge.token or info["num_ack_pending"] < _unsettled(info["delivered"], info["ack_floor"])
            for info in pending
        )


def _unsettled(delivered: dict[str, int], floor: dict[str, int]) -> int:
    return delivered["consumer_seq"] - floor["consumer_seq"]


Write = Callable[[Iterable[Command], SimulatedBroker], Script]
