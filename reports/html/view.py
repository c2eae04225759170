"""What the HTML page shows, as plain values: which checks get a card, how an exchange becomes a diagram.

The template only lays out. Limits on how much is shown are here; how much markup that may become is
decided in ``html``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from plumbline.reports.digest import (
    CLAIMS_HEAD,
    NO_GROUP,
    Score,
    UnsupportedReason,
    WireExcerpt,
    claims_source,
    claims_table,
    dimensions,
    duration,
    group_of,
    headline,
    meaning,
    milliseconds,
    other_failures,
    red_checks,
    replay_command,
    score,
    scores_by_level,
    selected,
    server,
    tone,
    unsupported_heading,
    unsupported_reasons,
    verdict_detail,
    wire_excerpt,
    with_outcome,
)
from plumbline.reports.text import hex_dump, is_binary
from plumbline.verdicts import CheckResult, Level, Outcome, RequirementResult, RunResult, WireLine

CARDS = 200  # checks with a card of their own; the rest are shown in one line beside their requirement
OPEN_CARDS = 20
MAX_ID_LENGTH = 200
FOLDED = 2_000  # requirements; a fold each would make a larger page slow to open
DIAGRAM_LINES = 40
DUMPED_BYTES = 256
ARROWS = {">": "sent", "<": "received", "!": "event"}
OWN_IDS = frozenset(  # of the template
    {"main", "scores", "filter", "f-text", "f-g", "f-l", "f-o", "f-count"}
    | {"claims", "differences", "requirements", "unsupported", "environment"}
)
PARTS = ("passed", "failed", "waived", "undecided", "unsupported")  # of a bar, in this order


class BarSegment(Struct, frozen=True):
    """One coloured stretch of a bar, in thousandths of its width."""

    name: str
    count: int
    start: float
    width: float


class DiagramLine(Struct, frozen=True):
    """One arrow of a diagram. ``lane`` tells connections apart."""

    wire: WireLine
    kind: str
    lane: int


class Diagram(Struct, frozen=True):
    """An exchange, drawn. ``dump`` are the exact bytes of the offending operation if they are no text."""

    connections: tuple[str, ...]
    lines: tuple[DiagramLine, ...]
    before: int
    after: int
    dump: tuple[str, ...]


class CheckCard(Struct, frozen=True):
    """One check with its evidence."""

    check: CheckResult
    anchor: str
    requirements: tuple[RequirementRow, ...]
    groups: tuple[str, ...]
    replay: str
    diagram: Diagram | None
    opened: bool
    evidence: bool  # False: left out to keep the page small


class CardSection(Struct, frozen=True):
    """Cards under one heading; ``left_out`` checks have no card."""

    title: str
    lead: str
    anchor: str
    cards: tuple[CheckCard, ...]
    left_out: int


class CheckLink(Struct, frozen=True):
    """A check beside its requirement; ``anchor`` is empty if it has no card."""

    check: CheckResult
    anchor: str


class RequirementRow(Struct, frozen=True):
    """A requirement and its checks."""

    requirement: RequirementResult
    anchor: str
    checks: tuple[CheckLink, ...]


class ScoreRow(Struct, frozen=True):
    """A row of the table of scores."""

    score: Score
    bar: tuple[BarSegment, ...]


class GroupScores(Struct, frozen=True):
    """The requirements of one group."""

    score: Score
    anchor: str
    bar: tuple[BarSegment, ...]
    rows: tuple[RequirementRow, ...]


class EnvironmentFact(Struct, frozen=True):
    """A line of the environment."""

    name: str
    value: str


class ClaimLine(Struct, frozen=True):
    """A row of the table of claims, below ``head``."""

    cells: tuple[str, ...]
    contradiction: str


class UnsupportedPart(Struct, frozen=True):
    """Unsupported checks under one heading: those that are claimed, and those that are not."""

    title: str
    reasons: tuple[UnsupportedReason, ...]


class ReportPage(Struct, frozen=True):
    """The whole page."""

    result: RunResult
    tone: str
    headline: str
    detail: str
    server: str
    bar: tuple[BarSegment, ...]
    levels: tuple[ScoreRow, ...]
    level_names: tuple[str, ...]
    groups: tuple[GroupScores, ...]
    sections: tuple[CardSection, ...]
    differences: tuple[RequirementRow, ...]
    claims_head: tuple[str, ...]
    claims: tuple[ClaimLine, ...]
    unsupported: tuple[UnsupportedPart, ...]
    facts: tuple[EnvironmentFact, ...]
    outcomes: tuple[str, ...]
    requirements: int
    not_selected: int
    folded: bool  # whether a requirement shows its source and checks only when it is opened


def slug(text: str) -> str:
    """``text`` as part of an id or a class: letters, digits, ``-``, ``.`` and ``_`` only, not too many."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text[:MAX_ID_LENGTH])


def page(result: RunResult, most_cards: int = CARDS) -> ReportPage:
    """The page for ``result``."""
    chosen = _card_checks(result)
    anchors = _anchors([check.id for _, _, checks in chosen for check in checks][:most_cards], "check")
    rows = _rows(result, anchors)
    return ReportPage(
        result=result,
        tone=tone(result.summary.exit_code),
        headline=headline(result),
        detail=verdict_detail(result),
        server=server(result.target),
        bar=_bar(score("", result.requirements)),
        levels=tuple(ScoreRow(found, _bar(found)) for found in scores_by_level(result)),
        level_names=tuple(level.value for level in Level),
        groups=_groups(rows),
        sections=_sections(result, chosen, anchors, rows),
        differences=tuple(row for row in rows if _differs(row.requirement)),
        claims_head=CLAIMS_HEAD,
        claims=_claims(result),
        unsupported=_unsupported(result),
        facts=tuple(fact for fact in _facts(result) if fact.value),
        outcomes=_present_outcomes(result),
        requirements=len(rows),
        not_selected=len(result.requirements) - len(rows),
        folded=len(rows) <= FOLDED,
    )


def _claims(result: RunResult) -> tuple[ClaimLine, ...]:
    if result.claims is None:
        return ()
    rows = zip(claims_table(result.claims), result.claims.rows, strict=True)
    return tuple(ClaimLine(cells, row.contradiction) for cells, row in rows)


def _unsupported(result: RunResult) -> tuple[UnsupportedPart, ...]:
    by_claim = groupby(unsupported_reasons(result), key=lambda reason: reason.claim)
    return tuple(
        UnsupportedPart(_capital(unsupported_heading(claim, result.target.kind)), tuple(reasons))
        for claim, reasons in by_claim
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _differs(requirement: RequirementResult) -> bool:
    """Whether servers do, or did, otherwise than the document."""
    return bool((requirement.documented and requirement.observed) or requirement.known_failures)


def _card_checks(result: RunResult) -> list[tuple[str, str, list[CheckResult]]]:
    """Heading, lead and checks of each section, most important first. A stale waiver is red."""
    sections = [
        ("Failures", "", red_checks(result)),
        (
            "Failed SHOULD and MAY",
            "These break a SHOULD or MAY; the verdict does not depend on them.",
            other_failures(result),
        ),
        ("Waived", "These failures are waived.", with_outcome(result, Outcome.WAIVED)),
    ]
    return [section for section in sections if section[2]]


def _sections(
    result: RunResult,
    chosen: Sequence[tuple[str, str, list[CheckResult]]],
    anchors: dict[str, str],
    rows: Iterable[RequirementRow],
) -> tuple[CardSection, ...]:
    by_id = {row.requirement.id: row for row in rows}
    sections: list[CardSection] = []
    opened = OPEN_CARDS
    for title, lead, checks in chosen:
        cards = [_card(check, result, anchors, by_id) for check in checks if check.id in anchors]
        cards = [replace(card, opened=True) for card in cards[:opened]] + cards[opened:]
        opened = max(0, opened - len(cards))
        sections.append(CardSection(title, lead, slug(title.lower()), tuple(cards), len(checks) - len(cards)))
    return tuple(sections)


def _card(
    check: CheckResult, result: RunResult, anchors: dict[str, str], rows: dict[str, RequirementRow]
) -> CheckCard:
    requirements = tuple(rows[identity] for identity in check.requirements if identity in rows)
    return CheckCard(
        check=check,
        anchor=anchors[check.id],
        requirements=requirements,
        groups=tuple(dict.fromkeys(slug(group_of(row.requirement)) for row in requirements)) or (NO_GROUP,),
        replay=replay_command(result, check.id),
        diagram=diagram(check.wire),
        opened=False,
        evidence=True,
    )


def diagram(wire: Sequence[WireLine]) -> Diagram | None:
    """The part of an exchange that is worth drawing."""
    if not wire:
        return None
    excerpt: WireExcerpt = wire_excerpt(wire, DIAGRAM_LINES)
    connections = tuple(dict.fromkeys(line.connection for line in wire))
    offending = next((line for line in excerpt.lines if line.offending), None)
    binary = offending is not None and is_binary(offending.raw)
    return Diagram(
        connections=connections,
        lines=tuple(
            DiagramLine(line, ARROWS[line.direction], connections.index(line.connection))
            for line in excerpt.lines
        ),
        before=excerpt.before,
        after=excerpt.after,
        dump=tuple(hex_dump(offending.raw, DUMPED_BYTES)) if binary and offending else (),
    )


def _anchors(ids: Iterable[str], prefix: str) -> dict[str, str]:
    """An id of the page for each of ``ids``: stable, and different even where two slugs are equal."""
    anchors: dict[str, str] = {}
    taken = set(OWN_IDS)
    for identity in ids:
        base = anchor = f"{prefix}-{slug(identity)}" if prefix else slug(identity)
        number = 2
        while anchor in taken:
            anchor, number = f"{base}-{number}", number + 1
        taken.add(anchor)
        anchors[identity] = anchor
    return anchors


def _rows(result: RunResult, cards: dict[str, str]) -> tuple[RequirementRow, ...]:
    checks = {check.id: check for check in result.checks}
    requirements = selected(result)
    anchors = _anchors([requirement.id for requirement in requirements], "")
    return tuple(
        RequirementRow(
            requirement=requirement,
            anchor=anchors[requirement.id],
            checks=tuple(
                CheckLink(checks[identity], cards.get(identity, ""))
                for identity in requirement.checks
                if identity in checks
            ),
        )
        for requirement in requirements
    )


def _groups(rows: Iterable[RequirementRow]) -> tuple[GroupScores, ...]:
    members: dict[str, list[RequirementRow]] = {}
    for row in rows:
        members.setdefault(group_of(row.requirement), []).append(row)
    anchors = _anchors(members, "group")
    scores = [score(name, [row.requirement for row in of_group]) for name, of_group in members.items()]
    return tuple(
        GroupScores(found, anchors[found.name], _bar(found), tuple(members[found.name])) for found in scores
    )


def _bar(found: Score) -> tuple[BarSegment, ...]:
    counts = {
        "passed": found.counts.passed,
        "failed": found.failed,
        "waived": found.waived,
        "undecided": found.undecided,
        "unsupported": found.unsupported,
    }
    total = sum(counts.values())
    parts, start = [], 0.0
    for name in PARTS:
        if counts[name]:
            width = 1000 * counts[name] / total
            parts.append(BarSegment(name, counts[name], round(start, 2), round(width, 2)))
            start += width
    return tuple(parts)


def _facts(result: RunResult) -> list[EnvironmentFact]:
    target, suite, summary = result.target, result.suite, result.summary
    return [
        EnvironmentFact("Target", target.url),
        EnvironmentFact(f"{target.kind.capitalize()} name", target.server_name),
        EnvironmentFact(f"{target.kind.capitalize()} version", target.version),
        EnvironmentFact("Protocol level", target.level),
        EnvironmentFact("Features", ", ".join(target.features)),
        EnvironmentFact("Variants", ", ".join(target.variants)),
        EnvironmentFact("Dimensions", dimensions(target)),
        EnvironmentFact("Claims", claims_source(result)),
        EnvironmentFact("Round trip", "" if target.kind == "client" else milliseconds(target.rtt_s)),
        EnvironmentFact(
            "Slack on time limits", "" if target.kind == "client" else milliseconds(target.slack_s)
        ),
        EnvironmentFact("Plumbline", suite.version),
        EnvironmentFact("Requirement set", suite.requirement_set),
        EnvironmentFact("Python", suite.python),
        EnvironmentFact("Platform", suite.platform),
        EnvironmentFact("Started", summary.started),
        EnvironmentFact("Duration", duration(summary.duration_s)),
        EnvironmentFact("A failed SHOULD", "counts (strict)" if summary.strict else "does not count"),
        EnvironmentFact("Exit code", f"{summary.exit_code} ({meaning(summary.exit_code)})"),
    ]


def _present_outcomes(result: RunResult) -> tuple[str, ...]:
    """Every verdict or outcome on the page, in the order of the design page, then the others."""
    present = {requirement.verdict for requirement in selected(result)}
    present |= {check.outcome.value for check in result.checks}
    known = [outcome.value for outcome in Outcome if outcome.value in present]
    return (*known, *sorted(present.difference(known)))
