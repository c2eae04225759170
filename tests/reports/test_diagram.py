"""Sequence diagrams: every operation with its sender, in order; and a file that strangers cannot write on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lxml.etree
import pytest
from msgspec.structs import replace

import plumbline.reports
from plumbline.reports.diagram import COLOURS, LINES, SERVER, WIDTH, draw
from plumbline.verdicts import CheckResult, Outcome
from tests.reports.samples import CHECKS, HOSTILE, exchange

Element = Any  # an element of lxml, whose stubs say less than it can do
NO_WAIT = CHECKS[2]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(check: CheckResult) -> Element:
    """What a strict XML parser makes of it."""
    parser = lxml.etree.XMLParser(recover=False, resolve_entities=False)
    return lxml.etree.fromstring(draw(check, alone=True).encode(), parser)


def with_class(root: Element, name: str) -> list[Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def text(element: Element) -> str:
    return "".join(element.itertext())


def operations(root: Element) -> list[tuple[str, str]]:
    """Kind and text of every arrow, from above."""
    found = []
    for kind in ("sent", "received", "event"):
        for group in with_class(root, kind):
            (label,) = with_class(group, "op")
            found.append((float(label.get("y")), group.get("class"), text(label)))
    return [(kind, words) for _, kind, words in sorted(found)]


def test_diagram_orders_operations_by_time() -> None:
    assert [(kind, words[:12]) for kind, words in operations(drawn(NO_WAIT))] == [
        ("sent", "PUB $JS.API."),
        ("received", "MSG _INBOX.s"),
        ("sent", "SUB _INBOX.P"),
        ("sent", "PUB $JS.API."),
        ("received off", "HMSG _INBOX."),
        ("event", "closed by th"),
    ]


def test_every_connection_has_a_lifeline_and_arrows_begin_there() -> None:
    root = drawn(NO_WAIT)
    places = {text(name): float(name.get("x")) for name in with_class(root, "name")}
    assert list(places) == ["stage", "client", "server"]
    assert sorted(places.values()) == list(places.values())
    starts = [path.get("d") for group in with_class(root, "sent") for path in group.iter(f"{SVG}path")]
    froms = [float(re.match(r"M([\d.]+) ", start)[1]) for start in starts]  # type: ignore[index]
    assert froms == [places["stage"], places["client"], places["client"]]
    ends = [
        path.get("d") for group in with_class(root, "received") for path in group if path.tag == f"{SVG}path"
    ]
    assert all(end.startswith(f"M{SERVER} ") for end in ends if "H" in end)


def test_offending_operation_shows_expected_operation() -> None:
    (offending,) = with_class(drawn(NO_WAIT), "off")
    (fault,) = with_class(offending, "fault")
    assert text(fault).startswith("expected: < HMSG $inbox 1 | NATS/1.0 404 No Messages")
    assert with_class(offending, "hit")


def test_diagram_ends_with_expected_and_actual() -> None:
    check = replace(NO_WAIT, wire=exchange("> SUB x 1"), expected="one\ntwo", actual="")
    (fault,) = with_class(drawn(check), "fault")
    assert [fault.text, *(span.text for span in fault)] == ["expected: one", "two", "actual: nothing"]


def test_a_check_that_passed_has_no_fault_drawn() -> None:
    check = replace(NO_WAIT, outcome=Outcome.PASSED, wire=exchange("> SUB x 1"), expected="x")
    assert with_class(drawn(check), "fault") == []


def test_diagram_shows_silence() -> None:
    wire = exchange("> PING") + exchange("< PONG", start=1.5)
    assert [text(more) for more in with_class(drawn(replace(NO_WAIT, wire=wire)), "more")] == ["1.50 s pass"]


def test_nothing_exchanged_is_no_diagram() -> None:
    assert draw(replace(NO_WAIT, wire=())) == ""


def test_connections_beyond_the_lanes_share_one() -> None:
    wire = tuple(line for number in range(40) for line in exchange("> PING", connection=f"c{number}"))
    names = [text(name) for name in with_class(drawn(replace(NO_WAIT, wire=wire)), "name")]
    assert names == ["c0", "c1", "c2", "c3", "c4", "35 others", "server"]


@pytest.mark.parametrize(
    "hostile",
    [
        HOSTILE,
        "]]></style></svg><script>alert(1)</script><!--",
        '"/><image href="https://example.test/x"/>',
        "&xxe; &#x202e; %xxe;",
        "\u202e\u2066\u200b\ufeff\x00\x1b]0;title\x07\x9b31m",
        "\udcff\udcfe" * 50,
        "漢字" * 200,
    ],
)
def test_hostile_text_makes_no_element_and_no_hidden_character(hostile: str) -> None:
    check = replace(
        NO_WAIT,
        title=hostile,
        expected=hostile,
        actual=hostile,
        wire=exchange(f"> {hostile}", f"< {hostile}", f"! {hostile}", connection=hostile, offending=1),
    )
    plain = {element.tag for element in drawn(NO_WAIT).iter()}
    assert {element.tag for element in drawn(check).iter()} <= plain
    names = {key for element in drawn(check).iter() for key in element.attrib}
    assert names <= {key for element in drawn(NO_WAIT).iter() for key in element.attrib}
    assert {char for char in draw(check) if not char.isprintable()} <= {"\n"}
    assert "\n" not in draw(check)


def test_a_subject_of_a_megabyte_makes_a_small_picture_with_its_size() -> None:
    content = "\u202e漢x" * 350_000
    check = replace(
        NO_WAIT, title=content, expected=content, wire=exchange(*[f"< MSG {content} 1 5"] * 100, offending=50)
    )
    picture = draw(check, alone=True)
    assert len(picture.encode()) < 120_000
    assert "1,050,008 characters in all" in picture
    assert len(operations(drawn(check))) == LINES


@pytest.mark.parametrize("content", ["x" * 3000, "MSG a.b 1 | " * 300, "漢字" * 1000])
def test_no_text_is_wider_than_the_place_between_the_lifelines(content: str) -> None:
    check = replace(NO_WAIT, expected=content, wire=exchange(f"> {content}", f"< {content}", offending=1))
    for words in drawn(check).iter(f"{SVG}text", f"{SVG}tspan"):
        if words.getparent().get("class") == "name" or words.get("class") in ("t", "name"):
            continue
        columns = sum(2 if ord(char) > 0x2E80 else 1 for char in words.text or "")
        assert float(words.get("x")) + 7.22 * columns < SERVER < WIDTH


def test_a_picture_of_its_own_has_the_colours_of_the_page() -> None:
    css = (Path(plumbline.reports.__file__).parent / "templates" / "colours.css").read_text()
    pairs = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    page = [{name: light for name, light, _ in pairs}, {name: dark for name, _, dark in pairs}]
    own = [
        dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", part))
        for part in re.findall(r"\.seq\{(.*?)\}", COLOURS, re.DOTALL)
    ]
    assert len(page) == len(own) == 2
    for there, here in zip(page, own, strict=True):
        assert here
        assert here == {name: there[name] for name in here}
    rules = (Path(plumbline.reports.__file__).parent / "templates" / "diagram.css").read_text()
    assert set(re.findall(r"var\(--([a-z-]+)\)", rules)) <= set(own[0])
