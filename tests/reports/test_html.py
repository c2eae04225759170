"""The HTML report: all of the run is in it, it loads nothing, and strangers cannot write on it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

import lxml.etree
import pytest
from msgspec.structs import replace

from plumbline.reports.html.page import render
from plumbline.verdicts import CheckResult, RunResult
from tests.reports.samples import (
    CHECKS,
    HOSTILE,
    big_result,
    conformant_result,
    exchange,
    only,
    requirement,
    result_of,
    sample_result,
)

NO_WAIT = "adr-13/no-wait-on-an-empty-consumer"
HOSTILE_CHECK = "core_delivery::subjects_are_delivered_as_published"
OUR_ESCAPE = '<i class="x">'

Element = Any  # an element of lxml, whose stubs say less than it can do


def page(result: RunResult) -> Element:
    return lxml.etree.HTML(render(result).decode())


def text(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.fixture(scope="module")
def sample() -> Element:
    return page(sample_result())


def by_id(root: Element, identity: str) -> Element:
    (found,) = root.xpath("//*[@id=$wanted]", wanted=identity)
    return found


def with_class(root: Element, name: str) -> list[Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def everything_hostile() -> RunResult:
    """The sample, with strange text wherever a string can stand."""
    base = sample_result()
    checks = tuple(
        replace(
            check,
            id=f"{check.id}{HOSTILE}",
            title=HOSTILE,
            message=HOSTILE,
            where=HOSTILE,
            source=HOSTILE,
            expected=HOSTILE,
            actual=HOSTILE,
            waiver=HOSTILE,
            wire=exchange(f"< {HOSTILE}", f"> {HOSTILE}", f"! {HOSTILE}", connection=HOSTILE, offending=0),
        )
        for check in base.checks
    )
    requirements = tuple(
        replace(
            found,
            id=f"{found.id}{HOSTILE}",
            group=f"{found.group}{HOSTILE}",
            verdict=found.verdict if found.verdict in {"failed", "passed"} else HOSTILE,
            statement=HOSTILE,
            source=HOSTILE,
            profile=HOSTILE,
            documented=HOSTILE,
            observed=HOSTILE,
            note=HOSTILE,
            checks=tuple(f"{identity}{HOSTILE}" for identity in found.checks),
        )
        for found in base.requirements
    )
    named = dict.fromkeys(("url", "server_name", "version", "level"), HOSTILE)
    return replace(
        base,
        checks=checks,
        requirements=requirements,
        target=replace(base.target, features=(HOSTILE,), variants=(HOSTILE,), **named),
        suite=replace(base.suite, version=HOSTILE, requirement_set=HOSTILE, python=HOSTILE, platform=HOSTILE),
        summary=replace(base.summary, verdict=HOSTILE, reasons=(HOSTILE,), started=HOSTILE),
    )


# -- its contents ----------------------------------------------------------------------------


def test_banner_shows_verdict_target_counts_and_reasons(sample: Element) -> None:
    banner = sample.find(".//header")
    assert text(banner.find(".//h1")) == "!Not conformant"
    assert "server 2.10.22 (NDVJ7OLLQ) at nats://127.0.0.1:4222" in text(banner)
    numbers = {text(div.find("dt")): text(div.find("dd")) for div in banner.findall(".//dl/div")}
    assert numbers == {"claimed": "11", "tested": "8", "passed": "4"}
    assert "6 checks are red" in text(banner)


def test_a_conformant_run_looks_conformant() -> None:
    root = page(conformant_result())
    assert root.find(".//header").get("class") == "top good"
    assert text(root.find(".//h1")) == "✓Conformant"
    assert with_class(root, "card") == []


def test_every_requirement_is_there_with_statement_source_and_checks(sample: Element) -> None:
    result = sample_result()
    assert len(with_class(by_id(sample, "main"), "req")) == len(result.requirements) + 1
    row = text(by_id(sample, "JS-PULL-021"))
    assert "A no_wait pull on an empty consumer is answered at once with 404 No Messages." in row
    assert 'ADR-13, "No Wait Pull Requests"' in row
    assert NO_WAIT in row
    link = by_id(sample, "JS-PULL-021").find(".//li/a")
    assert link.get("href") == "#check-adr-13-no-wait-on-an-empty-consumer"


def test_requirements_that_were_not_selected_are_counted_only() -> None:
    root = page(result_of([requirement("A-1", "yes"), requirement("A-2", "no", "not selected")], ()))
    assert "1 more requirements of the set were not selected" in text(root)
    assert not root.xpath("//*[@id='A-2']")


def test_a_failure_shows_expected_actual_place_and_replay(sample: Element) -> None:
    card = by_id(sample, "check-adr-13-no-wait-on-an-empty-consumer")
    expected, actual = (text(dd) for dd in card.findall(".//dl/div/dd"))
    assert expected == "< HMSG $inbox 1 | NATS/1.0 404 No Messages within 1s"
    assert actual == "< HMSG _INBOX.PL7f3a2x1.inbox 1 81 81 | NATS/1.0 408 Request Timeout"
    assert "conformance/traces/adr-13/no-wait-on-an-empty-consumer.trace:9" in text(card)
    assert text(with_class(card, "cmd")[0]) == f"plumbline verify nats://127.0.0.1:4222 --select {NO_WAIT}"


def test_evidence_without_expected_is_shown() -> None:
    check = replace(CHECKS[2], expected="", actual="Traceback")
    (card,) = with_class(page(result_of((), [check])), "card")
    assert [text(dt) for dt in card.findall(".//dl/div/dt")] == ["Actual"]


def test_diagram_marks_offending_line(sample: Element) -> None:
    (operations,) = with_class(by_id(sample, "check-adr-13-no-wait-on-an-empty-consumer"), "ops")
    lines = "".join(operations.itertext()).splitlines()
    assert [line[:35].rstrip() for line in lines] == [
        "seconds  connection  > sent, < rece",
        " 0.0008  stage > PUB $JS.API.STREAM",
        " 0.0016  stage < MSG _INBOX.s 1 98",
        " 0.0048  client > SUB _INBOX.PL7f3a",
        " 0.0056  client > PUB $JS.API.CONSU",
        " 0.0064  client < HMSG _INBOX.PL7f3",
        " 0.0072  client ! closed by the che",
    ]
    assert [text(mark) for mark in operations.findall("mark")] == [
        "0.0064 client < HMSG _INBOX.PL7f3a2x1.inbox 1 81 81 | NATS/1.0 408 Request Timeout (offending)"
    ]


def test_a_failure_has_its_diagram(sample: Element) -> None:
    card = by_id(sample, "check-adr-13-no-wait-on-an-empty-consumer")
    (picture,) = card.findall(".//svg")
    assert picture.get("role") == "img"
    assert "2 connections and the server, 6 operations; the offending one" in picture.get("aria-label")
    assert [text(name) for name in with_class(picture, "name")] == ["stage", "client", "server"]


def test_failure_shows_commands_to_repeat_it_by_hand(sample: Element) -> None:
    commands = with_class(by_id(sample, "check-core_delivery-subjects_are_delivered_as_published"), "cmd")[1]
    assert "server=127.0.0.1/4222" in text(commands)
    assert "printf 'PUB a.b 5 | hello\\r\\n' >&3" in text(commands)


def test_long_exchange_is_cut_around_offending_line() -> None:
    base = only(NO_WAIT)
    check = replace(base.checks[0], wire=exchange(*["> PING"] * 200, offending=100))
    card = by_id(page(replace(base, checks=(check,))), "check-adr-13-no-wait-on-an-empty-consumer")
    (operations,) = with_class(card, "ops")
    first, _, *lines, last = "".join(operations.itertext()).splitlines()
    assert len(lines) == 40
    assert sum(line.endswith("(offending)") for line in lines) == 1
    left_out = ["80 earlier operations are left out", "80 later operations are left out"]
    assert [first, last] == [f"({words})" for words in left_out]
    assert [text(more) for more in card.findall(".//svg/text[@class='more']")] == left_out


def test_an_offending_operation_that_is_binary_is_dumped(sample: Element) -> None:
    dump = with_class(by_id(sample, "check-core_delivery-subjects_are_delivered_as_published"), "dump")
    assert text(dump[0]).startswith("00000000 4d 53 47 20 3c 73 63 72")
    assert with_class(by_id(sample, "check-adr-13-no-wait-on-an-empty-consumer"), "dump") == []


def test_waived_and_not_required_failures_have_their_own_sections(sample: Element) -> None:
    titles = [text(heading) for heading in sample.findall(".//h2")]
    assert titles == [
        "Scores",
        "Failures 6",
        "Failed SHOULD and MAY 1",
        "Waived 1",
        "Documented and observed 1",
        "Requirements 14",
        "Not supported by this server",
        "Environment",
    ]
    assert "known since 2.10.1" in text(by_id(sample, "check-core-queue-groups"))


def test_documented_and_observed_are_shown_side_by_side(sample: Element) -> None:
    (row,) = with_class(sample, "differences")[0].findall("tbody/tr")
    assert [text(cell) for cell in row] == [
        "JS-SEQ-002",
        "Last Delivered 1/1, floor 0/0 (deep dive, step 2)",
        "delivered 0/0, ack_floor 0/0 on 2.9.10 and 2.15.0",
        "passed",
    ]


def test_the_scores_have_a_row_for_each_level_and_group(sample: Element) -> None:
    rows = {
        text(tr.find("th")): [text(td) for td in tr.findall("td")[1:]] for tr in sample.findall(".//tbody/tr")
    }
    assert rows["MUST"] == ["9", "7", "4", "2", "1", "2", "-"]
    assert rows["JS-PULL"] == ["3", "2", "0", "2", "-", "1", "1"]


def test_environment_shows_versions_and_timing(sample: Element) -> None:
    facts = {
        text(div.find("dt")): text(div.find("dd")) for div in with_class(sample, "facts")[0].findall("div")
    }
    assert facts["Server version"] == "2.10.22"
    assert facts["Requirement set"] == "2026.11"
    assert facts["Slack on time limits"] == "50 ms"
    assert facts["Exit code"] == "4 (harness error)"


# -- how it behaves --------------------------------------------------------------------------


def test_it_is_all_there_without_javascript(sample: Element) -> None:
    hidden = [element for element in sample.iter() if element.get("hidden") is not None]
    assert [element.get("id") for element in hidden] == ["filter"]


def test_filterable_rows_have_group_level_and_outcome(sample: Element) -> None:
    items = [element for element in sample.iter() if element.get("data-o") is not None]
    assert len(items) == len(sample_result().requirements) + 8
    card = by_id(sample, "check-adr-13-no-wait-on-an-empty-consumer")
    assert (card.get("data-g"), card.get("data-l"), card.get("data-o")) == ("JS-PULL", "MUST", "failed")
    offered = {
        name: {option.get("value", text(option)) for option in by_id(sample, f"f-{name}").findall("option")}
        for name in "glo"
    }
    for item in items:
        assert {item.get("data-l")} <= offered["l"]
        assert {item.get("data-o")} <= offered["o"]
        assert set(item.get("data-g").split()) <= offered["g"]


@pytest.mark.parametrize("result", [sample_result(), conformant_result(), everything_hostile()])
def test_ids_are_unique_and_every_link_leads_somewhere_on_the_page(result: RunResult) -> None:
    root = page(result)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(set(ids)) == len(ids)
    links = [link.get("href") for link in root.findall(".//a")]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert not {link for link in links if not link.startswith("#")}


def test_similar_check_ids_get_different_anchors() -> None:
    checks = [replace(CHECKS[2], id=identity) for identity in ("a/b", "a b", "a:b")]
    cards = with_class(page(result_of((), checks)), "card")
    assert [card.get("id") for card in cards] == ["check-a-b", "check-a-b-2", "check-a-b-3"]


def test_a_requirement_cannot_take_an_id_of_the_page() -> None:
    root = page(result_of([requirement("scores", "x")], ()))
    assert by_id(root, "scores").tag == "h2"
    assert by_id(root, "scores-2").tag == "details"


@pytest.mark.parametrize("result", [sample_result(), everything_hostile()])
def test_page_is_self_contained_with_strict_csp(result: RunResult) -> None:
    root = page(result)
    (script,), (style,) = root.findall(".//script"), root.findall(".//style")
    policy = root.find('.//meta[@http-equiv="Content-Security-Policy"]').get("content")
    for element, name in ((script, "script-src"), (style, "style-src")):
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in policy
        assert not element.attrib
    assert policy.startswith("default-src 'none';")
    loading = {"src", "srcset", "data", "poster", "action", "formaction", "background", "style"}
    for element in root.iter():
        assert not loading & set(element.attrib)
        assert not [name for name in element.attrib if name.startswith("on")]
    assert [link.get("href") for link in root.findall(".//link")] == ["data:,"]
    assert "url(" not in style.text
    assert "@import" not in style.text


# -- strangers -------------------------------------------------------------------------------


def test_hostile_text_makes_no_element_anywhere() -> None:
    ordinary = {element.tag for element in page(sample_result()).iter() if isinstance(element.tag, str)}
    hostile = page(everything_hostile())
    assert {element.tag for element in hostile.iter() if isinstance(element.tag, str)} == ordinary
    assert len(hostile.findall(".//script")) == 1


def test_hostile_text_is_readable_with_its_hidden_characters_marked() -> None:
    root = page(everything_hostile())
    cell = root.find(".//table[@class='differences']/tbody/tr/td")
    assert "<script>alert(1)</script>" in text(cell)
    assert [mark.text for mark in with_class(cell, "x")] == ["\\u202e", "\\x1b", "\\x00\\xff\\xfe\\x00\\x0d"]


def test_no_hidden_character_is_left_in_the_file() -> None:
    document = render(everything_hostile()).decode("utf-8")
    assert {char for char in document if not char.isprintable()} == {"\n"}


def test_attributes_and_titles_hold_no_markup_of_ours() -> None:
    root = page(everything_hostile())
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert not [
        value for value in values if OUR_ESCAPE in value or "<script" in value.replace("&lt;", "")[:0]
    ]
    assert OUR_ESCAPE not in root.find(".//title").text
    assert not [option for option in root.findall(".//option") if OUR_ESCAPE in (option.text or "")]
    named = [
        value for element in root.iter() for key, value in element.attrib.items() if key in {"id", "class"}
    ]
    assert not [value for value in named if re.search(r"[^A-Za-z0-9._ -]", value)]


def huge(size: int) -> CheckResult:
    return replace(
        CHECKS[2],
        message="m" * size,
        expected="e" * size,
        actual="\u202ea" * size,
        waiver="w" * size,
        wire=exchange(*["> " + "\u202ex" * size] * 100, offending=50),
    )


def test_long_values_are_cut_and_show_their_size() -> None:
    data = render(result_of((), [huge(100_000)]))
    assert len(data) < 1_000_000
    assert b"[100,000 characters in all]" in data
    assert b"[200,000 characters in all]" in data


def test_a_flood_of_hostile_failures_stays_under_15_mb() -> None:
    pattern = huge(5_000)
    found = [requirement(f"A-{number}", "A statement." * 10, "failed") for number in range(1_000)]
    checks = [replace(pattern, id=f"a/{number}", requirements=(f"A-{number}",)) for number in range(1_000)]
    data = render(result_of(found, checks))
    assert len(data) < 15_000_000
    assert b"The evidence is omitted to keep this page small; the JSON result contains it." in data


@pytest.mark.slow
@pytest.mark.parametrize("failing_every", [1, 20])
def test_ten_thousand_checks_stay_under_15_mb_and_are_all_there(failing_every: int) -> None:
    data = render(big_result(10_000, failing_every=failing_every))
    root = lxml.etree.HTML(data.decode())
    assert len(data) < 15_000_000
    rows = [row for row in with_class(root, "req") if row.get("id")]
    assert len(rows) == 10_000
    assert "more are listed with their requirements below; the JSON result has their evidence." in text(
        by_id(root, "main")
    )
    assert {row.tag for row in rows} == {"div"}  # folds would make it slow
