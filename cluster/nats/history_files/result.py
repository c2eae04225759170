"""A judged history as a result: verdicts, the JSON file, and the lines that the terminal shows."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.cluster.nats.history_files.judging import JudgedHistory
from plumbline.cluster.nats.history_files.layout import HistoryHead
from plumbline.cluster.result import counts_text, exchange, judged_json, verdict_lines, verdicts_of
from plumbline.cluster.verdicts import OF_DELIVERIES, OF_KEYS, OF_REMOVAL
from plumbline.conformance.runner.run import RunEnd, suite_of
from plumbline.verdicts import RunResult, Target

SCHEMA = "plumbline.cluster-history-result/1"
LEFT_OUT = OF_REMOVAL | {*OF_DELIVERIES, *OF_KEYS}  # consumers and keys are not in the files


class HistoryResult(Struct, frozen=True):
    """``name``: the server, or the folder if the history names none."""

    name: str
    head: HistoryHead
    judged: JudgedHistory
    result: RunResult

    @property
    def zero(self) -> int:
        """When the first publish was sent that is shown."""
        return min((one.invoked for one in self.judged.history.attempts), default=0)


def conclude_history(
    folder: str, head: HistoryHead, judged: JudgedHistory, started: datetime.datetime, duration_s: float
) -> HistoryResult:
    """The verdicts. Raises ``CatalogueError``."""
    name = head.server or folder
    notes = (f"{judged.left_out} more messages may break a rule, and were not judged",)
    end = RunEnd(
        suite=suite_of(),
        target=Target(url="", server_name=name, version=head.version, level=head.version),
        started=started,
        duration_s=duration_s,
        notes=notes if judged.left_out else (),
    )
    result = verdicts_of("nats", judged.judgement, end, (), frozenset(), LEFT_OUT)
    return HistoryResult(name, head, judged, result)


def as_json(found: HistoryResult) -> bytes:
    """The file of ``--json``."""
    about: dict[str, Any] = {"schema": SCHEMA, "server": found.head.server, "version": found.head.version}
    return msgspec.json.encode(about | judged_json(found.judged.judgement, found.result))


def as_text(found: HistoryResult) -> Iterator[str]:
    """The summary, line by line."""
    yield counts_text(found.judged.judgement)
    yield from verdict_lines(
        found.name,
        found.result,
        found.judged.judgement,
        lambda first: exchange(found.judged.history, first, found.zero),
    )
