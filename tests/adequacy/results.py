"""What became of each mutant, in a file that grows: an interrupted run goes on where it was."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

EQUIVALENTS = Path(__file__).parent / "equivalents.toml"
SURVIVORS = tuple(Path(__file__).parent / f"survivors_{protocol}.toml" for protocol in ("amqp", "nats"))


class Status(StrEnum):
    """The result of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNREACHED = "not reached"  # no check runs the line
    EQUIVALENT = "equivalent"  # survived, and the reviewed list says why no check can kill it


class Killed(StrEnum):
    """How a check killed a mutant."""

    FAILED = "failed"
    CRASH = "crash"  # the core raised an exception
    TIMEOUT = "timeout"  # the core did not come to an end
    NO_START = "no start"  # nothing could connect


class Result(Struct, frozen=True, omit_defaults=True):
    """Of one mutant. ``killer``: the check; ``how`` and ``evidence``: what it saw.

    ``noticed``: checks that neither passed nor failed. ``fingerprint``: of the sources it was run with.
    ``checks``: how many ran, of ``reaching``.
    """

    id: str
    fingerprint: str
    status: Status
    module: str
    function: str
    killer: str = ""
    how: str = ""
    evidence: str = ""
    noticed: tuple[str, ...] = ()
    checks: int = 0
    reaching: int = 0
    seconds: float = 0.0


class ResultsFile:
    """Results, one line of JSON each. The last one of a mutant counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.by_id: dict[str, Result] = {}
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    result = msgspec.json.decode(line, type=Result)
                except msgspec.DecodeError:
                    continue  # the end of a run that was killed
                self.by_id[result.id] = result

    def add(self, result: Result) -> None:
        """Write one."""
        self.by_id[result.id] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")

    def current(self, identity: str, fingerprint: str) -> Result | None:
        """The result of a mutant, if it was run with these sources."""
        result = self.by_id.get(identity)
        return result if result is not None and result.fingerprint == fingerprint else None


class Equivalent(Struct, frozen=True, forbid_unknown_fields=True):
    """A mutant that behaves as the original, or differs only where no rule says anything."""

    id: str
    module: str
    function: str
    change: str
    reason: str

    def __str__(self) -> str:
        return f"{self.id} {self.module} {self.function}: {self.change}"


class Survivors(Struct, frozen=True, forbid_unknown_fields=True):
    """Mutants that no check has killed, for one reason. Each of ``mutants``: its id, function and change."""

    module: str
    kind: Literal["gap", "not required", "undecided"]
    reason: str
    mutants: list[str]


class _EquivalentsFile(Struct, forbid_unknown_fields=True):
    equivalent: list[Equivalent] = []


class _SurvivorsFile(Struct, forbid_unknown_fields=True):
    survivors: list[Survivors] = []


def equivalents(path: Path = EQUIVALENTS) -> dict[str, Equivalent]:
    """The reviewed list, by id."""
    listed = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _EquivalentsFile).equivalent
    return {each.id: each for each in listed}


def survivors(paths: Iterable[Path] = SURVIVORS) -> list[Survivors]:
    """Those of past runs that are not equivalent."""
    files = (msgspec.convert(tomllib.loads(path.read_text("utf-8")), _SurvivorsFile) for path in paths)
    return [group for file in files for group in file.survivors]


def survivors_by_id(groups: Iterable[Survivors]) -> dict[str, str]:
    """Module, function and change of each mutant in the groups, by its id."""
    split = ((group.module, *mutant.split(" ", 1)) for group in groups for mutant in group.mutants)
    return {name: f"{module} {change}" for module, name, change in split}


class Score(Struct, frozen=True):
    """Of a module, or of all."""

    killed: int = 0
    survived: int = 0
    unreached: int = 0
    equivalent: int = 0

    @property
    def mutants(self) -> int:
        return self.killed + self.survived + self.unreached + self.equivalent

    @property
    def percent(self) -> float:
        """Killed ones, of those that are not equivalent."""
        judged = self.mutants - self.equivalent
        return 100.0 * self.killed / judged if judged else 100.0


def score(results: Iterable[Result]) -> Score:
    """Counts the results."""
    statuses = [result.status for result in results]
    return Score(
        statuses.count(Status.KILLED),
        statuses.count(Status.SURVIVED),
        statuses.count(Status.UNREACHED),
        statuses.count(Status.EQUIVALENT),
    )
