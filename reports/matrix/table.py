"""The matrix itself: a row a target, a column a group, and since which release a requirement is met. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from plumbline.reports.digest import Score, group_of, score, scores_by_group, selected
from plumbline.reports.matrix.runs import TargetRunResult, in_order
from plumbline.verdicts import Level, Outcome, RequirementResult

PROTOCOLS = {"nats": "NATS", "amqp": "AMQP 0-9-1"}
_PASSING = (Outcome.PASSED.value, Outcome.STALE_WAIVER.value)
_FAILING = (Outcome.FAILED.value, Outcome.WAIVED.value)


class Cell(Struct, frozen=True):
    """The outcome of one group on one target. ``tone`` is good, bad, some, open or none."""

    group: str
    score: Score
    tone: str

    @property
    def text(self) -> str:
        """``47/48``, passed of claimed; nothing claimed is a dash."""
        return f"{self.score.counts.passed}/{self.score.counts.claimed}" if self.score.counts.claimed else "-"

    @property
    def words(self) -> str:
        """The same in words, for those who hear it or hover over it."""
        row = self.score
        parts = [f"{row.counts.passed} of {row.counts.claimed} passed"] if row.counts.claimed else []
        for count, word in (
            (row.failed, "failed"),
            (row.waived, "waived"),
            (row.undecided, "undecided"),
            (row.unsupported, "unsupported"),
        ):
            parts += [f"{count} {word}"] if count else []
        return f"{row.name}: {', '.join(parts) or 'not part of this run'}"


class TargetRow(Struct, frozen=True):
    """One target: its latest run, those before it, and a cell for every group of the table."""

    run: TargetRunResult
    history: tuple[TargetRunResult, ...]  # the oldest first, the latest run last
    cells: tuple[Cell, ...]

    @property
    def waived(self) -> int:
        """Requirements that are known to be broken: a verdict with many of them says little."""
        return sum(cell.score.waived for cell in self.cells)


class ProtocolMatrix(Struct, frozen=True):
    """The targets of one protocol: servers, or (``kind``) client libraries."""

    protocol: str
    kind: str
    groups: tuple[str, ...]
    rows: tuple[TargetRow, ...]

    @property
    def title(self) -> str:
        """Its heading."""
        name = PROTOCOLS.get(self.protocol, self.protocol)
        return name if self.kind == "server" else f"{name} client libraries"

    @property
    def anchor(self) -> str:
        """The id of its heading."""
        return self.protocol if self.kind == "server" else f"{self.protocol}-clients"

    @property
    def headings(self) -> tuple[str, ...]:
        """The groups without what all of their names begin with, so that a table of many is not too wide."""
        first = {group.partition("-")[:2] for group in self.groups}
        shared = "".join(*first) if len(first) == 1 else ""
        return tuple(group.removeprefix(shared) or group for group in self.groups)


class SupportedSince(Struct, frozen=True):
    """From which release of a software on a requirement is met, as far as releases were run."""

    software: str
    text: str
    release: str = ""  # the first that meets it, if all later ones do


def tables(runs: Iterable[TargetRunResult]) -> list[ProtocolMatrix]:
    """One for servers and one for client libraries of each protocol, with the latest run of each target."""
    tables: dict[tuple[str, str], dict[str, list[TargetRunResult]]] = {}
    for run in in_order(runs):
        table = run.result.target.protocol, run.result.target.kind
        tables.setdefault(table, {}).setdefault(run.target, []).append(run)
    return [_table(protocol, kind, list(found.values())) for (protocol, kind), found in tables.items()]


def _table(protocol: str, kind: str, targets: Sequence[Sequence[TargetRunResult]]) -> ProtocolMatrix:
    scored = [{row.name: row for row in scores_by_group(history[-1].result)} for history in targets]
    groups = tuple(dict.fromkeys(name for row in scored for name in row))
    rows = [
        TargetRow(
            history[-1], tuple(history), tuple(_cell(name, found.get(name), history[-1]) for name in groups)
        )
        for history, found in zip(targets, scored, strict=True)
    ]
    return ProtocolMatrix(protocol, kind, groups, tuple(rows))


def _cell(group: str, found: Score | None, run: TargetRunResult) -> Cell:
    if found is None or not found.counts.claimed:
        return Cell(group, found or score(group, []), "none")
    failed = [
        requirement.level
        for requirement in selected(run.result)
        if group_of(requirement) == group and requirement.verdict == Outcome.FAILED.value
    ]
    if Level.MUST in failed:
        return Cell(group, found, "bad")
    if found.undecided:
        return Cell(group, found, "open")
    return Cell(group, found, "some" if failed or found.waived else "good")


def requirements(rows: Iterable[TargetRow]) -> dict[str, list[RequirementResult]]:
    """Every requirement that a target was asked about, by group, in order."""
    found: dict[str, RequirementResult] = {}
    for row in rows:
        for requirement in selected(row.run.result):
            found.setdefault(requirement.id, requirement)
    groups: dict[str, list[RequirementResult]] = {}
    for requirement in sorted(found.values(), key=lambda known: known.id):
        groups.setdefault(group_of(requirement), []).append(requirement)
    return groups


def verdicts(rows: Iterable[TargetRow]) -> dict[str, dict[str, str]]:
    """By target, then by requirement: what became of what it was asked about."""
    return {row.run.target: {found.id: found.verdict for found in selected(row.run.result)} for row in rows}


def since(releases: Sequence[tuple[str, str]], software: str) -> SupportedSince:
    """``releases``: pairs of release and verdict, the oldest first. Undecided ones say nothing."""
    passing = [
        (release, verdict in _PASSING) for release, verdict in releases if verdict in (*_PASSING, *_FAILING)
    ]
    absent = [release for release, verdict in releases if verdict == Outcome.UNSUPPORTED.value]
    if not passing:
        return SupportedSince(
            software, "not claimed by any release that was run" if absent else "no evidence"
        )
    met = [passed for _, passed in passing]
    first = passing[0][0]
    if all(met):
        if absent and len(passing) < len(releases):
            return SupportedSince(software, f"since {first}; not claimed by {', '.join(absent)}", first)
        return SupportedSince(software, "every release that was run")
    if not any(met):
        return SupportedSince(software, "no release that was run")
    turn = met.index(not met[0])
    if all(passed != met[0] for passed in met[turn:]):
        release = passing[turn][0]
        if met[0]:
            return SupportedSince(software, f"up to {passing[turn - 1][0]}; broken since {release}")
        return SupportedSince(software, f"since {release}; failed in {passing[turn - 1][0]}", release)
    broken = ", ".join(release for release, passed in passing if not passed)
    return SupportedSince(software, f"not by {broken}")
