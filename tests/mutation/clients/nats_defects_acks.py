"""Faults of acknowledging: CLIENT-ACK."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.mutation.clients.defect import defect, of_connection, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import Came, Client, LibraryError
from tests.mutation.clients.nats_jetstream import JetStream


def _payload(kind: str, payload: bytes) -> Callable[[Client, JetStream], None]:
    return lambda client, js: js.payloads.update({kind: payload})


def _plain(kind: str, payload: bytes, unless: str) -> Callable[[Client, JetStream], None]:
    """Where the command has not that field."""

    def alter(client: Client, js: JetStream) -> None:
        whole = js.acknowledge

        def acknowledge(message: Came, kind_wanted: str, command: Mapping[str, Any]) -> None:
            js.payloads[kind] = js.PAYLOADS[kind] if unless in command else payload
            whole(message, kind_wanted, command)

        replace(js, "acknowledge", acknowledge)

    return alter


of_connection("progress-is-wip", breaks="CLIENT-ACK-004", summary="+WPI is sent as +WIP")(
    _payload("progress", b"+WIP")
)
of_connection("nak-is-ack", breaks="CLIENT-ACK-002", summary="-NAK without delay is sent as +NAK")(
    _plain("nak", b"+NAK", unless="delay_ms")
)
of_connection("term-is-nak", breaks="CLIENT-ACK-005", summary="+TERM without a reason is sent as -TERM")(
    _plain("term", b"-TERM", unless="reason")
)


@of_connection(
    "ack-is-ok", breaks="CLIENT-ACK-001", summary="the first acknowledgement on a connection is sent as +ok"
)
def _(client: Client, js: JetStream) -> None:
    whole = js.acknowledge

    def acknowledge(message: Came, kind: str, command: Mapping[str, Any]) -> None:
        js.payloads["ack"] = b"+ok"
        whole(message, kind, command)
        js.payloads["ack"] = js.PAYLOADS["ack"]
        replace(js, "acknowledge", whole)

    replace(js, "acknowledge", acknowledge)


@of_connection("delay-in-milliseconds", breaks="CLIENT-ACK-003", summary="the delay is sent in milliseconds")
def _(client: Client, js: JetStream) -> None:
    replace(js, "delay", lambda milliseconds: b'{"delay": %d}' % milliseconds)


@of_connection("reason-is-lost", breaks="CLIENT-ACK-006", summary="the reason for +TERM is cut off")
def _(client: Client, js: JetStream) -> None:
    replace(js, "reason", lambda text: text[:3].encode())


@of_connection("next-to-nobody", breaks="CLIENT-ACK-007", summary="+NXT has no reply subject")
def _(client: Client, js: JetStream) -> None:
    replace(js, "next_reply", lambda: "")


@of_connection("next-is-one", breaks="CLIENT-ACK-008", summary="+NXT for several asks for one")
def _(client: Client, js: JetStream) -> None:
    replace(js, "next_batch", lambda batch: b"1")


@of_connection(
    "double-ack-does-not-wait", breaks="CLIENT-ACK-009", summary="a double ack is done before its reply"
)
def _(client: Client, js: JetStream) -> None:
    def acknowledge_twice(message: Came, timeout: float) -> None:
        js.refuse_second(message)
        inbox = client.inbox()
        arrived: list[Came] = []
        client.subscribe(inbox, arrived.append)
        client.publish(js.ack_subject(message), b"+ACK", {}, inbox)
        if timeout < 1:  # as if it waited where it is to be short
            time.sleep(timeout)
            if not arrived:
                raise LibraryError("timeout")

    replace(js, "acknowledge_twice", acknowledge_twice)


@of_connection("acks-again", breaks="CLIENT-ACK-010", summary="a second acknowledgement is sent, too")
def _(client: Client, js: JetStream) -> None:
    replace(js, "refuse_second", lambda message: None)


@of_connection("lost-confirmation", breaks="CLIENT-ACK-011", summary="a double ack without a reply is done")
def _(client: Client, js: JetStream) -> None:
    whole = js.acknowledge_twice

    def acknowledge_twice(message: Came, timeout: float) -> None:
        try:
            whole(message, timeout)
        except LibraryError as error:
            if str(error) != "timeout":
                raise

    replace(js, "acknowledge_twice", acknowledge_twice)


@of_connection(
    "ack-into-the-void", breaks="CLIENT-ACK-012", summary="an acknowledgement on a lost connection is done"
)
def _(client: Client, js: JetStream) -> None:
    whole = js.acknowledge

    def acknowledge(message: Came, kind: str, command: Mapping[str, Any]) -> None:
        if not client.is_lost:
            whole(message, kind, command)

    replace(js, "acknowledge", acknowledge)


@defect(
    "acks-the-first-delivery",
    breaks="CLIENT-ACK-013",
    summary="what is delivered again is acknowledged as it was delivered first",
)
def _(adapter: Adapter) -> None:
    first: dict[str, str] = {}  # by stream sequence

    def alter(client: Client, js: JetStream) -> None:
        def ack_subject(message: Came) -> str:
            return first[_stream_sequence(message.reply or "")]

        replace(js, "ack_subject", ack_subject)

    whole = adapter.handed

    def handed(operation: Came) -> dict[str, Any]:
        reply = operation.reply or ""
        if reply.startswith("$JS.ACK."):
            first.setdefault(_stream_sequence(reply), reply)
        return whole(operation)

    adapter.alter = alter
    replace(adapter, "handed", handed)


def _stream_sequence(reply: str) -> str:
    return reply.split(".")[-4]
