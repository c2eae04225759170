"""Writes the site: static pages, ``index.json`` for machines, each run's report, and what is kept of a run.

::

    index.html                          the matrix
    index.json                          the same for machines, ``plumbline.matrix/1``
    feed.xml                            what newly fails or passes, as an Atom feed
    unstable.html                       checks whose outcome changed, and how often
    requirements/GROUP.html#ID          a requirement and its verdicts: links that stay
    requirements/ID.html                the same alone, with disputes
    targets/NAME@VERSION/index.html     a target: what does not pass, its history
    targets/NAME@VERSION/STAMP.html     the report of a run
    targets/NAME@VERSION/STAMP.json.gz  what is kept of it: the next matrix in the same folder reads it again
    changes/A..B.html                   two runs compared

Raises ``ReportError`` where nothing can be written. The first page is written last.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.reports import result_json
from plumbline.reports.digest import group_of, headline, selected, tone
from plumbline.reports.files import ReportFile
from plumbline.reports.html import page as html
from plumbline.reports.html.view import slug
from plumbline.reports.markup import asset, compact, environment, policy, style_of
from plumbline.reports.matrix.compare import Comparison, compare
from plumbline.reports.matrix.disputes import Dispute, dispute_link
from plumbline.reports.matrix.feed import feed
from plumbline.reports.matrix.flips import FlipRate, UnstableCheck, requirement_flips, unstable_checks
from plumbline.reports.matrix.history import plot
from plumbline.reports.matrix.runs import TargetRunResult, reduced_for_site
from plumbline.reports.matrix.table import (
    ProtocolMatrix,
    SupportedSince,
    TargetRow,
    requirements,
    since,
    tables,
    verdicts,
)
from plumbline.verdicts import CheckResult, Outcome, RequirementResult, RunResult

SCHEMA = "plumbline.matrix/1"
COMPARED = 10  # of the latest runs of a target, each with the one before
_QUIET = (Outcome.PASSED.value, Outcome.UNSUPPORTED.value)


class RunComparison(Struct, frozen=True):
    """Two runs and their differences, on a page of its own."""

    before: TargetRunResult
    after: TargetRunResult
    comparison: Comparison

    @property
    def page(self) -> str:
        """Its path in the site; two runs of one target differ by when they began."""
        if self.before.target == self.after.target:
            return f"changes/{self.after.slug}/{self.before.stamp}..{self.after.stamp}.html"
        return f"changes/{self.before.slug}..{self.after.slug}.html"


class ProblemRequirement(Struct, frozen=True):
    """A requirement that a target does not plainly pass, and the checks that say why."""

    requirement: RequirementResult
    checks: tuple[CheckResult, ...]


class TargetVerdict(Struct, frozen=True):
    """The verdict of one target on a requirement. ``folder``: where its pages are."""

    target: str
    folder: str
    verdict: str
    reason: str  # of what did not pass
    flips: FlipRate


class RequirementEntry(Struct, frozen=True):
    """A requirement on its own page and on that of its group."""

    requirement: RequirementResult
    verdicts: tuple[TargetVerdict, ...]
    since: tuple[SupportedSince, ...]
    disputes: tuple[Dispute, ...] = ()

    @property
    def alike(self) -> list[tuple[TargetVerdict, ...]]:
        """The verdicts; targets that follow each other and differ in nothing but their name are together."""
        runs = groupby(self.verdicts, lambda one: (one.verdict, one.reason, one.flips))
        return [tuple(run) for _, run in runs]

    @property
    def by_verdict(self) -> dict[str, list[TargetVerdict]]:
        """The targets of each verdict, what passed last."""
        found: dict[str, list[TargetVerdict]] = {}
        for one in sorted(self.verdicts, key=lambda one: one.verdict == Outcome.PASSED):
            found.setdefault(one.verdict, []).append(one)
        return found


class SiteOptions(Struct, frozen=True):
    """``url``: where the site will be, for the feed. ``dispute_url``: where a dispute is opened, with
    ``{id}`` in it. ``disputes`` by requirement."""

    title: str = "Conformance matrix"
    url: str = ""
    dispute_url: str = ""
    disputes: Mapping[str, tuple[Dispute, ...]] = {}


def build(
    given: Iterable[TargetRunResult],
    before: Iterable[TargetRunResult],
    folder: Path,
    options: SiteOptions,
) -> Path:
    """The site of the ``given`` runs and those ``before`` that it keeps; returns its first page."""
    fresh = {(run.target, run.stamp): run for run in given}
    made = tables(({(run.target, run.stamp): run for run in before} | fresh).values())
    rows = [row for table in made for row in table.rows]
    site = _Site(folder, options.title)
    for run in fresh.values():
        site.put(f"targets/{run.slug}/{run.stamp}.html", html.render(run.result, "../../requirements"))
        kept = gzip.compress(result_json.encode(reduced_for_site(run), compact=True), mtime=0)
        site.put(f"targets/{run.slug}/{run.stamp}.json.gz", kept)
    changes = _changes(rows)
    for change in changes:
        site.page(change.page, "changes.html.j2", change=change)
    entries = _entries(rows, options.disputes)
    for group, members in entries.items():
        site.page(f"requirements/{slug(group)}.html", "group.html.j2", group=group, entries=members)
        for entry in members:
            link = dispute_link(options.dispute_url, entry.requirement.id)
            site.requirement(entry, group=group, dispute_url=link)
    for row in rows:
        own = [change for change in changes if row.run in (change.before, change.after)]
        site.page(
            f"targets/{row.run.slug}/index.html",
            "target.html.j2",
            row=row,
            plot=plot(row.history),
            troubles=_problem_requirements(row),
            changes=own,
            has_report=lambda run: (folder / f"targets/{run.slug}/{run.stamp}.html").exists(),
        )
    unstable = unstable_checks(rows)
    site.page("unstable.html", "unstable.html.j2", unstable=unstable)
    site.put("feed.xml", feed(changes, title=options.title, url=options.url))
    site.put("index.json", _for_machines(options.title, made, entries, changes, unstable))
    return site.page(
        "index.html",
        "matrix.html.j2",
        tables=made,
        changes=changes,
        targets=len(rows),
        unstable=unstable,
    )


class _Site:
    """A folder that pages are put into."""

    def __init__(self, folder: Path, title: str) -> None:
        self.folder = folder
        self.title = title
        self.style = style_of("report.css", "matrix.css")
        self.script = asset("matrix.js")
        self.lean = compact(style_of("requirement.css"))

    def put(self, path: str, content: bytes) -> Path:
        """A file, whole or not at all."""
        file = ReportFile(self.folder / path, "matrix")
        file.write(content)
        return file.path

    def page(self, path: str, template: str, **values: Any) -> Path:
        """A page made of a template."""
        return self._render(path, template, self.style, self.script, values)

    def requirement(self, entry: RequirementEntry, **values: Any) -> Path:
        """The page of one requirement: with a small style and no script, since there are many of them."""
        path = f"requirements/{slug(entry.requirement.id)}.html"
        return self._render(path, "requirement.html.j2", self.lean, "", {"entry": entry, **values})

    def _render(self, path: str, template: str, style: str, script: str, values: Mapping[str, Any]) -> Path:
        text = (
            environment()
            .get_template(f"matrix/{template}")
            .render(
                root="../" * path.count("/"),
                site=self.title,
                style=style,
                script=script,
                policy=policy(style, script),
                headline=headline,
                tone=tone,
                **values,
            )
        )
        return self.put(path, text.encode())


def _changes(rows: Iterable[TargetRow]) -> list[RunComparison]:
    """Each run with the one before of its target, and each release with the one before of its software."""
    known = list(rows)
    pairs = [pair for row in known for pair in pairwise(row.history[-COMPARED:])]
    pairs += [(a.run, b.run) for a, b in pairwise(known) if a.run.software == b.run.software]
    return [RunComparison(a, b, compare(a.result, b.result)) for a, b in pairs]


def _problem_requirements(row: TargetRow) -> list[ProblemRequirement]:
    """In the order of the requirements; what no run claims is left to the run's own report."""
    checks: dict[str, list[CheckResult]] = {}
    for check in row.run.result.checks:
        if check.outcome is not Outcome.PASSED:
            for requirement in check.requirements:
                checks.setdefault(requirement, []).append(check)
    return [
        ProblemRequirement(requirement, tuple(checks.get(requirement.id, ())))
        for requirement in selected(row.run.result)
        if requirement.verdict not in (*_QUIET, "not scored", "excluded")
    ]


def _entries(
    rows: list[TargetRow], disputes: Mapping[str, tuple[Dispute, ...]]
) -> dict[str, list[RequirementEntry]]:
    known = verdicts(rows)
    flips = {row.run.target: requirement_flips(row.history) for row in rows}
    reasons = {row.run.target: _reasons(row.run.result) for row in rows}
    by_software: dict[str, list[TargetRunResult]] = {}
    for row in rows:
        by_software.setdefault(row.run.software, []).append(row.run)
    compared = {name: runs for name, runs in by_software.items() if len(runs) > 1}

    def verdict(run: TargetRunResult, requirement: str) -> str:
        return known[run.target].get(requirement, "")

    def entry(requirement: RequirementResult) -> RequirementEntry:
        by_target = tuple(
            TargetVerdict(
                target=row.run.target,
                folder=row.run.slug,
                verdict=reached,
                reason=reasons[row.run.target].get(requirement.id, ""),
                flips=flips[row.run.target].get(requirement.id, FlipRate(0, 0)),
            )
            for row in rows
            if (reached := verdict(row.run, requirement.id))
        )
        ages = tuple(
            since([(run.version, verdict(run, requirement.id)) for run in runs], software)
            for software, runs in compared.items()
            if any(verdict(run, requirement.id) for run in runs)
        )
        return RequirementEntry(requirement, by_target, ages, disputes.get(requirement.id, ()))

    return {group: [entry(one) for one in members] for group, members in requirements(rows).items()}


def _reasons(result: RunResult) -> dict[str, str]:
    """By requirement, the words of its first check that did not pass, or its note."""
    found = {one.id: one.note for one in result.requirements if one.note}
    for check in reversed(result.checks):
        if check.outcome is not Outcome.PASSED:
            found |= dict.fromkeys(check.requirements, check.waiver or check.message)
    return found


def _for_machines(
    title: str,
    made: Iterable[ProtocolMatrix],
    entries: dict[str, list[RequirementEntry]],
    changes: Iterable[RunComparison],
    unstable: Iterable[UnstableCheck],
) -> bytes:
    """``index.json``. Paths in it are relative to it."""
    content = {
        "schema": SCHEMA,
        "title": title,
        "targets": [_target(row) for table in made for row in table.rows],
        "requirements": [_requirement(entry) for members in entries.values() for entry in members],
        "changes": [_change(change) for change in changes],
        "unstable": [
            {
                "check": one.check,
                "target": one.target.target,
                "flips": one.flips.flips,
                "pairs": one.flips.pairs,
            }
            for one in unstable
        ],
    }
    return msgspec.json.encode(result_json.escape_surrogates(content)) + b"\n"


def _target(row: TargetRow) -> dict[str, Any]:
    result = row.run.result
    return {
        "target": row.run.target,
        "software": row.run.software,
        "version": row.run.version,
        "protocol": result.target.protocol,
        "kind": result.target.kind,
        "page": f"targets/{row.run.slug}/index.html",
        "report": f"targets/{row.run.slug}/{row.run.stamp}.html",
        "verdict": result.summary.verdict,
        "exit_code": result.summary.exit_code,
        "claimed": result.summary.claimed,
        "tested": result.summary.tested,
        "passed": result.summary.passed,
        "started": result.summary.started,
        "suite": result.suite.version,
        "requirement_set": result.suite.requirement_set,
        "groups": [
            {
                "group": cell.group,
                "claimed": cell.score.counts.claimed,
                "tested": cell.score.counts.tested,
                "passed": cell.score.counts.passed,
                "failed": cell.score.failed,
                "waived": cell.score.waived,
                "unsupported": cell.score.unsupported,
            }
            for cell in row.cells
        ],
        "history": [
            {
                "started": run.result.summary.started,
                "verdict": run.result.summary.verdict,
                "claimed": run.result.summary.claimed,
                "passed": run.result.summary.passed,
                "requirement_set": run.result.suite.requirement_set,
            }
            for run in row.history
        ],
    }


def _requirement(entry: RequirementEntry) -> dict[str, Any]:
    requirement = entry.requirement
    return {
        "id": requirement.id,
        "level": requirement.level.value,
        "page": f"requirements/{slug(group_of(requirement))}.html#{requirement.id}",
        "verdicts": {one.target: one.verdict for one in entry.verdicts},
        "flips": {
            one.target: {"flips": one.flips.flips, "pairs": one.flips.pairs}
            for one in entry.verdicts
            if one.flips.flips
        },
        "since": {age.software: {"release": age.release, "text": age.text} for age in entry.since},
    }


def _change(change: RunComparison) -> dict[str, Any]:
    pick: Callable[[Any], list[str]] = lambda changes: [one.requirement.id for one in changes]  # noqa: E731
    return {
        "before": change.before.target,
        "after": change.after.target,
        "page": change.page,
        "newly_failing": pick(change.comparison.newly_failing),
        "newly_passing": pick(change.comparison.newly_passing),
        "waivers": pick(change.comparison.waivers),
        "other": pick(change.comparison.other),
    }
