"""Faults of AMQP clients that connect again by themselves, and of blocked connections."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import aiormq.connection
from aio_pika.robust_queue import RobustQueue
from aiormq.abc import ChannelFrame

from plumbline.wire.amqp import Method
from tests.mutation.broken_amqp_client import Channel, Line, change_command, change_lines, fault, forgetting
from tests.mutation.broken_amqp_consuming import settling_old_by_tag

Connection: Any = aiormq.connection.Connection  # Any, since its methods are replaced
Queue: Any = RobustQueue
Robust: Any = aio_pika.RobustConnection


def only_once(owner: Any, name: str, *, when: Any = lambda part: True) -> None:
    """A method that does nothing when it is called again for the same part of the library."""
    original = getattr(owner, name)
    seen: set[int] = set()

    async def method(part: Any, *arguments: Any, **options: Any) -> Any:
        if id(part) in seen and when(part):
            return None
        seen.add(id(part))
        return await original(part, *arguments, **options)

    setattr(owner, name, method)


@fault("recovery-forgets-queues", "CLIENT-LOSS-006")
def _(_: Any, __: Any) -> None:
    only_once(Queue, "declare", when=lambda queue: not queue._bindings)


@fault("recovery-forgets-bindings", "CLIENT-LOSS-007")
def _(_: Any, __: Any) -> None:
    only_once(Queue, "bind")


@fault("recovery-forgets-confirms", "CLIENT-LOSS-008")
def _(module: Any, _: Any) -> None:
    original = Channel.open
    confirmed: list[Line] = []

    def count(line: Line) -> Line:
        if line.get("event") == "confirmed" and line["ack"]:
            confirmed.append(line)
        return line

    async def opened(channel: Any, *arguments: Any, **options: Any) -> Any:
        channel.publisher_confirms = channel.publisher_confirms and not confirmed
        return await original(channel, *arguments, **options)

    change_lines(module, count)
    Channel.open = opened


@fault("the-next-connection-confirms-what-was-lost", "CLIENT-LOSS-009")
def _(module: Any, adapter: Any) -> None:
    held: list[Line] = []
    ends: list[Line] = []
    early: set[int] = set()
    say = module.say

    def publish(command: Line) -> Line:
        if not ends and isinstance(adapter.connection, Robust):
            early.add(command["publish"])
        return command

    def change(line: Line) -> Line | None:
        if line.get("event") == "disconnected":
            ends.append(line)
        if line.get("event") != "confirmed":
            return line
        if not line["ack"] and line["publish"] in early:
            held.append({**line, "ack": True})
            return None
        while held:
            say(**held.pop())
        return line

    change_command(adapter, "publish", publish)
    change_lines(module, change)


@fault("old-deliveries-are-nacked-on-new-channels", "CLIENT-LOSS-010")
def _(_: Any, adapter: Any) -> None:
    settling_old_by_tag(adapter, "nack")
    settling_old_by_tag(adapter, "reject")


@fault("a-closed-connection-comes-back", "CLIENT-LOSS-011")
def _(_: Any, adapter: Any) -> None:
    connect, close = adapter.do_connect, adapter.do_close
    wanted: list[Line] = []

    async def connecting(command: Line) -> None:
        wanted.append(command)
        await connect(command)

    async def closing(command: Line) -> None:
        await close(command)
        if wanted and wanted[-1].get("reconnect"):
            await connect(wanted.pop())

    adapter.do_connect, adapter.do_close = connecting, closing


@fault("recovery-gives-up-after-two-attempts", "CLIENT-LOSS-012")
def _(_: Any, __: Any) -> None:
    name = "_RobustConnection__connect_transport"
    original = getattr(Robust, name)
    failed: list[BaseException] = []

    async def connect(connection: Any) -> None:
        if len(failed) == 2:
            await asyncio.Future()
        try:
            await original(connection)
        except Exception as error:
            failed.append(error)
            raise

    setattr(Robust, name, connect)


@fault("recovery-waits-for-no-heartbeat", "CLIENT-LOSS-013")
def _(_: Any, adapter: Any) -> None:
    def without(command: Line) -> Line:
        url = command["url"]
        return {
            **command,
            "url": url.replace("?heartbeat=1", "?heartbeat=0") if "reconnect" in command else url,
        }

    change_command(adapter, "connect", without)


@fault("heartbeats-are-not-sent", "CLIENT-LOSS-014")
def _(_: Any, __: Any) -> None:
    """Those of the server are missed all the same."""

    async def heartbeat(connection: Any) -> None:
        closed: set[Any] = set()
        while not closed:
            if connection.is_connection_was_stuck:
                connection._reader_task.cancel()
                return
            closed, _ = await asyncio.wait([connection._closing], timeout=1)

    Connection._Connection__heartbeat = heartbeat


@fault("publishes-without-a-connection-vanish", "CLIENT-LOSS-015")
def _(_: Any, adapter: Any) -> None:
    original = adapter.do_publish

    async def publish(command: Line) -> None:
        connection = adapter.connection
        if not isinstance(connection, Robust) or connection.connected.is_set():
            await original(command)

    adapter.do_publish = publish


# Blocked connections


def reporting_blocked(module: Any, *, unblocking: bool = True) -> None:
    """aio-pika reports no blocked connections: here it does."""
    module.FEATURES += " blocked"
    blocked = Connection._Connection__handle_connection_blocked
    unblocked = Connection._Connection__handle_connection_unblocked

    async def on_blocked(connection: Any, frame: Any) -> None:
        module.say(event="blocked", text=frame.reason)
        await blocked(connection, frame)

    async def on_unblocked(connection: Any, frame: Any) -> None:
        if unblocking:
            module.say(event="unblocked")
        await unblocked(connection, frame)

    Connection._Connection__handle_connection_blocked = on_blocked
    Connection._Connection__handle_connection_unblocked = on_unblocked


@fault("the-capability-is-not-announced", "CLIENT-BLOCK-001")
def _(module: Any, _: Any) -> None:
    original = Connection._client_properties

    def client_properties(connection: Any, **options: Any) -> dict[str, Any]:
        properties: dict[str, Any] = original(connection, **options)
        capabilities = {**properties["capabilities"], "connection.blocked": False}
        return {**properties, "capabilities": capabilities}

    reporting_blocked(module)
    Connection._client_properties = client_properties


@fault("unblocked-is-not-reported", "CLIENT-BLOCK-002")
def _(module: Any, _: Any) -> None:
    reporting_blocked(module, unblocking=False)


@fault("blocked-is-for-ever", "CLIENT-BLOCK-003")
def _(_: Any, adapter: Any) -> None:
    original = Connection._Connection__handle_connection_blocked
    blocked: list[Any] = []

    async def on_blocked(connection: Any, frame: Any) -> None:
        blocked.append(frame)
        await original(connection, frame)

    Connection._Connection__handle_connection_blocked = on_blocked
    change_command(adapter, "publish", lambda command: None if blocked else command)


# Channels that the server closes


def closed_channels(module: Any, adapter: Any) -> list[Line]:
    """The events of channels that the server has closed with 404, since the adapter began."""
    closed: list[Line] = []

    def change(line: Line) -> Line:
        if line.get("event") == "channel-closed" and "NOT_FOUND" in line["text"]:
            closed.append(line)
        return line

    change_lines(module, change)
    forgetting(adapter, closed)
    return closed


@fault("a-closed-channel-takes-the-others-with-it", "CLIENT-END-005")
def _(module: Any, adapter: Any) -> None:
    closed = closed_channels(module, adapter)

    def declaring(command: Line) -> Line:
        if closed:
            raise RuntimeError("the channel is closed")
        return command

    change_command(adapter, "declare", declaring)


@fault("publishes-on-a-closed-channel-vanish", "CLIENT-END-006")
def _(module: Any, adapter: Any) -> None:
    closed = closed_channels(module, adapter)
    change_command(adapter, "publish", lambda command: None if closed else command)


@fault("publishes-go-out-on-a-closed-channel", "CLIENT-END-006")
def _(module: Any, adapter: Any) -> None:
    connections: list[Any] = []
    closed = closed_channels(module, adapter)
    change_lines(module, lambda line: None if closed and line.get("event") == "disconnected" else line)
    original = adapter.do_connect

    async def connect(command: Line) -> None:
        await original(command)
        connections.append(adapter.connection.transport.connection)

    async def publish(command: Line) -> None:
        raw = Method.make("basic.publish", 1, routing_key=command["routing_key"], body=b"message").raw
        await connections[-1].write_queue.put(ChannelFrame(raw, should_close=False))

    honest = adapter.do_publish
    adapter.do_connect = connect
    adapter.do_publish = lambda command: publish(command) if closed else honest(command)
