"""Allure results: what a check exchanged, step by step, and that Allure's own command line takes them all."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lxml.etree
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from plumbline.captures.files import read
from plumbline.ci import allure as command
from plumbline.cli.main import app
from plumbline.cli.reporting import capture
from plumbline.reports import ReportError, open_reports
from plumbline.reports.junit import render as junit
from plumbline.reports.result_json import encode
from plumbline.verdicts import Outcome, RunResult
from tests.conftest import servers_required
from tests.patience import HANGS_AFTER_S
from tests.reports.samples import HOSTILE, conformant_result, events_of, exchange, only, sample_result
from tests.reports.test_html import everything_hostile

NO_WAIT = "adr-13/no-wait-on-an-empty-consumer"
OF = ("of the run", "of the file")
WHERE = "https://example.test/requirements.html#{id}"


def written(folder: Path, result: RunResult, requirement_url: str = WHERE) -> dict[str, Any]:
    """The results in ``folder`` by the full name of their check."""
    (consumer,) = open_reports({"allure": folder}, requirement_url=requirement_url, capture=capture)
    for event in events_of(result):
        consumer.on_event(event)
    found = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*-result.json"))]
    return {one["fullName"]: one for one in found}


def attached(folder: Path, result: dict[str, Any]) -> dict[str, Path]:
    """What is attached, by its title."""
    return {one["name"]: folder / one["source"] for one in result["attachments"]}


def labels(result: dict[str, Any], name: str) -> list[str]:
    return [label["value"] for label in result["labels"] if label["name"] == name]


def test_every_check_has_a_result_with_its_status(tmp_path: Path) -> None:
    results = written(tmp_path, sample_result())
    assert {name: one["status"] for name, one in results.items()} == {
        "core/info-comes-first": "passed",
        "core_publish::zero_length_payload_is_legal": "passed",
        "deep-dive/fresh-consumer": "passed",
        NO_WAIT: "failed",
        "core_delivery::subjects_are_delivered_as_published": "failed",
        "adr-13/idle-heartbeat": "failed",
        "core/queue-groups": "skipped",
        "adr-13/min-pending": "skipped",
        "core/echo-false": "broken",
        "adr-13/expires": "broken",
        "core/server-ping": "broken",
        "js_ack::next_acknowledges_and_pulls": "broken",
    }


def test_allure_labels_for_level_and_requirements(tmp_path: Path) -> None:
    results = written(tmp_path, sample_result())
    one = results[NO_WAIT]
    assert labels(one, "severity") == ["critical"]
    assert labels(one, "feature") == ["JS-PULL"]
    assert labels(one, "story") == ["JS-PULL-021"]
    assert one["links"] == [
        {"type": "tms", "name": "JS-PULL-021", "url": "https://example.test/requirements.html#JS-PULL-021"}
    ]
    assert "answered at once with 404 No Messages. <i>ADR-13, &#34;No Wait" in one["descriptionHtml"]
    assert labels(results["adr-13/idle-heartbeat"], "severity") == ["normal"]
    assert labels(results["adr-13/min-pending"], "severity") == ["minor"]
    (link,) = [found for found in results["core/queue-groups"]["links"] if found["type"] == "issue"]
    assert link["url"] == "https://example.test/issues/7"


def test_operations_are_steps_at_their_times_and_the_offending_one_failed(tmp_path: Path) -> None:
    one = written(tmp_path, sample_result())[NO_WAIT]
    steps = [(step["name"][:22], step["status"]) for step in one["steps"]]
    assert steps[0] == ("stage > PUB $JS.API.ST", "passed")
    assert steps[4] == ("client < HMSG _INBOX.P", "failed")
    assert len(steps) == 6
    assert one["stop"] - one["start"] == 81
    assert one["start"] <= one["steps"][0]["start"] <= one["steps"][-1]["stop"] <= one["stop"]


def test_checks_of_a_run_that_is_over_have_times_within_that_run(tmp_path: Path) -> None:
    result = sample_result()
    began = datetime.fromisoformat(result.summary.started).timestamp()
    results = written(tmp_path, result).values()
    assert min(one["start"] for one in results) == round(began * 1000)
    assert max(one["stop"] for one in results) <= round((began + result.summary.duration_s) * 1000)


def test_checks_of_a_run_that_goes_on_have_the_times_at_which_they_ended(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    result = conformant_result()
    live = replace(result, summary=replace(result.summary, started=now.isoformat(timespec="seconds")))
    before = time.time()
    stops = [one["stop"] for one in written(tmp_path, live).values()]
    assert all(before * 1000 - 1 <= stop <= time.time() * 1000 + 1 for stop in stops)


def test_a_failure_has_transcript_diagram_capture_and_what_to_type(tmp_path: Path) -> None:
    one = written(tmp_path, sample_result())[NO_WAIT]
    files = attached(tmp_path, one)
    assert set(files) == {
        "What crossed the wire",
        "Sequence diagram",
        "The same by hand",
        "Capture (open with Wireshark)",
    }
    transcript = files["What crossed the wire"].read_text()
    assert re.search(r"^\* +0\.0064  client < HMSG _INBOX", transcript, re.MULTILINE)
    assert lxml.etree.parse(files["Sequence diagram"]).getroot().tag.endswith("svg")
    assert files["The same by hand"].read_text().startswith("bash <<'END'")
    assert one["statusDetails"]["message"] == "MUST: the status is not the one expected"
    assert f"--select {NO_WAIT}" in one["statusDetails"]["trace"]


def test_the_capture_holds_the_bytes_that_were_exchanged(tmp_path: Path) -> None:
    base = only(NO_WAIT)
    wire = (
        *exchange('> CONNECT {"verbose":false}', "> SUB a 1", "> PUB a 2\r\nhi", connection="one"),
        *exchange("< INFO {}", "> PING", connection="two", start=0.5),
    )
    check = replace(base.checks[0], wire=wire)
    one = written(tmp_path, replace(base, checks=(check,)))[NO_WAIT]
    read_back = [
        (row.connection.number, row.sender, row.operation.raw)
        for row in read([attached(tmp_path, one)["Capture (open with Wireshark)"]])
        if row.operation is not None
    ]
    assert read_back == [
        (1, "client", b'CONNECT {"verbose":false}\r\n'),
        (1, "client", b"SUB a 1\r\n"),
        (1, "client", b"PUB a 2\r\nhi\r\n"),
        (2, "server", b"INFO {}\r\n"),
        (2, "client", b"PING\r\n"),
    ]


def test_capture_marks_truncated_operations(tmp_path: Path) -> None:
    base = only(NO_WAIT)
    wire = (*exchange(f"< MSG a 1 9000\r\n{'x' * 9000}", "< PONG"), *exchange("> PING", "! gone", start=1))
    check = replace(base.checks[0], wire=wire)
    one = written(tmp_path, replace(base, checks=(check,)))[NO_WAIT]
    rows = list(read([attached(tmp_path, one)["Capture (open with Wireshark)"]]))
    remarks = [str(row) for row in rows]
    assert any("only the first 4096 bytes are known" in words for words in remarks), remarks
    assert any("plumbline: gone" in words for words in remarks), remarks
    assert {row.operation.raw for row in rows if row.operation is not None} == {b"PING\r\n", b"PONG\r\n"}


def test_rerun_replaces_results_of_same_target_only(tmp_path: Path) -> None:
    first = written(tmp_path, only(NO_WAIT))
    number = len(list(tmp_path.iterdir()))
    passed = only(NO_WAIT)
    good = replace(passed.checks[0], outcome=Outcome.PASSED)
    again = written(tmp_path, replace(passed, checks=(good,)))
    assert again[NO_WAIT]["historyId"] == first[NO_WAIT]["historyId"]
    assert again[NO_WAIT]["status"] == "passed"
    assert len(list(tmp_path.iterdir())) == number - 3, "attachments of the failure were left behind"
    other = replace(passed, target=replace(passed.target, url="nats://elsewhere:4222"))
    written(tmp_path, other)
    assert len(list(tmp_path.glob("*-result.json"))) == 2


def test_default_requirement_links_point_to_report_page(tmp_path: Path) -> None:
    page = tmp_path / "out" / "r.html"
    consumers = open_reports({"allure": tmp_path / "allure", "html": page})
    for consumer in consumers:
        for event in events_of(only(NO_WAIT)):
            consumer.on_event(event)
    (path,) = (tmp_path / "allure").glob("*-result.json")
    (link,) = json.loads(path.read_bytes())["links"]
    assert link["url"] == f"{page.as_uri()}#JS-PULL-021"


def test_results_made_of_a_file_are_those_of_the_run_that_wrote_it(tmp_path: Path) -> None:
    result = sample_result()
    written(tmp_path / OF[0], result)
    file = tmp_path / "result.json"
    file.write_bytes(encode(result))
    asked = ["report", str(file), "--allure", str(tmp_path / OF[1]), "--requirement-url", WHERE]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    folders = ({path.name: path.read_bytes() for path in (tmp_path / of).iterdir()} for of in OF)
    of_the_run, of_the_file = folders
    assert set(of_the_file) == set(of_the_run)
    assert any(name.endswith(".pcapng") for name in of_the_file)
    assert of_the_file == of_the_run


def test_a_file_in_the_way_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="is a file; name a folder"):
        open_reports({"allure": tmp_path / "file"})


def hostile(content: str) -> RunResult:
    base = everything_hostile()
    wire = exchange(f"> PUB {content} 1", f"< {content}", f"! {content}", connection=content, offending=1)
    checks = tuple(
        replace(
            check,
            id=f"{number}/{content}",
            title=content,
            message=content,
            actual=content,
            waiver=content,
            known=(content,),
            wire=wire,
        )
        for number, check in enumerate(base.checks)
    )
    return replace(
        base,
        checks=checks,
        target=replace(base.target, server_name=content, version=content, url="nats://h:1"),
    )


@pytest.mark.parametrize(
    "content",
    [
        HOSTILE,
        "\u202e<img src=x onerror=alert(1)>javascript:alert(1)",
        "https://e.test/\u202e\x00'\"><x>",
        "x" * 1_000_000,
    ],
)
def test_hostile_text_is_escaped_and_short(tmp_path: Path, content: str) -> None:
    results = written(tmp_path, hostile(content))
    for one in results.values():
        assert not re.findall(r"<(?!/?(?:p|b|i)>)", one["descriptionHtml"])
        assert all(link["url"].isprintable() and link["url"].isascii() for link in one["links"])
        assert len(json.dumps(one)) < 100_000
    for path in tmp_path.iterdir():
        if path.suffix != ".pcapng":
            assert {char for char in path.read_text("utf-8") if not char.isprintable()} <= {"\n"}
        assert path.stat().st_size < 1_200_000
    environment = (tmp_path / "environment.properties").read_bytes()
    assert environment.isascii()
    assert len(environment.splitlines()) == len(re.findall(rb"^\w+ = ", environment, re.MULTILINE))


def require() -> Path:
    """Allure's command line; without it the test is skipped, or fails where everything has to be there."""
    found = command.program()
    if found is None:
        if servers_required():
            pytest.fail(f"no allure command: {command.COMMAND}", pytrace=False)
        pytest.skip(f"no allure command on this machine: {command.COMMAND}")
    return found


def generated(results: Path, report: Path) -> Any:
    """The summary of the report that Allure makes, without a word of warning."""
    done = subprocess.run(
        [require(), "generate", results, "-o", report],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert output.strip() == f"Report successfully generated to {report}"
    return json.loads((report / "widgets" / "summary.json").read_bytes())


@pytest.mark.slow
def test_allure_makes_its_report_of_our_results_without_a_warning(tmp_path: Path) -> None:
    results, report = tmp_path / "results", tmp_path / "report"
    written(results, sample_result())
    mine = {"nats://127.0.0.1:4222": sample_result(), "nats://h:1": hostile(HOSTILE)}
    written(results, mine["nats://h:1"])
    counted = Counter(
        {
            Outcome.PASSED: "passed",
            Outcome.FAILED: "failed",
            Outcome.WAIVED: "skipped",
            Outcome.UNSUPPORTED: "skipped",
        }.get(check.outcome, "broken")
        for run in mine.values()
        for check in run.checks
    )
    statistic = generated(results, report)["statistic"]
    assert statistic == {**counted, "unknown": 0, "total": counted.total()}
    severities = json.loads((report / "widgets" / "severity.json").read_bytes())
    assert {one["severity"] for one in severities} == {"critical", "normal", "minor"}
    categories = json.loads((report / "data" / "categories.json").read_bytes())
    assert {one["name"] for one in categories["children"]} == {
        *("A MUST is broken", "A SHOULD or MAY is broken"),
        *("No verdict", "Waived", "Not supported by the server"),
    }
    environment = json.loads((report / "widgets" / "environment.json").read_bytes())
    assert {"Verdict", "Target", "Plumbline"} <= {one["name"] for one in environment}
    missing = [path for path in (report / "data" / "attachments").iterdir() if not path.stat().st_size]
    assert missing == []


@pytest.mark.slow
def test_allure_reads_our_junit_as_it_was_written(tmp_path: Path) -> None:
    """The second of two parsers that are not ours; the first is in test_junit."""
    results = tmp_path / "results"
    results.mkdir()
    (results / "plumbline.xml").write_bytes(junit(sample_result()))
    statistic = generated(results, tmp_path / "report")["statistic"]
    assert statistic == {"passed": 3, "failed": 3, "broken": 3, "skipped": 3, "unknown": 0, "total": 12}


def test_a_conformant_run_is_all_green(tmp_path: Path) -> None:
    assert {one["status"] for one in written(tmp_path, conformant_result()).values()} == {"passed"}
