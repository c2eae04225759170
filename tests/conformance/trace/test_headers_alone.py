"""A worker reads the headers of packaged traces only: they say the same, and the steps are read to run."""

from __future__ import annotations

from msgspec.structs import replace

from plumbline.conformance.check import Check
from plumbline.conformance.packaged import TRACES
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.conformance.trace.check import load_checks, load_headers
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Outcome


def runs_later(session: object) -> None:
    """In place of what differs."""


def without_run(checks: list[Check]) -> list[Check]:
    return [replace(check, run=runs_later) for check in checks]


def test_headers_alone_are_equal_to_those_of_whole_traces() -> None:
    for path in TRACES.rglob("*.trace"):
        assert without_run(load_headers(path)) == without_run(load_checks(path))


def test_each_case_of_a_header_runs_its_own_steps() -> None:
    checks = load_headers(TRACES / "core" / "invalid-subjects.trace")
    assert len(checks) > 1
    with NatsBroker.in_thread() as url:
        target = open_target(NatsUrl.parse(url))
        found = [run_check(check, target, Catalogue.load()) for check in checks]
    assert {result.outcome for result in found} == {Outcome.PASSED}
    assert len({result.id for result in found}) == len(checks)
