"""Confirms in an order that is written down: all of it legal, and rare on a quiet server.

A script is ``"3: ack 2, ack 3, ack 1"``: what a publisher hears once it has published three messages on a
channel with confirms, and not before. Steps are ``ack TAG``, ``nack TAG``, each with ``multiple`` if wanted,
``pause MILLISECONDS``, ``close`` (the channel, with 406) and ``cut`` (the connection, without a word). Each
channel goes through the script once and is confirmed as ever afterwards. What the script does not confirm
never is.
Source: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms", Ordering Considerations.
"""

from __future__ import annotations

import re
from collections import deque
from weakref import WeakKeyDictionary

from msgspec import Struct

from plumbline.reference_broker.amqp.config import ConfigError
from plumbline.reference_broker.amqp.connections.connection import Channel
from plumbline.reference_broker.amqp.core import Broker, Output
from plumbline.reference_broker.amqp.errors import PRECONDITION_FAILED
from plumbline.reference_broker.registry import replace
from plumbline.wire.amqp import SHAPES

MILLISECOND = 1_000_000
_STEP = re.compile(r"(ack|nack|pause) (\d+)( multiple)?|close|cut")


class ConfirmStep(Struct, frozen=True):
    """``number`` is a delivery tag, or milliseconds of a ``pause``."""

    action: str
    number: int = 0
    multiple: bool = False


class ConfirmScript(Struct, frozen=True):
    """What is sent once ``publishes`` messages were counted on a channel."""

    publishes: int
    steps: tuple[ConfirmStep, ...]


def read_script(text: str) -> ConfirmScript:
    """The script that ``text`` spells. Raises ``ConfigError``."""
    count, colon, steps = text.partition(":")
    if not colon or not count.strip().isdigit() or int(count) == 0:
        raise ConfigError(f"confirm script {text!r}: begin with a number of publishes and a colon")
    script = ConfirmScript(int(count), tuple(_step(one.strip()) for one in steps.split(",") if one.strip()))
    for step in script.steps:
        if step.action in ("ack", "nack") and not 1 <= step.number <= script.publishes:
            raise ConfigError(
                f"confirm script {text!r}: {step.action} {step.number} is not one of the publishes"
            )
    return script


def _step(text: str) -> ConfirmStep:
    found = _STEP.fullmatch(text)
    if found is None or (found[1] == "pause" and found[3]):
        raise ConfigError(f"{text!r} is no step: write ack TAG, nack TAG (multiple), pause MS, close or cut")
    return ConfirmStep(found[1] or text, int(found[2] or 0), found[3] is not None)


class _ChannelProgress:
    """How far one channel has come."""

    def __init__(self, steps: tuple[ConfirmStep, ...]) -> None:
        self.steps = deque(steps)
        self.due = 0
        self.is_started = False


def apply_script(broker: Broker, script: ConfirmScript) -> None:
    """Alter a freshly built broker so that its confirms follow the script."""
    channels: WeakKeyDictionary[Channel, _ChannelProgress] = WeakKeyDictionary()
    original_confirms, original_finish = broker.confirms.send, broker.end_event
    original_next = broker.next_wake

    def send_confirms() -> None:
        for channel in broker.confirms.confirming:
            progress = channels.setdefault(channel, _ChannelProgress(script.steps))
            progress.is_started |= channel.published >= script.publishes
            channel.acked = [tag for tag in channel.acked if tag > script.publishes]
            channel.nacked = [tag for tag in channel.nacked if tag > script.publishes]
        original_confirms()

    def finish(now: int) -> list[Output]:
        broker.confirms.send()
        for channel, progress in list(channels.items()):
            if progress.is_started and not channel.closed:
                play(channel, progress, now)
        return original_finish(now)

    def play(channel: Channel, progress: _ChannelProgress, now: int) -> None:
        while progress.steps and progress.due <= now:
            step = progress.steps.popleft()
            if step.action == "pause":
                progress.due = now + step.number * MILLISECOND
            elif step.action == "cut":
                broker.outbox.end(channel.connection)
            elif step.action == "close":
                close(channel, now)
                return
            else:
                more = (True,) if step.action == "nack" else ()  # requeue, as RabbitMQ sets it
                broker.outbox.answer(channel, f"basic.{step.action}", step.number, step.multiple, *more)

    def close(channel: Channel, now: int) -> None:
        publish = SHAPES["basic.publish"]
        cause = (publish.class_id, publish.method_id)
        broker.channels.close(channel, PRECONDITION_FAILED, "closed by the confirm script", cause, now)

    def paused() -> list[int]:
        return [
            one.due
            for channel, one in channels.items()
            if one.is_started and one.steps and not channel.closed
        ]

    def next_wake() -> int | None:
        times = [*paused(), *([] if (own := original_next()) is None else [own])]
        return min(times, default=None)

    replace(broker.confirms, "send", send_confirms)
    replace(broker, "end_event", finish)
    replace(broker, "next_wake", next_wake)
