"""The events of a run that is over, so that reports can be made of it later."""

from __future__ import annotations

from collections.abc import Iterator

from plumbline.verdicts import CheckFinished, CheckStarted, Event, RunFinished, RunResult, RunStarted


def events_of(result: RunResult) -> Iterator[Event]:
    """The events that consumers of the run have seen, without their times."""
    yield RunStarted(result.suite, result.target, len(result.checks))
    for check in result.checks:
        yield CheckStarted(check.id, check.title)
        yield CheckFinished(check)
    yield RunFinished(result)
