"""JUnit XML: red exactly when the run is, legal whatever a server sent."""

from __future__ import annotations

import io
import re
from collections import Counter
from xml.etree import ElementTree as ET

import junitparser
import lxml.etree
import pytest
from msgspec.structs import replace

from plumbline.reports.junit import render
from plumbline.verdicts import CheckResult, Level, Outcome, RunResult
from tests.reports.samples import (
    CHECKS,
    HOSTILE,
    big_result,
    conformant_result,
    exchange,
    only,
    result_of,
    sample_result,
)
from tests.reports.test_html import everything_hostile

FAILED = "adr-13/no-wait-on-an-empty-consumer"


def parsed(result: RunResult) -> ET.Element:
    """What the standard library reads; lxml, strict, has to read the same."""
    data = render(result)
    strict = lxml.etree.XMLParser(recover=False, resolve_entities=False, huge_tree=False)
    other = lxml.etree.parse(io.BytesIO(data), strict)
    root = ET.fromstring(data)
    assert [element.tag for element in root.iter()] == [element.tag for element in other.getroot().iter()]
    assert [element.attrib for element in root.iter()] == [dict(e.attrib) for e in other.getroot().iter()]
    assert_follows_the_junit_schema(root)
    return root


def assert_follows_the_junit_schema(root: ET.Element) -> None:
    """What the schemas that CI systems use have in common (Ant's, Jenkins', and the tools around them)."""
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert next(child.tag for child in suite) == "properties"
        assert {child.tag for child in suite} <= {"properties", "testcase", "system-out", "system-err"}
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", suite.attrib["timestamp"]
        )
        cases = suite.findall("testcase")
        for element in (root, suite):
            assert int(element.attrib["tests"]) == len(cases)
            for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                assert int(element.attrib[count]) == sum(case.find(tag) is not None for case in cases)
            assert float(element.attrib["time"]) >= 0
        names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
        assert len(set(names)) == len(names)
        for case in cases:
            assert float(case.attrib["time"]) >= 0
            assert "properties" not in [child.tag for child in case][1:]
            ends = [child for child in case if child.tag in {"failure", "error", "skipped"}]
            assert len(ends) <= 1
            assert all(end.attrib["message"] for end in ends)
            assert {child.tag for child in case} <= {
                "properties",
                "failure",
                "error",
                "skipped",
                "system-out",
            }
        for group in suite.iter("properties"):
            assert len(group) > 0
            assert all(set(one.attrib) == {"name", "value"} for one in group)


def case_of(root: ET.Element, name: str) -> ET.Element:
    (found,) = [case for case in root.iter("testcase") if case.attrib["name"] == name]
    return found


def end_of(result: RunResult, name: str) -> ET.Element:
    (end,) = [
        child for child in case_of(parsed(result), name) if child.tag in {"failure", "error", "skipped"}
    ]
    return end


def text_of(element: ET.Element) -> str:
    return element.text or ""


def properties(element: ET.Element) -> list[tuple[str, str]]:
    return [(one.attrib["name"], one.attrib["value"]) for one in element.findall("properties/property")]


def test_every_check_is_a_case_with_a_stable_name() -> None:
    names = {
        (case.attrib["classname"], case.attrib["name"]) for case in parsed(sample_result()).iter("testcase")
    }
    assert len(names) == len(CHECKS)
    assert ("plumbline.adr-13", "no-wait-on-an-empty-consumer") in names
    assert ("plumbline.core_publish", "zero_length_payload_is_legal") in names


def test_a_broken_must_is_a_failure_with_all_its_evidence() -> None:
    failure = end_of(sample_result(), "no-wait-on-an-empty-consumer")
    assert failure.tag == "failure"
    assert failure.attrib == {"type": "failed", "message": "the status is not the one expected"}
    body = text_of(failure)
    assert "Expected: < HMSG $inbox 1 | NATS/1.0 404 No Messages" in body
    assert "Actual:   < HMSG _INBOX.PL7f3a2x1.inbox 1 81 81 | NATS/1.0 408 Request Timeout" in body
    assert re.search(r"^\* +0\.0064 client < HMSG _INBOX", body, re.MULTILINE)
    assert "at conformance/traces/adr-13/no-wait-on-an-empty-consumer.trace:9" in body
    assert f"Run again: plumbline verify nats://127.0.0.1:4222 --select {FAILED}" in body


@pytest.mark.parametrize(
    ("name", "tag", "kind"),
    [
        ("expires", "error", "inconclusive"),
        ("server-ping", "error", "untestable"),
        ("next_acknowledges_and_pulls", "error", "harness error"),
        ("echo-false", "failure", "stale waiver"),
        ("queue-groups", "skipped", "waived"),
        ("min-pending", "skipped", "unsupported"),
        ("idle-heartbeat", "skipped", "failed"),
    ],
)
def test_each_outcome_has_its_element(name: str, tag: str, kind: str) -> None:
    end = end_of(sample_result(), name)
    assert (end.tag, end.attrib["type"]) == (tag, kind)


def test_a_broken_should_is_a_failure_when_strict() -> None:
    assert end_of(sample_result(strict=True), "idle-heartbeat").tag == "failure"


def test_skipped_testcase_has_reason() -> None:
    result = sample_result()
    assert "needs JetStream API level 1" in end_of(result, "min-pending").attrib["message"]
    assert "known since 2.10.1" in end_of(result, "queue-groups").attrib["message"]
    assert "SHOULD only, the run stays green" in end_of(result, "idle-heartbeat").attrib["message"]


def test_a_passed_check_has_no_end() -> None:
    case = case_of(parsed(sample_result()), "info-comes-first")
    assert {child.tag for child in case} == {"properties"}


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("outcome", Outcome)
def test_the_file_is_red_exactly_when_the_check_is(outcome: Outcome, level: Level) -> None:
    check = CheckResult("a/b", outcome, ("CORE-001",), level, message="why")
    result = result_of((), (check,))
    root = parsed(result)
    red = int(root.attrib["failures"]) + int(root.attrib["errors"])
    assert red == result.checks[0].red


def test_a_red_run_without_a_red_check_is_red_here_too() -> None:
    green = conformant_result()
    lost = replace(
        green,
        summary=replace(
            green.summary,
            exit_code=3,
            verdict="unknown: the target was lost",
            reasons=("connection refused",),
        ),
    )
    root = parsed(lost)
    assert root.attrib["errors"] == "1"
    error = case_of(root, "run").find("error")
    assert error is not None
    assert "connection refused" in text_of(error)
    assert parsed(green).attrib["errors"] == "0"


def test_a_run_of_nothing_is_not_green() -> None:
    nothing = result_of((), ())
    root = parsed(replace(nothing, summary=replace(nothing.summary, exit_code=1, verdict="not conformant")))
    assert root.attrib["errors"] == "1"


def test_properties_show_target_suite_and_requirements() -> None:
    root = parsed(sample_result())
    of_run = dict(properties(root[0]))
    assert of_run["target.version"] == "2.10.22"
    assert of_run["target.url"] == "nats://127.0.0.1:4222"
    assert of_run["suite.requirement_set"] == "2026.11"
    assert of_run["requirements.tested"] == "8"
    assert ("requirement", "JS-PULL-021") in properties(case_of(root, "no-wait-on-an-empty-consumer"))


def test_file_and_line_are_there_for_the_ci_page() -> None:
    case = case_of(parsed(sample_result()), "subjects_are_delivered_as_published")
    assert (case.attrib["file"], case.attrib["line"]) == ("conformance/checks/test_core_delivery.py", "44")


def test_hostile_text_is_legal_xml_and_stays_readable() -> None:
    base = only(FAILED)
    (check,) = base.checks
    check = replace(
        check,
        id=f"h/{HOSTILE}",
        title=HOSTILE,
        message=HOSTILE,
        expected=HOSTILE,
        actual=HOSTILE,
        where=f"{HOSTILE}:3",
        requirements=(HOSTILE,),
        source=HOSTILE,
        waiver=HOSTILE,
    )
    target = replace(base.target, server_name=HOSTILE, version=HOSTILE, url=HOSTILE)
    root = parsed(replace(base, checks=(check,), target=target))
    (case,) = root.iter("testcase")
    body = text_of(case.findall("failure")[0])
    assert "<script>alert(1)</script>" in body
    assert "\\u202egpj.exe\\x1b[31m\\x00\\xff\\xfe\\x00" in body


def test_long_values_are_cut_and_marked() -> None:
    result = only(FAILED)
    (check,) = result.checks
    content = "\u202e<m>" * 250_000
    huge = replace(
        check,
        title=content,
        message=content,
        expected=content,
        actual=content,
        known=(content,),
        requirements=(content,),
        wire=exchange(*[f"< {content}"] * 100, connection=content, offending=50),
    )
    target = replace(result.target, server_name=content, version=content)
    data = render(replace(result, checks=(huge,), target=target))
    assert len(data) < 1_000_000
    assert b"[1,000,000 characters in all]" in data


@pytest.mark.parametrize("result", [sample_result(), conformant_result(), everything_hostile()])
def test_a_parser_that_is_not_ours_reads_what_we_wrote(result: RunResult) -> None:
    """One of two; the other is Allure's, in test_allure."""
    read = junitparser.JUnitXml.fromstring(render(result))
    counts = (read.tests, read.failures, read.errors, read.skipped)
    read.update_statistics()  # type: ignore[no-untyped-call] # which counts the cases itself
    assert counts == (read.tests, read.failures, read.errors, read.skipped)
    cases = [case for suite in read for case in suite]
    assert len(cases) == len(result.checks)
    ended = Counter(type(end).__name__ for case in cases for end in case.result)
    assert ended == Counter(Failure=counts[1], Error=counts[2], Skipped=counts[3])
    assert [case.is_passed for case in cases] == [check.outcome is Outcome.PASSED for check in result.checks]


@pytest.mark.slow
def test_a_run_of_ten_thousand_checks_is_read() -> None:
    assert parsed(big_result(10_000)).attrib["failures"] == "500"
