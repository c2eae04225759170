"""``plumbline list``, ``explain`` and ``variants`` show what the files say, and refuse what they lack."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from plumbline.cli.main import app
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.requirements.references import check_references
from plumbline.conformance.targets.variants import variants

CATALOGUE = Catalogue.load()


def plumbline(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_list_prints_one_tab_separated_line_for_each_requirement() -> None:
    lines = plumbline("list").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == list(CATALOGUE.by_id)
    assert {len(line.split("\t")) for line in lines} == {5}


def test_list_filters_by_pattern_level_group_and_profile() -> None:
    lines = plumbline("list", "*-0*", "--level", "must", "--group", "js-pull", "--profile", "jetstream")
    shown = [line.split("\t") for line in lines.stdout.splitlines()]
    assert shown
    expected = [
        row.id
        for row in CATALOGUE.select(["JS-PULL-*"])
        if row.level == "MUST" and row.profile == "jetstream"
    ]
    assert [columns[0] for columns in shown] == expected


def test_list_names_checks_and_exclusions() -> None:
    lines = plumbline("list", "CORE-001", "CORE-109", "--checks").stdout.splitlines()
    first, excluded = (line.split("\t") for line in lines)
    assert int(first[3]) == len(first[5].split())
    assert excluded[3] == "excluded"


def test_list_as_json_has_every_field() -> None:
    (row,) = json.loads(plumbline("list", "JS-PULL-013", "--format", "json").stdout)
    assert row["since"] == "2.11.5"
    assert row["level"] == "SHOULD"
    assert row["statement"] == CATALOGUE.by_id["JS-PULL-013"].statement
    assert all(check["where"].startswith("conformance/") for check in row["checks"])


def test_explain_shows_all_there_is() -> None:
    text = plumbline("explain", "JS-PULL-020").stdout
    row = CATALOGUE.by_id["JS-PULL-020"]
    flat = " ".join(text.split())
    for part in ("JS-PULL-020 SHOULD", row.statement, row.source, row.documented, row.observed):
        assert part in flat


def test_explain_shows_the_trace_that_is_run() -> None:
    lines = plumbline("explain", "JS-API-091").stdout.splitlines()
    (check,) = check_references().verifying("JS-API-091")
    assert f"the exchange that is run: {check.where}" in lines
    assert "    > PUB $JS.API.STREAM.MSG.GET.ORDERS $reply {}" in lines
    assert not any(line.split()[:1] in (["title"], ["verifies"]) for line in lines)


def test_explain_shows_a_sample_where_only_functions_verify() -> None:
    lines = plumbline("explain", "CORE-001").stdout.splitlines()
    sample = CATALOGUE.by_id["CORE-001"].sample
    assert sample
    assert lines[lines.index("a sample exchange") + 1 :] == [f"    {line}" for line in sample.splitlines()]


def test_list_as_json_has_the_exchange_as_the_sample() -> None:
    rows = json.loads(plumbline("list", "JS-API-091", "CORE-001", "--format", "json").stdout)
    samples = {row["id"]: row["sample"] for row in rows}
    assert '{"error":{"code":400,"err_code":10003}}    within 1s' in samples["JS-API-091"]
    assert samples["CORE-001"] == CATALOGUE.by_id["CORE-001"].sample


def test_explain_shows_why_a_requirement_is_excluded() -> None:
    text = plumbline("explain", "JS-PULL-061").stdout
    assert "excluded    Needs a cluster" in text
    assert "checks" not in text


def test_explain_takes_patterns() -> None:
    text = plumbline("explain", "js-seq-*").stdout
    assert all(row.id in text for row in CATALOGUE.select(["JS-SEQ-*"]))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["explain", "JS-PULX-021"], "did you mean JS-PULL-021"),
        (["list", "JS-PUL-*"], "did you mean JS-PULL-*"),
        (["list", "--group", "JS"], "--group 'JS' is not known; known are: AMQP-ACK"),
        (["list", "--profile", "no-such"], "--profile 'no-such' is not known; known are: nats-core"),
        (["list", "--group", "CORE", "--profile", "jetstream", "--level", "may"], "no requirement matches"),
        (["variants", "outh"], "'outh' is not known; known are: main, auth"),
    ],
)
def test_unknown_option_value_error_lists_valid_values(arguments: list[str], error: str) -> None:
    result = plumbline(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert error in result.stderr


def test_a_variant_is_printed_as_a_configuration_file() -> None:
    assert json.loads(plumbline("variants", "permissions").stdout) == variants()["permissions"].config


def test_variants_are_listed_with_their_credentials() -> None:
    text = plumbline("variants").stdout
    assert all(name in text.splitlines() for name in ("main", *variants()))
    assert "wrong-password: user plumb, pass lime" in text


def test_help_has_examples() -> None:
    for command in ("list", "explain", "variants"):
        assert f"plumbline {command}" in plumbline(command, "--help").stdout
