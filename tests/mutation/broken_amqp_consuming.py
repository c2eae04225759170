"""Faults of AMQP clients that consume, of what the server ends, and of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pamqp.body import ContentBody

from tests.mutation.broken_amqp_client import Channel, Connection, Line, change_command, fault, hiding

# Settling


def acknowledging(change: Callable[[Any, int, bool], tuple[Any, int, bool]]) -> None:
    """basic.ack is sent with the result of ``change(channel, delivery_tag, multiple)``."""
    original = Channel.basic_ack

    async def basic_ack(channel: Any, delivery_tag: int, *, multiple: bool = False, **options: Any) -> Any:
        on, tag, all_below = change(channel, delivery_tag, multiple)
        return await original(on, tag, multiple=all_below, **options)

    Channel.basic_ack = basic_ack


@fault("acks-go-out-twice", "CLIENT-SETTLE-001", "CLIENT-TX-005")
def _(_: Any, __: Any) -> None:
    original = Channel.basic_ack

    async def basic_ack(channel: Any, *arguments: Any, **options: Any) -> Any:
        await original(channel, *arguments, **options)
        return await original(channel, *arguments, **options)

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


@fault("nack-turns-requeue-round", "CLIENT-SETTLE-004")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "nack", lambda command: {**command, "requeue": not command["requeue"]})


@fault("reject-turns-requeue-round", "CLIENT-SETTLE-005")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "reject", lambda command: {**command, "requeue": not command["requeue"]})


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
    acknowledging(lambda channel, tag, multiple: (channel, 1, multiple))


# Deliveries


@fault("deliveries-come-twice", "CLIENT-DELIVERY-001")
def _(module: Any, _: Any) -> None:
    original = module.say

    def say(**line: Any) -> None:
        original(**line)
        if line.get("event") == "message":
            original(**line)

    module.say = say


@fault("redelivered-is-not-reported", "CLIENT-DELIVERY-002", "CLIENT-LOSS-002")
def _(_: Any, adapter: Any) -> None:
    original = adapter.message
    adapter.message = lambda message: {**original(message), "redelivered": False}


@fault("cancelled-consumers-hear-nothing", "CLIENT-DELIVERY-003")
def _(module: Any, adapter: Any) -> None:
    hiding("ended")(module, adapter)


@fault("prefetch-is-forgotten", "CLIENT-DELIVERY-004")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "qos", lambda _: None)


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


@fault("closed-connections-look-open", "CLIENT-END-003", "CLIENT-LOSS-001")
def _(module: Any, adapter: Any) -> None:
    hiding("disconnected")(module, adapter)
    change_command(adapter, "declare", lambda _: None)


@fault("old-deliveries-are-acked-on-new-channels", "CLIENT-LOSS-003")
def _(_: Any, adapter: Any) -> None:
    async def ack(command: Line) -> None:
        underlying = await adapter.channels[1].get_underlay_channel()
        await underlying.basic_ack(adapter.messages[command["ref"] - 1].delivery_tag)

    adapter.do_ack = ack


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


@fault("rollback-commits", "CLIENT-TX-002")
def _(_: Any, adapter: Any) -> None:
    adapter.do_tx_rollback = adapter.do_tx_commit


@fault("commit-is-not-waited-for", "CLIENT-TX-003", "CLIENT-TX-004")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_tx_commit
    tasks: list[asyncio.Task[None]] = []

    async def commit(command: Line) -> None:
        tasks.append(asyncio.create_task(original(command)))

    adapter.do_tx_commit = commit


@fault("heartbeats-of-the-broker-are-not-missed", "CLIENT-LOSS-005")
def _(_: Any, __: Any) -> None:
    Connection.HEARTBEAT_GRACE_MULTIPLIER = 1000


@fault("no-heartbeat", "CLIENT-LOSS-005")
def _(_: Any, adapter: Any) -> None:
    def without(command: Line) -> Line:
        return {**command, "url": command["url"].replace("?heartbeat=1", "?heartbeat=0")}

    change_command(adapter, "connect", without)
