"""Runs the monitors over the rows of a capture; returns violations.

Beside a recording it follows the files that are written, so it never delays the traffic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from plumbline.captures.files import CaptureSource, rows
from plumbline.captures.observation import CaptureObservation
from plumbline.captures.operations import OperationReader, OperationRow
from plumbline.captures.plain import plain, plain_text
from plumbline.monitors import MonitorRunner, Observation, Violation

# After these it is unknown what a connection has sent, so what its rules remembered no longer counts.
_BROKEN = ("lost", "undecodable", "entered", "reset")


class CaptureJudge:
    """One for a whole capture: the rules of streams and queues go across connections.

    ``watch`` holds the monitors, all of them by default; ``seen`` makes observations.
    """

    def __init__(
        self, watch: MonitorRunner | None = None, seen: type[Observation] = CaptureObservation
    ) -> None:
        self._watch = watch or MonitorRunner()
        self._seen = seen
        self._half_closed: set[int] = set()

    def observe(self, row: OperationRow) -> Iterator[Violation]:
        """What ``row`` breaks."""
        number = row.connection.number
        if row.operation is not None and row.direction is not None:
            _, server = row.connection.addresses
            return self._watch.observe(
                self._seen(row.operation, row.direction.sender, str(number), row.number, row.time, server)
            )
        if row.remark[0] in _BROKEN or (row.remark[0] == "closed" and number in self._half_closed):
            self._half_closed.discard(number)
            self._watch.close(str(number))
        elif row.remark[0] == "closed":
            self._half_closed.add(number)
        return iter(())


class RecordingJudge:
    """Judges what a recorder writes, from ``first`` on, in a thread, which calls ``on_violation``.

    If it fails, it calls ``on_failure`` and judges no more; ``end`` raises the error."""

    def __init__(
        self,
        first: Path,
        protocol: str | None,
        on_violation: Callable[[Violation], None],
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        self.violation_count = 0
        self._failure: Exception | None = None
        self._on_failure = on_failure
        self._source = CaptureSource([first.parent], since=first)
        self._reader = OperationReader(protocol)
        self._on_violation = on_violation
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="plumbline-judge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Judge what is written by now, and stop. Raises what judging raised."""
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._judge()
        except Exception as error:
            self._failure = error
            if self._on_failure is not None:
                self._on_failure(error)

    def _judge(self) -> None:
        judge = CaptureJudge()
        for row in rows(self._source.follow(self._ended.is_set), self._reader):
            if row is not None:
                for violation in judge.observe(row):
                    self.violation_count += 1
                    self._on_violation(violation)


def violation_json(violation: Violation) -> str:
    """One JSON object."""
    return msgspec.json.encode(plain(msgspec.to_builtins(violation))).decode()


def violation_text(violation: Violation) -> str:
    """What ``show`` prints of it."""
    return plain_text(str(violation))
