"""The releases on both edges of every known failure fail just what the requirements say is known of them.

A release that is not on this machine is skipped; ``PLUMBLINE_GET_SERVERS=1`` gets all of them, half a minute
each where Go must build them, and runs the whole suite on each. CI gets one where it has Go, and then it must
not be missing; there, only what has known failures is run.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from plumbline.conformance.requirements.catalogue import protocol_level
from plumbline.servers.getting import find_installed, obtain_program
from plumbline.servers.targets import TargetError, target
from tests.cli.command import verify
from tests.conformance.known import WITH_FAILURES, known_of
from tests.conftest import servers_required

# The last release without a failure, the first and the last with it, the first without it again.
# 2.9.13 and 2.10.13 are missing: the module proxy did not have them.
RELEASES = [
    *("2.9.10", "2.9.14", "2.9.15", "2.9.25"),
    *("2.10.0", "2.10.3", "2.10.4", "2.10.7", "2.10.8", "2.10.9", "2.10.10", "2.10.11", "2.10.12", "2.10.14"),
    *("2.10.15", "2.10.16", "2.10.17", "2.10.21", "2.10.22", "2.10.23"),
    *("2.10.25", "2.10.26", "2.10.27", "2.10.28", "2.10.29"),
    *("2.11.0", "2.11.1", "2.11.2", "2.11.3", "2.11.4", "2.11.5", "2.11.10", "2.11.11", "2.11.17"),
    *("2.12.0", "2.12.1", "2.12.2", "2.12.3", "2.12.4", "2.12.5"),
    *("2.12.9", "2.12.10", "2.12.11", "2.12.12", "2.12.15"),
    *("2.14.0", "2.14.1", "2.14.2", "2.14.3", "2.15.3"),
]
IN_CI = "2.10.14"  # .ci/run gets it where there is Go


def binary(release: str) -> Path:
    """The server; the test is skipped where there is none."""
    wanted = target(f"nats-server@{release}")
    if found := find_installed(wanted):
        return found
    if not os.environ.get("PLUMBLINE_GET_SERVERS"):
        if release == IN_CI and servers_required() and shutil.which("go"):
            pytest.fail(f"missing: python -m plumbline.servers.getting {wanted.name}", pytrace=False)
        pytest.skip("a release with known failures is not on this machine: PLUMBLINE_GET_SERVERS=1 gets it")
    try:
        return obtain_program(wanted, print)
    except TargetError as problem:
        pytest.skip(str(problem))


@pytest.mark.external
@pytest.mark.timeout(900)
@pytest.mark.parametrize("release", RELEASES)
def test_release_has_exactly_its_known_failures(release: str, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    some = [] if os.environ.get("PLUMBLINE_GET_SERVERS") else WITH_FAILURES
    selected = [f"--select={row.id}" for row in some]
    ended = verify(tmp_path, "--server", binary(release), *selected, "--json", report, "-n", "0")
    assert ended.code in (0, 1), ended.err
    result = json.loads(report.read_text())
    assert result["target"]["version"] == release
    level = protocol_level(release)
    known = known_of(release)
    verdicts = {row["id"]: row["verdict"] for row in result["requirements"]}
    assert {name for name, verdict in verdicts.items() if verdict == "failed"} == known
    applicable = {row.id for row in WITH_FAILURES if row.applies_at(level)}
    assert {name for name, verdict in verdicts.items() if verdict == "passed"} >= applicable - known
    reported = {line.split()[0] for check in result["checks"] for line in check["known"]}
    assert reported == known


def test_every_edge_of_a_known_failure_is_run() -> None:
    edges = {
        edge
        for row in WITH_FAILURES
        for failure in row.known_failures
        for span in failure.releases
        for edge in span.split(" to ")
    }
    assert edges <= set(RELEASES)
