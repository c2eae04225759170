"""Sends verdict events to listeners. A closed pipe or a full disk does not stop a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Protocol

from plumbline.verdicts import Event


class EventListener(Protocol):
    """Whoever wants the verdict events of a run."""

    def on_event(self, event: Event) -> None: ...


class Emitter:
    """``problems`` are what consumers could not do, in sentences."""

    def __init__(self, consumers: Iterable[EventListener]) -> None:
        self._consumers = list(consumers)
        self.problems: list[str] = []

    def emit(self, event: Event) -> None:
        """To every consumer that still takes events."""
        for consumer in self._consumers.copy():
            try:
                consumer.on_event(event)
            except (BrokenPipeError, SystemExit):  # rich's word for it: whoever read our output has gone
                self._consumers.remove(consumer)
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except OSError as error:  # a full disk, at the end: the others may still be written
                self._consumers.remove(consumer)
                self.problems.append(str(error))
