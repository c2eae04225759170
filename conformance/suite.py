"""All checks of the suite, and which to run: traces are files, functions are in ``conformance/checks``."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType

from plumbline.conformance.check import Check, check_of
from plumbline.conformance.packaged import CHECKS, HERE, TRACES, resolved
from plumbline.conformance.requirements.references import check_files
from plumbline.conformance.trace.check import load_headers
from plumbline.errors import PlumblineError


class UnknownPatternError(PlumblineError, ValueError):
    """A ``--select`` pattern that matches nothing; the text offers what may have been meant."""


def all_checks(protocol: str = "") -> list[Check]:
    """Every packaged check (that speaks ``protocol``), traces first, each kind in the order of paths.

    Traces read their steps when they run.
    """
    return [check for check in _packaged_checks() if protocol in ("", check.protocol)]


@cache
def _packaged_checks() -> list[Check]:
    traces = [check for path in sorted(TRACES.rglob("*.trace")) for check in load_headers(path)]
    functions = [check for path in check_files(CHECKS) for check in checks_in(import_module(path))]
    return traces + functions


def import_module(path: Path) -> ModuleType:
    """The module of one file below ``conformance/checks``."""
    below = resolved(path).relative_to(HERE).with_suffix("")
    name = ".".join(("plumbline", "conformance", *below.parts))
    if name not in sys.modules:
        importlib.import_module(name)
    return sys.modules[name]


def checks_in(module: ModuleType) -> list[Check]:
    """The marked functions that a module defines, in the order they are written."""
    functions = [value for value in vars(module).values() if isinstance(value, FunctionType)]
    found = [check_of(value) for value in functions if value.__module__ == module.__name__]
    return [check for check in found if check is not None]


def select(checks: Iterable[Check], patterns: Sequence[str]) -> list[Check]:
    """The checks with an id or a requirement that matches a pattern (``JS-PULL-*``); all without patterns.

    Raises ``UnknownPatternError`` if one matches nothing.
    """
    checks = list(checks)
    if not patterns:
        return checks
    for pattern in patterns:
        if not any(matches(check, pattern) for check in checks):
            raise UnknownPatternError(_unknown(pattern, checks))
    return [check for check in checks if any(matches(check, pattern) for pattern in patterns)]


def select_cases(cases: Sequence[Check], patterns: Sequence[str]) -> Sequence[Check]:
    """Of the checks of one file those with an id that matches a pattern; all if none does."""
    found = [case for case in cases if any(fnmatchcase(case.id, pattern) for pattern in patterns)]
    return found or cases


def matches(check: Check, pattern: str) -> bool:
    """Whether ``pattern`` names ``check``, by its id or by a requirement."""
    return fnmatchcase(check.id, pattern) or any(fnmatchcase(name, pattern) for name in check.requirements)


def _unknown(pattern: str, checks: list[Check]) -> str:
    known = sorted({name for check in checks for name in (check.id, *check.requirements)})
    near = difflib.get_close_matches(pattern, known, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "patterns look like 'JS-PULL-*' or 'adr-13/*'."
    return (
        f"--select {pattern!r} matches no requirement and no check: {hint} `plumbline list` shows them all."
    )
