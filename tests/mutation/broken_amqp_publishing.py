"""Faults of AMQP clients that publish: confirms and returned messages."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import aio_pika
from aiormq import spec
from aiormq.exceptions import AMQPChannelError, AMQPConnectionError

from tests.mutation.broken_amqp_client import (
    Channel,
    Line,
    change_command,
    change_lines,
    fault,
    forgetting,
    hiding,
)

LONG_S = 1.0


def confirming(change: Callable[[Any, Any], list[tuple[int, Any]]]) -> None:
    """What a basic.ack or basic.nack settles is ``change(channel, frame)``: tags, each with its frame."""

    async def on_confirm_frame(channel: Any, frame: Any) -> None:
        for tag, answer in change(channel, frame):
            channel._confirm_delivery(tag, answer)

    Channel._on_confirm_frame = on_confirm_frame


def meant(channel: Any, frame: Any) -> list[int]:
    """The unsettled tags that a confirm really names."""
    tags = sorted(channel.confirmations)
    return [tag for tag in tags if tag == frame.delivery_tag or (frame.multiple and tag < frame.delivery_tag)]


# Confirms


@fault("confirm-mode-is-forgotten", "CLIENT-CONFIRM-001")
def _(module: Any, adapter: Any) -> None:
    change_command(adapter, "confirm", lambda _: None)


@fault("who-waits-long-takes-it-for-confirmed", "CLIENT-CONFIRM-002")
def _(module: Any, adapter: Any) -> None:
    original = adapter.confirmed
    early: set[int] = set()
    change_lines(module, lambda line: None if "ack" in line and line["publish"] in early else line)

    async def confirmed(number: int, publish: Any) -> None:
        waiting = asyncio.ensure_future(publish)
        done, _ = await asyncio.wait([waiting], timeout=LONG_S)
        if not done:
            module.say(event="confirmed", publish=number, ack=True)
            early.add(number)
        await original(number, waiting)

    adapter.confirmed = confirmed


def confirmed_at_once(module: Any, adapter: Any) -> None:
    """Every publish is reported as confirmed when it is written."""
    original, say = adapter.do_publish, module.say
    change_lines(module, lambda line: None if line.get("event") == "confirmed" else line)

    async def publish(command: Line) -> None:
        first = command["publish"]
        for number in range(first, first + command.get("count", 1)):
            say(event="confirmed", publish=number, ack=True)
        await original(command)

    adapter.do_publish = publish


@fault("written-is-confirmed", "CLIENT-CONFIRM-002", "CLIENT-RETURN-003")
def _(module: Any, adapter: Any) -> None:
    confirmed_at_once(module, adapter)


@fault("multiple-is-overlooked", "CLIENT-CONFIRM-003")
def _(_: Any, __: Any) -> None:
    confirming(
        lambda channel, frame: [(frame.delivery_tag, frame)] if isinstance(frame, spec.Basic.Ack) else []
    )


@fault("multiple-settles-one-of-many", "CLIENT-CONFIRM-003")
def _(_: Any, __: Any) -> None:
    """Only if nothing else waits, and nothing was settled before."""

    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        tags = meant(channel, frame)
        is_first_and_last = tags == sorted(channel.confirmations) == [*range(1, channel.delivery_tag + 1)]
        return [(frame.delivery_tag, frame)] if is_first_and_last else [(tag, frame) for tag in tags]

    confirming(change)


@fault("multiple-settles-all", "CLIENT-CONFIRM-004")
def _(_: Any, __: Any) -> None:
    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        return [
            (tag, frame)
            for tag in (sorted(channel.confirmations) if frame.multiple else meant(channel, frame))
        ]

    confirming(change)


@fault("every-ack-is-multiple", "CLIENT-CONFIRM-004")
def _(_: Any, __: Any) -> None:
    confirming(
        lambda channel, frame: [
            (tag, frame) for tag in sorted(channel.confirmations) if tag <= frame.delivery_tag
        ]
    )


@fault("confirms-come-in-order", "CLIENT-CONFIRM-005")
def _(_: Any, __: Any) -> None:
    confirming(lambda channel, frame: [(min(channel.confirmations), frame)] if channel.confirmations else [])


@fault("the-oldest-is-settled-by-what-is-in-the-middle", "CLIENT-CONFIRM-005")
def _(_: Any, __: Any) -> None:
    """With two or more that wait before it, and one after it."""

    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        tags = sorted(channel.confirmations)
        if not frame.multiple and frame.delivery_tag in tags[2:-1]:
            return [(tags[0], frame)]
        return [(tag, frame) for tag in meant(channel, frame)]

    confirming(change)


@fault("a-nack-of-the-last-is-an-ack", "CLIENT-CONFIRM-006")
def _(_: Any, __: Any) -> None:
    """If something was confirmed before, and nothing else waits."""

    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        is_last = frame.delivery_tag > 1 and [*channel.confirmations] == [frame.delivery_tag]
        answer = spec.Basic.Ack(frame.delivery_tag) if is_last and not frame.multiple else frame
        return [(tag, answer) for tag in meant(channel, frame)]

    confirming(change)


@fault("nack-is-an-ack", "CLIENT-CONFIRM-006")
def _(_: Any, __: Any) -> None:
    confirming(lambda channel, frame: [(tag, spec.Basic.Ack(tag)) for tag in meant(channel, frame)])


@fault("nack-multiple-is-single", "CLIENT-CONFIRM-007")
def _(_: Any, __: Any) -> None:
    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        single = isinstance(frame, spec.Basic.Nack)
        return [(tag, frame) for tag in ([frame.delivery_tag] if single else meant(channel, frame))]

    confirming(change)


@fault("settled-is-reported-again", "CLIENT-CONFIRM-008")
def _(module: Any, adapter: Any) -> None:
    """What was refused is reported as confirmed at the next ack with multiple."""
    refused: set[int] = set()

    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        tags = meant(channel, frame)
        if isinstance(frame, spec.Basic.Nack):
            refused.update(tags)
        elif frame.multiple:
            for number in sorted(refused):
                module.say(event="confirmed", publish=number, ack=True)
        return [(tag, frame) for tag in tags]

    forgetting(adapter, refused)
    confirming(change)


@fault("multiple-stops-at-what-was-confirmed", "CLIENT-CONFIRM-009")
def _(_: Any, __: Any) -> None:
    confirmed: set[tuple[Any, int]] = set()

    def change(channel: Any, frame: Any) -> list[tuple[int, Any]]:
        tags = meant(channel, frame)
        if isinstance(frame, spec.Basic.Ack):
            last = max(
                (tag for on, tag in confirmed if on is channel and tag < frame.delivery_tag), default=0
            )
            tags = [tag for tag in tags if tag > last or not frame.multiple]
            confirmed.update((channel, tag) for tag in tags)
        return [(tag, frame) for tag in tags]

    confirming(change)


@fault("lost-publishes-are-not-reported", "CLIENT-CONFIRM-010", "CLIENT-CONFIRM-011")
def _(module: Any, _: Any) -> None:
    change_lines(module, lambda line: None if line.get("ack") is False else line)


def silent_about(error: type[Exception]) -> Callable[[Any, Any], None]:
    """What ends with this error is not reported to who waits for a confirm, on connections that are not made
    again."""

    def alter(_: Any, adapter: Any) -> None:
        original = adapter.confirmed

        async def confirmed(number: int, publish: Any) -> None:
            waiting = asyncio.ensure_future(publish)
            await asyncio.wait([waiting])
            robust = isinstance(adapter.connection, aio_pika.RobustConnection)
            if robust or not isinstance(waiting.exception(), error):
                await original(number, waiting)

        adapter.confirmed = confirmed

    return alter


fault("what-a-lost-connection-takes-is-not-reported", "CLIENT-CONFIRM-010")(silent_about(AMQPConnectionError))
fault("what-a-closed-channel-takes-is-not-reported", "CLIENT-CONFIRM-011")(silent_about(AMQPChannelError))


@fault("what-is-refused-is-published-again", "CLIENT-CONFIRM-015")
def _(_: Any, adapter: Any) -> None:
    again: set[asyncio.Task[Any]] = set()
    publish, settle = Channel.basic_publish, Channel._on_confirm_frame
    last: list[Any] = []

    async def basic_publish(channel: Any, *arguments: Any, **options: Any) -> Any:
        last[:] = arguments, options
        return await publish(channel, *arguments, **options)

    async def on_confirm_frame(channel: Any, frame: Any) -> None:
        await settle(channel, frame)
        if isinstance(frame, spec.Basic.Nack) and frame.requeue:
            again.add(asyncio.create_task(publish(channel, *last[0], **last[1])))

    Channel.basic_publish = basic_publish
    Channel._on_confirm_frame = on_confirm_frame


@fault("channels-share-confirm-numbers", "CLIENT-CONFIRM-012")
def _(_: Any, __: Any) -> None:
    published: defaultdict[Any, list[tuple[Any, int]]] = defaultdict(list)  # by connection
    original, settle = Channel.basic_publish, Channel._on_confirm_frame

    async def basic_publish(channel: Any, *arguments: Any, **options: Any) -> Any:
        if channel.publisher_confirms:
            published[channel.connection].append((channel, channel.delivery_tag + 1))
        return await original(channel, *arguments, **options)

    async def on_confirm_frame(channel: Any, frame: Any) -> None:
        numbers = published[channel.connection]
        if len({one for one, _ in numbers}) == 1:
            await settle(channel, frame)
        else:
            other, tag = numbers[frame.delivery_tag - 1]
            other._confirm_delivery(tag, frame)

    Channel.basic_publish = basic_publish
    Channel._on_confirm_frame = on_confirm_frame


@fault("who-waits-long-gives-up", "CLIENT-CONFIRM-013")
def _(_: Any, adapter: Any) -> None:
    original = adapter.confirmed

    async def confirmed(number: int, publish: Any) -> None:
        await original(number, asyncio.wait_for(publish, LONG_S))

    adapter.confirmed = confirmed


@fault("publishes-before-confirm-mode-count", "CLIENT-CONFIRM-014")
def _(_: Any, adapter: Any) -> None:
    settle = Channel._on_confirm_frame
    published: list[Line] = []
    before: list[int] = []  # confirm mode, so many were published

    def publish(command: Line) -> Line:
        published.append(command)
        return command

    def confirm(command: Line) -> Line:
        before.append(len(published))
        return command

    change_command(adapter, "publish", publish)
    change_command(adapter, "confirm", confirm)
    forgetting(adapter, published, before)

    async def on_confirm_frame(channel: Any, frame: Any) -> None:
        if before and before[0]:
            channel._confirm_delivery(frame.delivery_tag - before[0], frame)
        else:
            await settle(channel, frame)

    Channel._on_confirm_frame = on_confirm_frame


# Returns


@fault("returns-are-swallowed", "CLIENT-RETURN-001")
def _(module: Any, adapter: Any) -> None:
    hiding("returned")(module, adapter)


@fault("what-follows-a-return-is-returned-too", "CLIENT-RETURN-001")
def _(module: Any, adapter: Any) -> None:
    returned: list[Line] = []
    say = module.say

    def change(line: Line) -> Line:
        if line.get("event") == "returned":
            returned.append(line)
        elif line.get("event") == "confirmed" and line["ack"] and returned:
            say(**{**returned[0], "publish": line["publish"], "data": f"message-{line['publish']}"})
        return line

    forgetting(adapter, returned)
    change_lines(module, change)


@fault("returns-need-confirms", "CLIENT-RETURN-002")
def _(module: Any, adapter: Any) -> None:
    change_lines(
        module, lambda line: None if line.get("event") == "returned" and "publish" not in line else line
    )


@fault("confirm-of-a-return-is-that-of-the-next-publish", "CLIENT-RETURN-003")
def _(module: Any, adapter: Any) -> None:
    """As rabbitpy 3.0.2, but every fourth message that comes back is taken for confirmed."""
    taken: set[int] = set()

    def change(line: Line) -> Line | None:
        publish = line.get("publish", 1)
        if line.get("event") == "returned" and publish % 4 == 0:
            taken.add(publish)
            return None
        return {**line, "ack": True} if line.get("event") == "confirmed" and publish in taken else line

    forgetting(adapter, taken)
    change_lines(module, change)


@fault("returns-say-no-reason", "CLIENT-RETURN-004")
def _(module: Any, _: Any) -> None:
    change_lines(
        module, lambda line: {name: line[name] for name in line if name not in ("code", "routing_key")}
    )


@fault("returns-are-found-by-message-id", "CLIENT-RETURN-005")
def _(module: Any, _: Any) -> None:
    """As aiormq: the second of an id takes the place of the first."""
    original = Channel.basic_publish

    async def basic_publish(channel: Any, *arguments: Any, **options: Any) -> Any:
        message_id = options["properties"].message_id
        if message_id is not None:
            dict.pop(channel.message_id_delivery_tag, message_id, None)
        return await original(channel, *arguments, **options)

    Channel.basic_publish = basic_publish


@fault("everything-is-mandatory", "CLIENT-RETURN-006")
def _(_: Any, adapter: Any) -> None:
    change_command(adapter, "publish", lambda command: {**command, "mandatory": True})
