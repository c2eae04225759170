"""Faults of AMQP clients that consume, of what the server ends, and of transactions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiormq.connection
from aiormq import spec
from aiormq.abc import ChannelFrame
from aiormq.exceptions import AMQPError
from pamqp.body import ContentBody

from tests.mutation.broken_amqp_client import (
    Channel,
    Connection,
    Line,
    change_command,
    change_lines,
    fault,
    forgetting,
    hiding,
)

MOMENT_S = 0.1

# Settling


def acknowledging(change: Callable[[Any, int, bool], tuple[Any, int, bool]]) -> None:
    """basic.ack is sent with the result of ``change(channel, delivery_tag, multiple)``."""
    original = Channel.basic_ack

    async def basic_ack(channel: Any, delivery_tag: int, *, multiple: bool = False, **options: Any) -> Any:
        on, tag, all_below = change(channel, delivery_tag, multiple)
        return await original(on, tag, multiple=all_below, **options)

    Channel.basic_ack = basic_ack


def acks_go_out_twice() -> None:
    """basic.ack is sent again at once."""
    original = Channel.basic_ack

    async def basic_ack(channel: Any, *arguments: Any, **options: Any) -> Any:
        await original(channel, *arguments, **options)
        return await original(channel, *arguments, **options)

    Channel.basic_ack = basic_ack


@fault("acks-go-out-twice", "CLIENT-SETTLE-001", "CLIENT-SETTLE-002", "CLIENT-TX-005")
def _(_: Any, __: Any) -> None:
    acks_go_out_twice()


@fault("acks-of-a-transaction-go-out-twice", "CLIENT-TX-005")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_tx_select

    async def select(command: Line) -> None:
        await original(command)
        acks_go_out_twice()

    adapter.do_tx_select = select


@fault("multiple-ends-with-what-was-acked", "CLIENT-SETTLE-001")
def _(_: Any, __: Any) -> None:
    original = Channel.basic_ack
    acked: list[tuple[Any, int]] = []

    async def basic_ack(channel: Any, delivery_tag: int, *, multiple: bool = False, **options: Any) -> Any:
        await original(channel, delivery_tag, multiple=multiple, **options)
        for on, tag in acked if multiple else ():
            if on is channel:
                await original(channel, tag, **options)
        acked.append((channel, delivery_tag))

    Channel.basic_ack = basic_ack


@fault("acks-go-out-on-the-first-channel", "CLIENT-SETTLE-002")
def _(_: Any, adapter: Any) -> None:
    def change(channel: Any, tag: int, multiple: bool) -> tuple[Any, int, bool]:
        return (
            channel.connection.channels[min(number for number in channel.connection.channels if number)],
            tag,
            multiple,
        )

    acknowledging(change)


@fault("multiple-acks-all-that-came", "CLIENT-SETTLE-003")
def _(_: Any, adapter: Any) -> None:
    acknowledging(
        lambda channel, tag, multiple: (channel, len(adapter.messages) if multiple else tag, multiple)
    )


def always_requeued(command: Line) -> Line:
    """A single settlement that hands the delivery back, whatever was asked."""
    return command if command.get("multiple") else {**command, "requeue": True}


@fault("nack-always-requeues", "CLIENT-SETTLE-004")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "nack", always_requeued)


@fault("reject-always-requeues", "CLIENT-SETTLE-005")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "reject", always_requeued)


@fault("nack-drops-multiple", "CLIENT-SETTLE-006")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "nack", lambda command: {**command, "multiple": False})


@fault("cancelling-acknowledges", "CLIENT-SETTLE-007")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_cancel

    async def cancel(command: Line) -> None:
        for message in adapter.messages:
            await message.ack()
        await original(command)

    adapter.do_cancel = cancel


@fault("no-ack-is-forgotten", "CLIENT-SETTLE-008")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "consume", lambda command: {**command, "no_ack": False})


@fault("what-was-got-is-acked-as-the-first", "CLIENT-SETTLE-009")
def _(_: Any, __: Any) -> None:
    acknowledging(lambda channel, tag, multiple: (channel, tag if channel.consumers else 1, multiple))


# Deliveries


@fault("every-tenth-delivery-comes-twice", "CLIENT-DELIVERY-001")
def _(module: Any, _: Any) -> None:
    original = module.say

    def say(**line: Any) -> None:
        original(**line)
        if line.get("event") == "message" and line["message"]["ref"] % 10 == 0:
            original(**line)

    module.say = say


def hidden_if(when: Callable[[int], bool]) -> Callable[[Any, Any], None]:
    """No delivery is one that came before, on connections whose number ``when`` is true of."""

    def alter(_: Any, adapter: Any) -> None:
        connections: list[Line] = []

        def count(command: Line) -> Line:
            connections.append(command)
            return command

        change_command(adapter, "connect", count)
        forgetting(adapter, connections)
        original = adapter.message

        def message(came: Any) -> Line:
            line: Line = original(came)
            return {**line, "redelivered": line["redelivered"] and not when(len(connections))}

        adapter.message = message

    return alter


fault("redelivered-is-not-reported", "CLIENT-DELIVERY-002", "CLIENT-LOSS-002")(hidden_if(lambda _: True))
fault("redelivered-is-not-reported-at-first", "CLIENT-DELIVERY-002")(hidden_if(lambda one: one == 1))
fault("redelivered-is-not-reported-after-a-loss", "CLIENT-LOSS-002")(hidden_if(lambda one: one > 1))


@fault("cancelled-consumers-hear-nothing", "CLIENT-DELIVERY-003")
def _(module: Any, adapter: Any) -> None:
    hiding("ended")(module, adapter)


@fault("prefetch-is-forgotten", "CLIENT-DELIVERY-004")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "qos", lambda _: None)


@fault("prefetch-for-the-channel-is-not-asked-for-as-such", "CLIENT-DELIVERY-004")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "qos", lambda command: {**command, "global": False})


@fault("get-of-nothing-gives-the-last-message", "CLIENT-DELIVERY-005")
def _(_: Any, adapter: Any) -> None:
    original, last = adapter.do_get, {"message": None}

    async def get(command: Line) -> Line:
        answer: Line = await original(command)
        if answer["message"] is not None:
            last.update(answer)
        return dict(last)

    adapter.do_get = get


@fault("large-messages-are-cut", "CLIENT-DELIVERY-006")
def _(_: Any, adapter: Any) -> None:
    original = adapter.message

    def message(came: Any) -> Line:
        line: Line = original(came)
        return {**line, "data": line["data"][:131064]}

    adapter.message = message


@fault("frames-are-as-large-as-they-come", "CLIENT-DELIVERY-007")
def _(_: Any, __: Any) -> None:
    Channel._split_body = lambda channel, body: [ContentBody(body)]


@fault("cancel-is-not-sent", "CLIENT-DELIVERY-008")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "cancel", lambda _: None)


# Ends


@fault("closed-channels-look-open", "CLIENT-END-001")
def _(module: Any, adapter: Any) -> None:
    hiding("channel-closed")(module, adapter)
    change_command(adapter, "get", lambda _: None)


def looking_open(when: Callable[[Line], bool]) -> Callable[[Any, Any], None]:
    """A connection whose end ``when`` is true of looks as if it were open."""

    def alter(module: Any, adapter: Any) -> None:
        hidden: list[Line] = []

        def change(line: Line) -> Line | None:
            if line.get("event") != "disconnected" or not when(line):
                return line
            hidden.append(line)
            return None

        change_lines(module, change)
        change_command(adapter, "declare", lambda command: None if hidden else command)

    return alter


fault("closed-connections-look-open", "CLIENT-END-003", "CLIENT-LOSS-001")(looking_open(lambda _: True))
fault("who-is-closed-by-the-server-looks-open", "CLIENT-END-003")(looking_open(lambda line: "code" in line))
fault("who-is-reset-looks-open", "CLIENT-LOSS-001")(looking_open(lambda line: "reset" in line["text"]))


@fault("codes-are-lost", "CLIENT-END-002")
def _(module: Any, _: Any) -> None:
    def change(line: Line) -> Line:
        if "error" in line:
            return {**line, "error": {"text": "an error"}}
        return {**line, "code": None, "text": "closed"} if line.get("event") == "channel-closed" else line

    change_lines(module, change)


def not_sending(module: Any, frame_type: type) -> None:
    """Frames of this type, which this module of aiormq makes, are not sent."""
    marshall = ChannelFrame.marshall

    def without(channel_number: int, frames: Any, *others: Any, **options: Any) -> ChannelFrame:
        frames = [frame for frame in frames if not isinstance(frame, frame_type)]
        return marshall(channel_number, frames, *others, **options)

    module.ChannelFrame = SimpleNamespace(marshall=without)


@fault("close-ok-is-not-sent", "CLIENT-END-004")
def _(_: Any, __: Any) -> None:
    not_sending(aiormq.connection, spec.Connection.CloseOk)


@fault("close-ok-of-a-channel-is-not-sent", "CLIENT-END-001")
def _(_: Any, __: Any) -> None:
    not_sending(aiormq.channel, spec.Channel.CloseOk)


def settling_old_by_tag(adapter: Any, name: str) -> None:
    """A delivery whose channel is no more is settled by its tag, on the channel that is open now."""
    whole = getattr(adapter, f"do_{name}")

    async def settle(command: Line) -> None:
        message = adapter.messages[command["ref"] - 1]
        if not message._IncomingMessage__channel.is_closed:
            await whole(command)
            return
        underlying = await adapter.channels[1].get_underlay_channel()
        await getattr(underlying, f"basic_{name}")(message.delivery_tag)

    setattr(adapter, f"do_{name}", settle)


@fault("old-deliveries-are-acked-on-new-channels", "CLIENT-LOSS-003")
def _(_: Any, adapter: Any) -> None:
    settling_old_by_tag(adapter, "ack")


@fault("recovery-forgets-prefetch", "CLIENT-LOSS-004")
def _(_: Any, adapter: Any) -> None:
    original = Channel.basic_qos
    done: list[Any] = []

    async def basic_qos(channel: Any, **options: Any) -> Any:
        if len(done) < 2:  # when the channel is opened, and as the application asks
            done.append(channel)
            return await original(channel, **options)
        return None

    Channel.basic_qos = basic_qos


# Transactions


@fault("commit-is-not-sent", "CLIENT-TX-001")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "tx.commit", lambda _: None)


def published_in_transactions(adapter: Any) -> list[Line]:
    """What was published since the last tx.select."""
    published: list[Line] = []

    def publish(command: Line) -> Line:
        published.append(command)
        return command

    def select(command: Line) -> Line:
        published.clear()
        return command

    change_command(adapter, "publish", publish)
    change_command(adapter, "tx.select", select)
    return published


@fault("a-transaction-has-one-message", "CLIENT-TX-001")
def _(_: Any, adapter: Any) -> None:
    selected: list[Line] = []

    def select(command: Line) -> Line:
        selected.append(command)
        return command

    change_command(adapter, "publish", lambda command: None if selected and published[1:] else command)
    published = published_in_transactions(adapter)
    change_command(adapter, "tx.select", select)
    forgetting(adapter, selected)


@fault("rollback-commits", "CLIENT-TX-002")
def _(_: Any, adapter: Any) -> None:
    """If something was published."""
    rollback, published = adapter.do_tx_rollback, published_in_transactions(adapter)

    async def roll_back(command: Line) -> None:
        await (adapter.do_tx_commit if published else rollback)(command)

    adapter.do_tx_rollback = roll_back


@fault("commit-is-not-waited-for", "CLIENT-TX-003", "CLIENT-TX-004")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_tx_commit
    tasks: list[asyncio.Task[None]] = []

    async def commit(command: Line) -> None:
        tasks.append(asyncio.create_task(original(command)))

    adapter.do_tx_commit = commit


@fault("commit-is-waited-for-a-moment", "CLIENT-TX-003")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_tx_commit
    tasks: list[asyncio.Task[None]] = []

    async def commit(command: Line) -> None:
        tasks.append(asyncio.create_task(original(command)))
        done, _ = await asyncio.wait(tasks[-1:], timeout=MOMENT_S)
        if done:
            await tasks[-1]

    adapter.do_tx_commit = commit


@fault("a-commit-that-failed-is-done", "CLIENT-TX-004")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_tx_commit

    async def commit(command: Line) -> None:
        with contextlib.suppress(AMQPError):
            await original(command)

    adapter.do_tx_commit = commit


@fault("heartbeats-of-the-broker-are-not-missed", "CLIENT-LOSS-005")
def _(_: Any, adapter: Any) -> None:
    """On connections that are not made again."""
    patience = Connection.HEARTBEAT_GRACE_MULTIPLIER

    def connect(command: Line) -> Line:
        Connection.HEARTBEAT_GRACE_MULTIPLIER = patience if command.get("reconnect") else 1000
        return command

    change_command(adapter, "connect", connect)


@fault("no-heartbeat", "CLIENT-LOSS-005")
def _(_: Any, adapter: Any) -> None:
    def without(command: Line) -> Line:
        return {**command, "url": command["url"].replace("?heartbeat=1", "?heartbeat=0")}

    change_command(adapter, "connect", without)
