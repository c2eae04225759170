"""Known failures of real releases: the releases that have them, and the errors of a wrong table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from plumbline.conformance.known_failures import applies_to, describe, read, table_errors
from plumbline.conformance.requirements.catalogue import Catalogue, CatalogueError

TABLE = {
    "target": "nats-server",
    "releases": ["2.9.12 to 2.9.25", "2.10.0 to 2.10.3", "2.12.0"],
    "text": "num_pending is one too small.",
    "link": "https://example.org/issues/1",
}
FILE = """
[group]
id = "TOY"
title = "Toys"

[[requirement]]
id = "TOY-001"
level = "MUST"
profile = "jetstream"
statement = "It works."
source = "a page"
known_failures = {}
"""


@pytest.mark.parametrize(
    ("version", "known"),
    {
        "2.9.11": False,
        "2.9.12": True,
        "2.9.25": True,
        "2.9.26": False,
        "2.10.0": True,
        "2.10.3": True,
        "v2.10.3": True,
        "2.10.4": False,
        "2.10.30": False,
        "2.12.0": True,
        "2.12.0-RC.3": True,
        "2.12.1": False,
        "2.12": False,
        "": False,
    }.items(),
)
def test_it_holds_for_the_releases_from_the_first_to_the_last(version: str, known: bool) -> None:
    (failure,) = read([TABLE])
    assert applies_to(failure, version) is known


def test_known_failure_text_has_releases_behaviour_and_link() -> None:
    (failure,) = read([TABLE])
    assert describe(failure) == (
        "known of nats-server 2.9.12 to 2.9.25, 2.10.0 to 2.10.3, 2.12.0: num_pending is one too small."
        " (https://example.org/issues/1)"
    )


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({**TABLE, "releases": ["2.10 to 2.11"]}, "write '2.10.8 to 2.10.16'"),
        ({**TABLE, "releases": ["2.10.8 to 2.10.2"]}, "the first is later than the last"),
        ({**TABLE, "releases": []}, "'releases' of a known failure must be a list"),
        ({**TABLE, "text": ""}, "'text' of a known failure must be text"),
        ({**TABLE, "since": "2.10"}, "unknown key 'since'"),
        ({key: value for key, value in TABLE.items() if key != "target"}, "lacks 'target'"),
        (3, "must be a list of tables"),
    ],
)
def test_invalid_table_errors_are_reported(table: Any, problem: str) -> None:
    (found,) = table_errors([table])
    assert problem in found


def test_a_link_is_not_needed() -> None:
    table = {key: value for key, value in TABLE.items() if key != "link"}
    assert table_errors([table]) == []
    assert describe(read([table])[0]).endswith("num_pending is one too small.")


def test_catalogue_reads_known_failures_and_reports_errors(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text(FILE.format('[{ target = "t", releases = ["1.0.0"], text = "It broke." }]'))
    (requirement,) = Catalogue.load(tmp_path).requirements
    assert [failure.text for failure in requirement.known_failures] == ["It broke."]
    file.write_text(FILE.format('[{ target = "t", releases = ["1.0"], text = "It broke." }]'))
    with pytest.raises(
        CatalogueError, match=re.escape("toy.toml:6: requirement 1 (TOY-001): releases '1.0'")
    ):
        Catalogue.load(tmp_path)


def test_known_failures_belong_to_checked_requirements() -> None:
    for requirement in Catalogue.load().requirements:
        assert not (requirement.known_failures and requirement.excluded), requirement.id
