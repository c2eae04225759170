"""The packaged requirements are well made, and the loader reports all errors of a file together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plumbline.conformance.requirements.catalogue import (
    PROFILES,
    REQUIREMENT_SET,
    Catalogue,
    CatalogueError,
    Requirement,
    UnknownRequirementError,
    protocol_level,
    within_levels,
)
from plumbline.conformance.requirements.references import check_references
from plumbline.verdicts import Level

CATALOGUE = Catalogue.load()

GROUP = '[group]\nid = "G"\ntitle = "A group"\n'
ROW = """
[[requirement]]
id = "G-001"
level = "MUST"
profile = "nats-core"
statement = "A server answers."
source = "a document"
"""


def written(folder: Path, text: str, name: str = "g.toml") -> Path:
    (folder / name).write_text(text)
    return folder


def load_problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CatalogueError) as raised:
        Catalogue.load(folder)
    return raised.value.problems


# -- what is packaged ------------------------------------------------------------------------------


def test_requirement_ids_are_sorted_in_each_group() -> None:
    # Gaps are allowed: an id is never given to another requirement.
    for group in CATALOGUE.groups:
        numbers = [int(row.id.rpartition("-")[2]) for row in group.requirements]
        assert numbers == sorted(set(numbers)), group.id


def test_no_requirement_of_the_first_groups_is_missing() -> None:
    sizes = {group.id: len(group.requirements) for group in CATALOGUE.groups}
    assert (
        sizes.items()
        >= {"CORE": 150, "JS-ACK": 45, "JS-PUB": 108, "JS-PULL": 73, "JS-RET": 35, "JS-SEQ": 23}.items()
    )


@pytest.mark.parametrize("row", CATALOGUE.requirements, ids=lambda row: row.id)
def test_a_statement_is_one_sentence(row: Requirement) -> None:
    # Methods and fields keep the case of the protocol.
    assert re.match(r"[A-Z0-9]|max_|num_|delivered |[a-z]+\.[a-z]", row.statement)
    assert not re.search(r"[.?!] +[A-Z]", row.statement.replace("pull.bar. ", "")), row.statement
    assert "\n" not in row.statement


def test_a_source_names_a_document_and_its_section_or_observed_servers() -> None:
    strange = [
        row.id
        for row in CATALOGUE.requirements
        if '"' not in row.source
        and not row.source.startswith(
            ("observed, nats-server", "observed, RabbitMQ", "AMQP 0-9-1 XML, ", "AMQP 0-9-1, section ")
        )
    ]
    assert strange == []


def test_client_requirements_are_not_in_server_catalogue() -> None:
    for row in CATALOGUE.requirements:
        if row.profile == "client":
            assert "client gate" in row.excluded or "plumbline gate" in row.excluded, row.id


def test_requirements_show_an_exchange_as_a_trace_or_as_a_sample() -> None:
    written = check_references()
    shown = {row.id for row in CATALOGUE.requirements if row.sample or written.played(row.id)}
    assert [row.id for row in CATALOGUE.select(["JS-*"]) if row.id not in shown] == []
    amqp = CATALOGUE.select(["AMQP-*"])
    assert [row.id for row in amqp if row.id not in shown and not row.excluded] == []


WRONG_ON_PURPOSE = {"CORE-028", "CORE-029", "CORE-031", "CORE-032"}
SIZED = re.compile(r"[<>] (?P<verb>H?PUB|H?MSG) (?P<args>[^|]*) \|(?: (?P<payload>.*))?$")
ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|([rnt]))")


def unescaped(text: str) -> bytes:
    def byte(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else {"r": "\r", "n": "\n", "t": "\t"}[match[2]]

    return ESCAPED.sub(byte, text).encode("latin-1")


def test_sizes_in_sample_exchanges_are_true() -> None:
    seen = 0
    for row in CATALOGUE.requirements:
        operations = [found for line in row.sample.splitlines() if (found := SIZED.search(line))]
        for operation in operations:
            payload = operation["payload"] or ""
            if row.id in WRONG_ON_PURPOSE or "..." in payload or "   (" in payload:
                continue
            sizes = operation["args"].replace("\\t", " ").split()
            data = unescaped(payload)
            assert int(sizes[-1]) == len(data), f"{row.id}: {operation[0]}"
            if operation["verb"].startswith("H") and data.startswith(b"NATS/1.0"):
                assert int(sizes[-2]) == data.index(b"\r\n\r\n") + 4, f"{row.id}: {operation[0]}"
            seen += 1
    assert seen > 100


# -- selecting -------------------------------------------------------------------------------------


def test_patterns_select_in_the_order_of_the_files() -> None:
    rows = CATALOGUE.select(["JS-SEQ-001", "CORE-00[12]", "core-001"])
    assert [row.id for row in rows] == ["CORE-001", "CORE-002", "JS-SEQ-001"]


def test_no_pattern_selects_everything() -> None:
    assert CATALOGUE.select([]) == list(CATALOGUE.requirements)


@pytest.mark.parametrize(
    ("pattern", "near"), [("JS-PUL-*", "JS-PULL-*"), ("JS-PULL-69", "JS-PULL-069"), ("CORE-1O1", "CORE-101")]
)
def test_a_pattern_that_matches_nothing_is_an_error_with_what_may_be_meant(pattern: str, near: str) -> None:
    with pytest.raises(UnknownRequirementError, match="did you mean") as raised:
        CATALOGUE.select(["CORE-001", pattern])
    assert raised.value.pattern == pattern
    assert near in raised.value.near or near.startswith(raised.value.near[0][:-2])


def test_a_pattern_like_nothing_points_to_the_list() -> None:
    with pytest.raises(UnknownRequirementError, match="plumbline list"):
        CATALOGUE.select(["wibble"])


# -- levels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lower", "higher"), [("2.9", "2.10"), ("2.9.10", "2.10"), ("2", "2.1")])
def test_levels_compare_as_numbers(lower: str, higher: str) -> None:
    assert protocol_level(lower) < protocol_level(higher)


@pytest.mark.parametrize("text", ["", "v2.9", "2.", "2.x", "2.9-RC", "²", " 2.9"])
def test_a_level_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a protocol level"):
        protocol_level(text)


def test_since_is_included_and_until_is_not() -> None:
    assert within_levels((2, 10), since="2.10", until="2.11")
    assert within_levels((2, 10, 4), since="2.10", until="2.11")
    assert not within_levels((2, 9), since="2.10")
    assert not within_levels((2, 11), until="2.11")
    assert within_levels((1, 0))


def test_a_requirement_holds_from_its_level_on() -> None:
    row = CATALOGUE.by_id["JS-PULL-013"]
    assert row.since == "2.11.5"
    assert row.applies_at((2, 12))
    assert not row.applies_at((2, 11, 4))


# -- published sets --------------------------------------------------------------------------------


def test_the_published_set_names_every_requirement_of_this_release() -> None:
    assert CATALOGUE.published().ids == frozenset(CATALOGUE.by_id)
    assert CATALOGUE.published().name == REQUIREMENT_SET


def test_a_later_requirement_is_not_in_an_older_set(tmp_path: Path) -> None:
    later = ROW.replace("G-001", "G-002")
    catalogue = Catalogue.load(written(tmp_path, GROUP + ROW + later))
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "old.toml").write_text('requirements = ["G-001"]')
    assert catalogue.published("old", tmp_path).ids == {"G-001"}


def test_a_set_that_names_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    catalogue = Catalogue.load(written(tmp_path, GROUP + ROW))
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "old.toml").write_text('requirements = ["G-001", "G-009", "G-010"]')
    with pytest.raises(CatalogueError) as raised:
        catalogue.published("old", tmp_path)
    assert raised.value.problems == (
        "old.toml: G-009 is not a requirement",
        "old.toml: G-010 is not a requirement",
    )
    with pytest.raises(CatalogueError, match="no requirement set named 'new'; there are: old"):
        catalogue.published("new", tmp_path)


# -- mistakes --------------------------------------------------------------------------------------


def test_a_row_is_read_with_its_place(tmp_path: Path) -> None:
    (row,) = Catalogue.load(written(tmp_path, GROUP + ROW)).requirements
    assert (row.id, row.group, row.level, row.where) == ("G-001", "G", Level.MUST, "g.toml:5")


def test_files_of_same_group_are_merged(tmp_path: Path) -> None:
    written(tmp_path, GROUP + ROW.replace("G-001", "G-002"))
    (tmp_path / "g-first.toml").write_text(GROUP + ROW)
    (group,) = Catalogue.load(tmp_path).groups
    assert [row.id for row in group.requirements] == ["G-001", "G-002"]


def test_files_of_the_same_group_agree_on_its_title(tmp_path: Path) -> None:
    written(tmp_path, GROUP + ROW)
    (tmp_path / "h.toml").write_text('[group]\nid = "G"\ntitle = "Other"\n' + ROW.replace("G-001", "G-002"))
    (problem,) = load_problems(tmp_path)
    assert problem == "group G is called 'A group' in one file and 'Other' in another"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('level = "MUST"', 'level = "must"', "level 'must'; write one of MUST, SHOULD, MAY"),
        ('level = "MUST"\n', "", "'level' is missing"),
        ('"nats-core"', '"nats"', f"profile 'nats'; write one of {', '.join(PROFILES)}"),
        ('"G-001"', '"H-001"', "the id must be G- and three digits"),
        ('"G-001"', '"G-1"', "the id must be G- and three digits"),
        (
            "A server answers.",
            "Server answers",
            "the statement must be a sentence that ends with a full stop",
        ),
        ("A server answers.", " ", "'statement' must be text that is not empty"),
        ("source =", "sources =", "unknown key 'sources'; known: documented, excluded, id, known_failures"),
        ('"a document"', '"d"\nsince = 2.9', "'since' must be text that is not empty"),
        ('"a document"', '"d"\nsince = "v2"', "since 'v2' is not a protocol level"),
        ('"a document"', '"d"\nsince = "2.10"\nuntil = "2.9"', "'since' must be earlier than 'until'"),
    ],
)
def test_invalid_requirement_error_names_file_and_table(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    problems = load_problems(written(tmp_path, GROUP + ROW.replace(old, new)))
    assert problems[0].startswith("g.toml:5: requirement 1 (")
    assert problem in problems[0]


def test_all_catalogue_errors_are_reported_together(tmp_path: Path) -> None:
    written(tmp_path, GROUP + ROW + ROW.replace("MUST", "PERHAPS"), "a.toml")
    written(tmp_path, GROUP + ROW, "b.toml")
    written(tmp_path, "[group\n", "c.toml")
    written(tmp_path, ROW, "d.toml")
    written(tmp_path, GROUP + "[requirements]\n", "e.toml")
    problems = load_problems(tmp_path)
    for beginning in (
        "a.toml:12: requirement 2 (G-001): level 'PERHAPS'",
        "b.toml:5: G-001 is already defined at a.toml:5",
        "c.toml: not TOML: ",
        "d.toml: begin with [group]",
        "e.toml: unknown table [requirements]",
        "e.toml: no [[requirement]] tables",
    ):
        assert any(problem.startswith(beginning) for problem in problems), beginning


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    assert "no requirement files" in load_problems(tmp_path)[0]
