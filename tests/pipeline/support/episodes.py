"""What clients and servers say, one operation a step. An episode has one wrong step.

``nats_episodes`` and ``amqp_episodes`` have sound traffic, and the episodes of each protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from msgspec import Struct

from plumbline.wire import nats
from plumbline.wire.amqp import Method


class Step(Struct, frozen=True):
    """One operation. ``is_wrong``: it is what breaks the rule."""

    by_client: bool
    data: bytes
    is_wrong: bool = False


class Names:
    """New names."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> int:
        return next(self._numbers)


Episode = Callable[[Names], Iterator[Step]]


def client_sends(operation: nats.Operation | Method) -> Step:
    """The client sends ``operation``."""
    return Step(by_client=True, data=operation.raw)


def server_sends(operation: nats.Operation | Method) -> Step:
    """The server sends ``operation``."""
    return Step(by_client=False, data=operation.raw)


def wrong(step: Step) -> Step:
    """The same, and it breaks the rule."""
    return Step(step.by_client, step.data, is_wrong=True)
