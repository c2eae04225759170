"""Which check names which requirement and which variant, read from the files without running anything.

Traces are read by their header lines, Python checks by their syntax tree: so a check that cannot even be
imported is still seen. This module judges nothing but what it cannot read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

CONFORMANCE = Path(__file__).resolve().parents[1]

_STEP = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9_-]*)?[<>]")  # where a trace's header ends


class Reference(Struct, frozen=True):
    """A name in a file: a requirement's id or a variant. ``where`` is file:line."""

    name: str
    where: str


class WrittenCheck(Struct, frozen=True):
    """One check as it stands in its file. ``id`` is what verdicts call it."""

    id: str
    where: str
    requirements: tuple[Reference, ...]
    variant: Reference | None = None


class Written(Struct, frozen=True):
    """All checks of a folder, and what is wrong with those that cannot be read."""

    checks: tuple[WrittenCheck, ...]
    problems: tuple[str, ...] = ()

    def verifying(self, requirement: str) -> list[WrittenCheck]:
        """The checks that name this requirement."""
        return [check for check in self.checks if any(r.name == requirement for r in check.requirements)]


def written_checks(conformance: Path = CONFORMANCE) -> Written:
    """The checks below ``traces/`` and ``checks/`` of a ``conformance`` folder, traces first."""
    problems: list[str] = []
    traces = conformance / "traces"
    checks = [_trace(path, traces, conformance) for path in sorted(traces.rglob("*.trace"))]
    for path in check_files(conformance / "checks"):
        checks += _functions(path, _shown(path, conformance), problems)
    problems += [
        f"{check.where}: {check.id} verifies no requirement; name at least one"
        for check in checks
        if not check.requirements
    ]
    return Written(tuple(checks), tuple(problems))


def check_files(checks: Path) -> list[Path]:
    """The modules of checks below a folder, in the order of their names, which are their checks' ids."""
    return sorted(checks.rglob("test_*.py"), key=lambda path: path.name)


def _shown(path: Path, conformance: Path) -> str:
    return f"conformance/{path.relative_to(conformance).as_posix()}"


def _trace(path: Path, traces: Path, conformance: Path) -> WrittenCheck:
    shown = _shown(path, conformance)
    requirements: list[Reference] = []
    variant = None
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if _STEP.match(line):
            break
        word, *rest = line.split() or [""]
        names = [Reference(name, f"{shown}:{number}") for name in rest]
        if word == "verifies":
            requirements += names
        if word == "variant" and names:
            variant = names[0]
    identity = path.relative_to(traces).with_suffix("").as_posix()
    return WrittenCheck(identity, f"{shown}:1", tuple(requirements), variant)


def _functions(path: Path, shown: str, problems: list[str]) -> Iterator[WrittenCheck]:
    try:
        module = ast.parse(path.read_bytes(), filename=shown)
    except SyntaxError as error:
        problems.append(f"{shown}:{error.lineno}: not Python: {error.msg}")
        return
    texts = _Texts(shown, _constants(module), problems)
    for function in module.body:
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test_"):
            continue
        marks = [mark for mark in function.decorator_list if _is_verifies(mark)]
        calls = [mark for mark in marks if isinstance(mark, ast.Call)]
        requirements: list[Reference] = []
        variant = None
        for call in calls:
            requirements += texts.of(call.args)
            named = [keyword.value for keyword in call.keywords if keyword.arg == "variant"]
            variant = next(texts.of(named), variant)
        identity = f"{path.stem.removeprefix('test_')}::{function.name.removeprefix('test_')}"
        yield WrittenCheck(identity, f"{shown}:{function.lineno}", tuple(requirements), variant)


def _is_verifies(mark: ast.expr) -> bool:
    called = mark.func if isinstance(mark, ast.Call) else mark
    name = (
        called.id
        if isinstance(called, ast.Name)
        else called.attr
        if isinstance(called, ast.Attribute)
        else ""
    )
    return name == "verifies"


def _constants(module: ast.Module) -> dict[str, str]:
    """The module's names for texts: ``VARIANT = "auth"``."""
    return {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


class _Texts:
    """Reads arguments of ``@verifies`` in one module; what is no plain text there is a problem."""

    def __init__(self, shown: str, constants: dict[str, str], problems: list[str]) -> None:
        self._shown = shown
        self._constants = constants
        self._problems = problems

    def of(self, values: list[ast.expr]) -> Iterator[Reference]:
        for value in values:
            where = f"{self._shown}:{value.lineno}"
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield Reference(value.value, where)
            elif isinstance(value, ast.Name) and value.id in self._constants:
                yield Reference(self._constants[value.id], where)
            elif not (isinstance(value, ast.Constant) and value.value is None):
                self._problems.append(f"{where}: write ids and variants of @verifies as plain text")
