"""Which checks verify which requirements and use which variants; read from the files without importing them.

Traces are read by their header lines and tables, Python checks by their syntax tree: so a check that cannot
even be imported is still seen. This module judges nothing but what it cannot read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from plumbline.conformance.trace.language import HEADER, MARKED
from plumbline.conformance.trace.table import Filled, read_table
from plumbline.conformance.trace.text import Text, TraceSyntaxError, split_lines

CONFORMANCE = Path(__file__).resolve().parents[1]


class Reference(Struct, frozen=True):
    """A name in a file: a requirement's id or a variant. ``where`` is file:line."""

    name: str
    where: str


class CheckReference(Struct, frozen=True):
    """One check as its file has it. ``id`` is what verdicts call it.

    ``exchange`` are the lines of a trace without its header, as they are played; empty for a function.
    """

    id: str
    where: str
    requirements: tuple[Reference, ...]
    variant: Reference | None = None
    exchange: tuple[str, ...] = ()


class CheckReferences(Struct, frozen=True, dict=True):
    """All checks of a folder, and what is wrong with those that cannot be read."""

    checks: tuple[CheckReference, ...]
    problems: tuple[str, ...] = ()

    @cached_property
    def _by_requirement(self) -> Mapping[str, list[CheckReference]]:
        found: dict[str, list[CheckReference]] = {}
        for check in self.checks:
            for name in {reference.name for reference in check.requirements}:
                found.setdefault(name, []).append(check)
        return found

    def verifying(self, requirement: str) -> Sequence[CheckReference]:
        """The checks that name this requirement."""
        return self._by_requirement.get(requirement, ())

    def played(self, requirement: str) -> CheckReference | None:
        """The first trace that verifies this requirement: its exchange is the sample to show."""
        return next((check for check in self.verifying(requirement) if check.exchange), None)


def check_references(conformance: Path = CONFORMANCE) -> CheckReferences:
    """The checks below ``traces/`` and ``checks/`` of a ``conformance`` folder, traces first."""
    problems: list[str] = []
    traces = conformance / "traces"
    checks: list[CheckReference] = []
    for path in sorted(traces.rglob("*.trace")):
        checks += _traces(path, traces, _shown(path, conformance), problems)
    for path in check_files(conformance / "checks"):
        checks += _functions(path, _shown(path, conformance), problems)
    problems += [
        f"{check.where}: {check.id} verifies no requirement; name at least one"
        for check in checks
        if not check.requirements
    ]
    first = {check.id: check.where for check in reversed(checks)}
    problems += [
        f"{check.where}: {first[check.id]} is the check {check.id}, too; rename one of them"
        for check in checks
        if first[check.id] != check.where
    ]
    return CheckReferences(tuple(checks), tuple(problems))


def check_files(checks: Path) -> list[Path]:
    """The modules of checks below a folder, in the order of their names, which are their checks' ids."""
    return sorted(checks.rglob("test_*.py"), key=lambda path: path.name)


def _shown(path: Path, conformance: Path) -> str:
    return f"conformance/{path.relative_to(conformance).as_posix()}"


def _traces(path: Path, traces: Path, shown: str, problems: list[str]) -> Iterator[CheckReference]:
    lines = split_lines(path.read_text(encoding="utf-8", errors="replace"))
    name = path.relative_to(traces).with_suffix("")
    try:
        table = read_table(lines, shown)
    except TraceSyntaxError as error:
        problems.append(str(error))
        return
    if table is None:
        yield _trace(name.as_posix(), f"{shown}:1", Filled(lines), shown)
        return
    for case in table.cases:
        where = f"{shown}:{case.line}"
        yield _trace(name.with_name(case.name).as_posix(), where, table.filled(lines, case), shown)


def _trace(identity: str, where: str, trace: Filled, shown: str) -> CheckReference:
    requirements: list[Reference] = []
    variant = None
    header, exchange = _parts(trace.lines)
    for number, line in header:
        word, *rest = Text(line, number).words()
        names = [Reference(name.value, f"{shown}:{trace.origin(name.line, name.column)[0]}") for name in rest]
        if word.value == "verifies":
            requirements += names
        if word.value == "variant" and names:
            variant = names[0]
    return CheckReference(identity, where, tuple(requirements), variant, exchange)


def _parts(lines: Sequence[str]) -> tuple[list[tuple[int, str]], tuple[str, ...]]:
    """The header lines of a trace with their numbers; the lines below and between them, as written."""
    header: list[tuple[int, str]] = []
    others: list[str] = []
    for number, line in enumerate(lines, 1):
        if MARKED.match(line):
            others += lines[number - 1 :]
            break
        if line.split()[:1] and line.split()[0] in HEADER:
            header.append((number, line))
        else:
            others.append(line)
    return header, tuple("\n".join(others).strip("\n").split("\n"))


def _functions(path: Path, shown: str, problems: list[str]) -> Iterator[CheckReference]:
    try:
        module = ast.parse(path.read_bytes(), filename=shown)
    except SyntaxError as error:
        problems.append(f"{shown}:{error.lineno}: not Python: {error.msg}")
        return
    texts = _LiteralReader(shown, _constants(module), problems)
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
        yield CheckReference(identity, f"{shown}:{function.lineno}", tuple(requirements), variant)


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


class _LiteralReader:
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
