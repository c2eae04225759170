"""SARIF: what failed, as findings that other programs show; nothing else becomes one."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest
from msgspec.structs import replace

from plumbline.reports.sarif import render
from plumbline.verdicts import RunResult
from tests.reports.samples import HOSTILE, conformant_result, exchange, only, sample_result
from tests.reports.test_html import everything_hostile

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
# What SARIF 2.1.0 demands of the objects that are written here (sections 3.13 to 3.52), and nothing beyond.
SCHEMA = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {"$ref": "#/$defs/run"}},
    },
    "additionalProperties": False,
    "$defs": {
        "level": {"enum": ["none", "note", "warning", "error"]},
        "run": {
            "type": "object",
            "required": ["tool", "results"],
            "additionalProperties": False,
            "properties": {
                "tool": {
                    "required": ["driver"],
                    "properties": {
                        "driver": {
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string"},
                                "version": {"type": "string"},
                                "rules": {
                                    "type": "array",
                                    "uniqueItems": True,
                                    "items": {"$ref": "#/$defs/rule"},
                                },
                                "properties": {"type": "object"},
                            },
                            "additionalProperties": False,
                        }
                    },
                },
                "invocations": {
                    "type": "array",
                    "items": {
                        "required": ["executionSuccessful"],
                        "additionalProperties": False,
                        "properties": {
                            "executionSuccessful": {"type": "boolean"},
                            "exitCode": {"type": "integer"},
                            "exitCodeDescription": {"type": "string"},
                            "toolExecutionNotifications": {
                                "type": "array",
                                "items": {
                                    "required": ["message"],
                                    "properties": {"message": TEXT, "level": {"$ref": "#/$defs/level"}},
                                    "additionalProperties": False,
                                },
                            },
                        },
                    },
                },
                "results": {"type": "array", "items": {"$ref": "#/$defs/result"}},
                "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                "properties": {"type": "object"},
            },
        },
        "rule": {
            "required": ["id"],
            "additionalProperties": False,
            "properties": {
                "id": {"type": "string"},
                "shortDescription": TEXT,
                "help": TEXT,
                "helpUri": {"type": "string"},
                "defaultConfiguration": {"properties": {"level": {"$ref": "#/$defs/level"}}},
                "properties": {"type": "object"},
            },
        },
        "result": {
            "required": ["message"],
            "additionalProperties": False,
            "properties": {
                "ruleId": {"type": "string"},
                "ruleIndex": {"type": "integer", "minimum": 0},
                "level": {"$ref": "#/$defs/level"},
                "message": TEXT,
                "locations": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "properties": {
                            "physicalLocation": {
                                "required": ["artifactLocation"],
                                "properties": {
                                    "artifactLocation": {"required": ["uri"]},
                                    "region": {
                                        "required": ["startLine"],
                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                    },
                                },
                            },
                            "logicalLocations": {"type": "array"},
                        },
                        "additionalProperties": False,
                    },
                },
                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                "properties": {"type": "object"},
                "suppressions": {
                    "items": {
                        "required": ["kind"],
                        "properties": {
                            "kind": {"enum": ["inSource", "external"]},
                            "status": {"enum": ["accepted", "underReview", "rejected"]},
                            "justification": {"type": "string"},
                        },
                        "additionalProperties": False,
                    }
                },
            },
        },
    },
}


def run_of(result: RunResult, url: str = "") -> Any:
    document = json.loads(render(result, url))
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    (run,) = document["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    for found in run["results"]:
        assert rules[found["ruleIndex"]] == found["ruleId"]
    return run


def test_failed_check_is_sarif_result_with_level() -> None:
    found = {one["ruleId"]: one["level"] for one in run_of(sample_result())["results"]}
    assert found == {
        "JS-PULL-021": "error",
        "CORE-051": "error",
        "JS-PULL-040": "warning",
        "CORE-044": "error",
    }


def test_sarif_result_has_location_expected_actual_and_command() -> None:
    (found,) = run_of(only("adr-13/no-wait-on-an-empty-consumer"))["results"]
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "conformance/traces/adr-13/no-wait-on-an-empty-consumer.trace"
    assert place["region"] == {"startLine": 9}
    words = found["message"]["text"]
    assert "Expected: < HMSG $inbox 1 | NATS/1.0 404 No Messages" in words
    assert "\n* 0.0064 client < HMSG _INBOX" in words
    assert words.endswith("--select adr-13/no-wait-on-an-empty-consumer")


def test_a_waived_failure_is_suppressed_for_its_reason() -> None:
    (found,) = run_of(only("core/queue-groups"))["results"]
    (suppression,) = found["suppressions"]
    assert suppression["justification"].startswith("known since 2.10.1")


def test_undecided_check_is_sarif_notification() -> None:
    run = run_of(sample_result())
    (invocation,) = run["invocations"]
    notes = [note["message"]["text"] for note in invocation["toolExecutionNotifications"]]
    assert any(words.startswith("adr-13/expires: inconclusive: 408 came 1.12 s") for words in notes)
    assert not invocation["executionSuccessful"]
    assert invocation["exitCode"] == 4


def test_a_finding_is_the_same_one_in_the_next_run() -> None:
    def prints(result: RunResult) -> list[str]:
        return [one["partialFingerprints"]["check/v1"] for one in run_of(result)["results"]]

    first = prints(sample_result())
    again = sample_result()
    moved = tuple(replace(check, where="elsewhere:1", message="other words") for check in again.checks)
    assert prints(replace(again, checks=moved)) == first
    assert len(set(first)) == len(first)


def test_a_conformant_run_has_no_findings() -> None:
    assert run_of(conformant_result())["results"] == []


def test_rules_lead_to_where_requirements_are_published() -> None:
    rules = run_of(sample_result(), "https://example.test/{group}.html#{id}")["tool"]["driver"]["rules"]
    assert rules[0]["helpUri"] == "https://example.test/CORE.html#CORE-001"
    assert "helpUri" not in run_of(sample_result())["tool"]["driver"]["rules"][0]


@pytest.mark.parametrize("hostile", [HOSTILE, "x" * 1_000_000])
def test_hostile_text_is_plain_and_short(hostile: str) -> None:
    base = everything_hostile()
    checks = tuple(
        replace(check, message=hostile, actual=hostile, wire=exchange(f"< {hostile}", offending=0))
        for check in base.checks
    )
    data = render(replace(base, checks=checks), "https://example.test/{id}").decode()
    assert {char for char in data if not char.isprintable()} == {"\n"}
    assert len(data) < 200_000
    for rule in run_of(base, "https://example.test/{id}")["tool"]["driver"]["rules"]:
        assert urlsplit(rule["helpUri"]).hostname == "example.test"
        assert rule["helpUri"].isascii()
