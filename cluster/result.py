"""A run as a result: verdicts, the JSON file, and the lines that the terminal shows."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.cluster.history import Retention
from plumbline.cluster.judging import ClusterJudgement, ClusterRule, Finding
from plumbline.cluster.plan import OF_POWER, is_power_loss_of_majority, make_plan
from plumbline.cluster.run import ClusterRun, FaultTimes
from plumbline.cluster.scenario import ClusterOptions, RunHistory
from plumbline.cluster.verdicts import (
    BY_POWER_LOSS,
    BY_POWER_LOSS_OF_MAJORITY,
    CHECKS,
    OF_REMOVAL,
    REQUIREMENTS,
    catalogue,
    check_results,
)
from plumbline.conformance.runner.run import RunEnd, conclude_for, suite_of
from plumbline.verdicts import RunResult, Target
from plumbline.wire.units import SECOND

SCHEMA = "plumbline.cluster/1"
COUNTED = {
    "reads": "reads from the leader",
    "deliveries": "deliveries",
    "confirmed": "acks of them confirmed",
    "updates": "updates of keys",
}
COUNTS = (
    "attempts", "acknowledged", "failed", "indeterminate", "stored", "recovered", "reads", "deliveries",
    "confirmed", "updates",
)  # fmt: skip
SHOWN = 10  # findings, and events around a loss
MOST_FINDINGS = 10_000  # in the file


class ClusterResult(Struct, frozen=True):
    """A run, its verdicts, and the command that repeats it."""

    server: str  # its name, such as nats-server@2.15.2
    version: str
    options: ClusterOptions
    run: ClusterRun
    result: RunResult
    command: str


def conclude(
    protocol: str,
    server: str,
    version: str,
    options: ClusterOptions,
    run: ClusterRun,
    started: datetime.datetime,
    duration_s: float,
    command: str,
) -> ClusterResult:
    """The verdicts. Raises ``CatalogueError``."""
    left_out = OF_REMOVAL if options.retention is Retention.LIMITS else frozenset()
    end = RunEnd(
        suite=suite_of(),
        target=Target(url="", server_name=server, version=version, level=version),
        started=started,
        duration_s=duration_s,
    )
    result = verdicts_of(protocol, run.judgement, end, run.timeline, _explained(protocol, options), left_out)
    return ClusterResult(server, version, options, run, result, command)


def verdicts_of(
    protocol: str,
    judged: ClusterJudgement,
    end: RunEnd,
    timeline: Sequence[tuple[int, str]],
    explained: frozenset[ClusterRule],
    left_out: frozenset[ClusterRule],
) -> RunResult:
    """``timeline``, ``explained`` and ``left_out`` as ``check_results`` takes them. Raises
    ``CatalogueError``."""
    known = catalogue()
    checks = check_results(
        protocol, judged, known, timeline, end.duration_s, end.target.version, explained, left_out
    )
    rows = {name: known.by_id[name] for rule, (name, _) in CHECKS[protocol].items() if rule not in left_out}
    scored = known.published(folder=REQUIREMENTS).ids & rows.keys()
    return conclude_for(checks, tuple(rows.values()), scored, end)


def _explained(protocol: str, options: ClusterOptions) -> frozenset[ClusterRule]:
    """What nats-server may do wrong by its documented defaults, if nodes lose power."""
    if protocol != "nats" or options.sync == "always" or not OF_POWER & set(options.faults):
        return frozenset()
    plan = make_plan(options.faults, options.nodes, options.duration_ns, options.seed)
    is_majority = is_power_loss_of_majority(plan, options.nodes)
    return BY_POWER_LOSS_OF_MAJORITY if is_majority else BY_POWER_LOSS


def as_json(found: ClusterResult) -> bytes:
    """The file of ``--json``."""
    run, judged = found.run, found.run.judgement
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "server": found.server,
            "version": found.version,
            "options": found.options,
            "command": found.command,
            "published_s": run.published_s,
            "whole_after_s": run.whole_after_s,
            "faults": [_fault_json(fault) for fault in run.faults],
            "timeline": [{"at_s": at / SECOND, "event": text} for at, text in run.timeline],
            **judged_json(judged, found.result),
        }
    )


def judged_json(judged: ClusterJudgement, result: RunResult) -> dict[str, Any]:
    """What was found, counted, and the verdicts."""
    return {
        "counts": {name: getattr(judged, name) for name in COUNTS},
        "findings": judged.findings[:MOST_FINDINGS],
        "findings_in_total": len(judged.findings),
        "summary": result.summary,
        "requirements": result.requirements,
        "checks": result.checks,
    }


def _fault_json(fault: FaultTimes) -> dict[str, Any]:
    return {
        "fault": fault.fault,
        "struck_s": fault.struck / SECOND,
        "healed_s": fault.healed / SECOND,
        "recovery_s": fault.recovery_s,
        "acknowledged": fault.acknowledged,
    }


def as_text(found: ClusterResult) -> Iterator[str]:
    """The summary, line by line."""
    run, judged = found.run, found.run.judgement
    if run.faults:
        yield ""
        yield "   begins     ends  recovery  acknowledged  fault"
        for fault in run.faults:
            yield _fault_line(fault)
    rate = judged.acknowledged / max(run.published_s, 0.001)
    yield ""
    yield counts_text(judged, f" in {run.published_s:.0f} s ({rate:.0f} a second)")
    if run.whole_after_s is None:
        yield "the nodes did not become up to date"
    else:
        yield f"all nodes up to date {run.whole_after_s:.1f} s after the last publish"
    yield from verdict_lines(
        found.server, found.result, judged, lambda first: exchange(run.history, first, run.zero, run.timeline)
    )
    yield f"again: {found.command}"


def counts_text(judged: ClusterJudgement, time: str = "") -> str:
    """What there was, with its number. ``time``: in which messages were acknowledged."""
    more = "".join(f", {count} {text}" for name, text in COUNTED.items() if (count := getattr(judged, name)))
    return (
        f"{judged.acknowledged} messages acknowledged{time}, {judged.failed} refused, "
        f"{judged.indeterminate} without an answer ({judged.recovered} of them stored), "
        f"{judged.stored} stored{more}"
    )


def verdict_lines(
    server: str, result: RunResult, judged: ClusterJudgement, describe: Callable[[Finding], Iterable[str]]
) -> Iterator[str]:
    """Each check, the first finding, and the verdict. ``describe``: the exchange of a finding."""
    yield ""
    for check in result.checks:
        yield f"{check.outcome.value.upper():12}  {check.requirements[0]} {check.level}  {check.title}"
        if check.message:
            yield f"{'':14}{check.message}"
        yield from (f"{'':14}{known}" for known in check.known)
    first = first_loss(judged.findings)
    if first is not None:
        yield ""
        yield f"first finding: {first.text}"
        yield from (f"  {line}" for line in describe(first))
    yield ""
    yield f"{result.summary.verdict}: {server}"
    yield from (f"  - {reason}" for reason in result.summary.reasons)


def first_loss(findings: Sequence[Finding]) -> Finding | None:
    """The first message that was lost, by the time of its acknowledgement; else the first finding."""
    lost = [finding for finding in findings if finding.rule is ClusterRule.LOST]
    return min(lost, key=lambda one: one.at, default=None) or next(iter(findings), None)


def exchange(
    history: RunHistory, finding: Finding, zero: int, timeline: Sequence[tuple[int, str]] = ()
) -> Iterator[str]:
    """What was sent and answered for the message of a finding, what each node has, and events since.
    ``zero``: the time from which is counted, on the clock of the history."""
    for attempt in history.attempts:
        if attempt.id == finding.message:
            yield f"{(attempt.invoked - zero) / SECOND:8.3f} s  > PUB {attempt.id} to node {attempt.node + 1}"
            if attempt.completed:
                answer = f"seq {attempt.sequence}" if attempt.sequence else attempt.error
                more = " duplicate" if attempt.duplicate else ""
                yield f"{(attempt.completed - zero) / SECOND:8.3f} s  < {answer}{more}"
            else:
                yield f"{'':10}  no answer"
    for place in history.places(finding.message, finding.sequence):
        yield f"{'':10}  {place}"
    at = finding.at - zero if finding.at else 0
    after = [event for event in timeline if event[0] >= at]
    yield from (f"{when / SECOND:8.3f} s  {text}" for when, text in after[:SHOWN])


def _fault_line(fault: FaultTimes) -> str:
    recovery = "never" if fault.recovery_s is None else f"{fault.recovery_s:.1f} s"
    return (
        f"{fault.struck / SECOND:7.1f} s {fault.healed / SECOND:6.1f} s {recovery:>9}  "
        f"{fault.acknowledged:12}  {fault.fault}"
    )
