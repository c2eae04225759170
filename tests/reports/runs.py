"""Runs for a matrix: what matters is which requirement ended how, and when."""

from __future__ import annotations

from msgspec.structs import replace

from plumbline.verdicts import CheckResult, Level, Outcome, RunResult, Target
from tests.reports.samples import requirement, result_of

FIRST, SECOND = "2026-11-20T08:00:00+00:00", "2026-11-21T08:00:00+00:00"


def run_of(
    verdicts: dict[str, str], *, version: str = "2.10.0", started: str = FIRST, waiver: str = ""
) -> RunResult:
    """A run in which each requirement ended so, each by a check of its own."""
    rules = [requirement(name, f"What {name} says.", verdict) for name, verdict in verdicts.items()]
    checks = [
        CheckResult(
            f"check/{rule.id}",
            Outcome(rule.verdict),
            (rule.id,),
            Level.MUST,
            message="" if rule.verdict == "passed" else f"why {rule.id}",
            waiver=waiver if rule.verdict == "waived" else "",
        )
        for rule in rules
        if rule.verdict in set(Outcome)
    ]
    made = result_of(rules, checks)
    target = Target("nats://127.0.0.1:1", version=version, arguments=("--server", "/opt/nats-server"))
    return replace(made, target=target, summary=replace(made.summary, started=started))
