"""What turns a run red and what does not, by the real command: waivers, --strict, retries, reports."""

from __future__ import annotations

import datetime
import json
import socket
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Level
from tests.cli.command import Ended, one_sentence, verify, write_trace
from tests.conformance.scripted import INFO, lines, scripted

pytestmark = pytest.mark.slow  # make test-all runs it

MUST, SHOULD, MAY = (
    next(row.id for row in Catalogue.load().select(["CORE-*"]) if row.level is level and not row.excluded)
    for level in (Level.MUST, Level.SHOULD, Level.MAY)
)
NEVER_COMES = "MSG a 1 || x"
FAILURE = "client: operation: expected MSG, got PONG"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=True) as url:
        yield url


def _verify(folder: Path, url: str, *traces: Path, options: tuple[str, ...] = ()) -> tuple[Ended, Any]:
    """Run traces of one's own; how it ended, and the JSON result."""
    report = folder / "result.json"
    report.unlink(missing_ok=True)
    own = (f"--trace={path}" for path in traces)
    ended = verify(folder, url, *own, "--json", report, *options)
    return ended, json.loads(report.read_text()) if report.exists() else None


def _waivers(folder: Path, **fields: str) -> tuple[str, str]:
    """The option that names a file with one waiver."""
    table = "\n".join(f"{name} = {value!r}" for name, value in {"reason": "known", **fields}.items())
    (folder / "waivers.toml").write_text(f"[[waiver]]\n{table}\n")
    return "--waivers", "waivers.toml"


# -- levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requirement", "options", "code"),
    [
        (MUST, (), 1),
        (SHOULD, (), 0),
        (SHOULD, ("--strict",), 1),
        (MAY, ("--strict",), 0),
    ],
)
def test_the_level_of_what_failed_decides(
    tmp_path: Path, broker: str, requirement: str, options: tuple[str, ...], code: int
) -> None:
    fails = write_trace(tmp_path / "fails.trace", requirement, expects=NEVER_COMES)
    ended, result = _verify(tmp_path, broker, fails, options=options)
    assert ended.code == result["summary"]["exit_code"] == code
    (check,) = result["checks"]
    assert (check["id"], check["outcome"], check["message"]) == ("fails", "failed", FAILURE)


# -- nothing is green by accident --------------------------------------------------------------


def test_a_run_that_tested_nothing_is_not_conformant(tmp_path: Path, broker: str) -> None:
    trace = write_trace(tmp_path / "other.trace", MUST, header="variant auth")
    ended, result = _verify(tmp_path, broker, trace)
    assert ended.code == 1
    assert result["summary"]["reasons"] == ["no requirement was tested"]
    assert result["checks"][0]["outcome"] == "unsupported"
    assert "--variant auth=URL" in result["checks"][0]["message"]


def test_unsupported_outcome_has_reason(tmp_path: Path) -> None:
    old = write_trace(tmp_path / "old.trace", MUST, header="until 2.9")
    passes = write_trace(tmp_path / "passes.trace", MUST)
    with NatsBroker.in_thread() as url:
        ended, result = _verify(tmp_path, url, old, passes)
    assert ended.code == 0
    assert {check["id"]: check["outcome"] for check in result["checks"]} == {
        "old": "unsupported",
        "passes": "passed",
    }
    assert "before 2.9; the target's level is" in result["checks"][0]["message"]


def test_a_check_without_an_observation_fails(tmp_path: Path, broker: str) -> None:
    (tmp_path / "test_nothing.py").write_text(
        "from plumbline.conformance.check import verifies\n"
        f"@verifies({MUST!r})\ndef test_it(session):\n    session.connect()\n"
    )
    passes = write_trace(tmp_path / "passes.trace", MUST)
    ended, result = _verify(tmp_path, broker, passes, options=("--", "test_nothing.py"))
    assert ended.code == 1
    failed = next(check for check in result["checks"] if check["id"] == "nothing::it")
    assert (failed["outcome"], failed["message"]) == ("failed", "the check made no observation")


def test_a_trace_of_ones_own_runs_beside_what_is_selected(tmp_path: Path, broker: str) -> None:
    trace = write_trace(tmp_path / "passes.trace", MUST)
    alone, result = _verify(tmp_path, broker, trace)
    assert (alone.code, len(result["checks"])) == (0, 1)
    beside, result = _verify(tmp_path, broker, trace, options=("--select", "CORE-00*"))
    names = {check["id"] for check in result["checks"]}
    assert beside.code == 0
    assert "passes" in names
    assert len(names) > 5


# -- waivers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "outcome", "message"),
    [
        ({"requirement": MUST}, 0, "waived", FAILURE),
        ({"check": "fails"}, 0, "waived", FAILURE),
        ({"check": "fails", "contains": "got PONG"}, 0, "waived", FAILURE),
        ({"check": "fails", "contains": "got +OK"}, 1, "failed", FAILURE),
        ({"check": "fails", "versions": ">=2.9"}, 0, "waived", FAILURE),
        ({"check": "fails", "versions": "<2.9"}, 1, "failed", FAILURE),
    ],
)
def test_a_waiver_covers_the_failure_that_it_describes(
    tmp_path: Path, broker: str, fields: dict[str, str], code: int, outcome: str, message: str
) -> None:
    fails = write_trace(tmp_path / "fails.trace", MUST, expects=NEVER_COMES)
    ended, result = _verify(tmp_path, broker, fails, options=_waivers(tmp_path, **fields))
    (check,) = result["checks"]
    assert (ended.code, check["outcome"], check["message"]) == (code, outcome, message)
    assert check["waiver"] == ("known" if outcome == "waived" else "")


def test_expired_waiver_is_reported_and_ignored(tmp_path: Path, broker: str) -> None:
    fails = write_trace(tmp_path / "fails.trace", MUST, expects=NEVER_COMES)
    today = datetime.datetime.now(datetime.UTC).date()
    for days, code in ((-1, 1), (1, 0)):
        expires = today + datetime.timedelta(days=days)
        (tmp_path / "w.toml").write_text(f'[[waiver]]\ncheck = "fails"\nreason = "r"\nexpires = {expires}\n')
        ended, result = _verify(tmp_path, broker, fails, options=("--waivers", "w.toml"))
        assert ended.code == code
        assert ("its waiver expired" in result["checks"][0]["message"]) is (code == 1)


def test_a_waiver_that_nothing_needs_is_stale_and_red(tmp_path: Path, broker: str) -> None:
    passes = write_trace(tmp_path / "passes.trace", MUST)
    ended, result = _verify(tmp_path, broker, passes, options=_waivers(tmp_path, check="passes"))
    assert ended.code == 1
    assert result["checks"][0]["outcome"] == "stale waiver"
    assert "remove the waiver" in ended.out


def test_a_waiver_of_nothing_is_a_mistake(tmp_path: Path, broker: str) -> None:
    passes = write_trace(tmp_path / "passes.trace", MUST)
    ended, _ = _verify(tmp_path, broker, passes, options=_waivers(tmp_path, check="no-such-check"))
    assert ended.code == 2
    assert "'no-such-check' names no check" in one_sentence(ended.err)


def test_the_waivers_that_a_run_drafts_make_the_next_one_green(tmp_path: Path, broker: str) -> None:
    traces = [
        write_trace(tmp_path / "fails.trace", MUST, expects=NEVER_COMES),
        write_trace(tmp_path / "passes.trace", MUST),
        write_trace(tmp_path / "named.trace", SHOULD, expects="INFO", header="names A"),
    ]
    traces[2].write_text(traces[2].read_text().replace("> PING", "> SUB A 1\n> PUB A || x"))
    first, _ = _verify(tmp_path, broker, *traces, options=("--strict", "--write-waivers", "known.toml"))
    assert first.code == 1
    second, result = _verify(tmp_path, broker, *traces, options=("--strict", "--waivers", "known.toml"))
    assert second.code == 0
    outcomes = {check["id"]: check["outcome"] for check in result["checks"]}
    assert outcomes == {"fails": "waived", "named": "waived", "passes": "passed"}


# -- inconclusive ------------------------------------------------------------------------------


class Forgetful:
    """A server that falls silent when somebody subscribes, which only checks do, so many times."""

    def __init__(self, times: int) -> None:
        self._left = times
        self._lock = threading.Lock()

    def __call__(self, link: socket.socket) -> None:
        link.sendall(INFO)
        is_silent = False
        for line in lines(link):
            is_silent = is_silent or (line.startswith(b"SUB") and self._forgets())
            if line == b"PING\r\n" and not is_silent:
                link.sendall(b"PONG\r\n")

    def _forgets(self) -> bool:
        with self._lock:
            self._left -= 1
            return self._left >= 0


@pytest.mark.parametrize(("times", "code", "outcome"), [(1, 0, "passed"), (9, 1, "inconclusive")])
def test_inconclusive_check_is_retried_once_exclusively(
    tmp_path: Path, times: int, code: int, outcome: str
) -> None:
    trace = write_trace(tmp_path / "sub.trace", MUST)
    trace.write_text(trace.read_text().replace("> PING", "> SUB a 1\n> PING"))
    with scripted(Forgetful(times)) as address:
        ended, result = _verify(tmp_path, f"nats://{address}", trace)
    (check,) = result["checks"]
    assert (ended.code, check["outcome"], check["retried"]) == (code, outcome, True)
    if code:
        assert "remained inconclusive after one retry" in ended.out


class LosesMessages:
    """A server that does not deliver so many messages. ``cluster``: it is one of several nodes."""

    def __init__(self, times: int, *, cluster: bool) -> None:
        self._left = times
        self._info = INFO.replace(b"{", b'{"cluster":"c",') if cluster else INFO

    def __call__(self, link: socket.socket) -> None:
        link.sendall(self._info)
        for line in lines(link):
            if line == b"PING\r\n":
                link.sendall(b"PONG\r\n")
            elif line.startswith(b"PUB"):
                self._left -= 1
                link.sendall(b"" if self._left >= 0 else b"MSG %s 1 1\r\nx\r\n" % line.split()[1])


@pytest.mark.parametrize(
    ("server", "outcome", "retried"),
    [
        (LosesMessages(1, cluster=True), "passed", True),
        (LosesMessages(9, cluster=True), "failed", True),
    ],
)
def test_what_a_cluster_loses_once_is_looked_for_again(
    tmp_path: Path, server: LosesMessages, outcome: str, retried: bool
) -> None:
    trace = write_trace(tmp_path / "lost.trace", MUST)
    text = trace.read_text().replace("> PING", "> SUB a 1\n> PUB a | x\n< MSG a 1 | x\n> PING")
    trace.write_text(text)
    with scripted(server) as address:
        _, result = _verify(tmp_path, f"nats://{address}", trace)
    (check,) = result["checks"]
    assert (check["outcome"], check["retried"]) == (outcome, retried)


# -- reports -----------------------------------------------------------------------------------


def test_all_reports_agree(tmp_path: Path, broker: str) -> None:
    fails = write_trace(tmp_path / "fails.trace", MUST, expects=NEVER_COMES)
    files: tuple[str, ...] = ("--junit", "r.xml", "--html", "r.html", "--markdown", "r.md")
    files += ("--sarif", "r.sarif", "--badge", "r.svg", "--allure", "allure")
    ended, result = _verify(tmp_path, broker, fails, options=files)
    assert ended.code == result["summary"]["exit_code"] == 1
    assert result["schema"] == "plumbline.result/1"
    failures = ET.parse(tmp_path / "r.xml").findall(".//failure")
    assert [failure.get("message") for failure in failures] == [FAILURE]
    assert FAILURE in (tmp_path / "r.md").read_text()
    assert "Not conformant" in (tmp_path / "r.html").read_text()
    assert (
        FAILURE in json.loads((tmp_path / "r.sarif").read_bytes())["runs"][0]["results"][0]["message"]["text"]
    )
    assert "not conformant" in (tmp_path / "r.svg").read_text()
    (allure,) = (json.loads(path.read_bytes()) for path in (tmp_path / "allure").glob("*-result.json"))
    assert (allure["status"], allure["statusDetails"]["message"]) == ("failed", f"MUST: {FAILURE}")
    assert [link["url"].partition("#")[0] for link in allure["links"]] == [(tmp_path / "r.html").as_uri()]
    assert {Path(one["source"]).suffix for one in allure["attachments"]} == {".txt", ".svg", ".sh", ".pcapng"}
    assert all((tmp_path / "allure" / one["source"]).stat().st_size for one in allure["attachments"])
    assert "Expected: MSG " in " ".join(ended.out.split())
