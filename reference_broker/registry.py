"""A registry of deliberate faults of one kind of broker: found by name, applied to a freshly built one.

A defect is a function that replaces one method or one value on the instance it is given; the core knows
nothing of defects. Each group of requirements has modules of its own, below the package whose ``__path__``
the registry gets. A defect is declared like a check: a function with ``@defect("JS-ACK-001")`` above it,
whose docstring says in one sentence what is wrong.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from plumbline.errors import PlumblineError

B = TypeVar("B")


class Defect(Struct, Generic[B], frozen=True):
    """One fault: its name, the requirements it breaks, and what is wrong, in a sentence.

    ``needs`` names what the broker must be configured with to show it, such as ``jetstream``.
    """

    name: str
    breaks: tuple[str, ...]
    summary: str
    alter: Callable[[B], None]
    needs: tuple[str, ...] = ()


class UnknownDefectError(PlumblineError, ValueError):
    """There is no defect of that name; the text says which are like it."""


class Registry(Generic[B]):
    """The defects of one kind of broker."""

    def __init__(self, package: str, path: list[str]) -> None:
        self._package = package
        self._path = path
        self._defects: dict[str, Defect[B]] = {}

    def defect(
        self,
        *requirements: str,
        name: str | None = None,
        needs: tuple[str, ...] = (),
    ) -> Callable[[Callable[[B], None]], Callable[[B], None]]:
        """Register the decorated function as a defect that breaks these requirements.

        Its name is the function's, with "-" for "_"; give ``name`` where that is no Python identifier. Its
        summary is the first paragraph of the docstring. Raises what ``add`` raises.
        """

        def register(alter: Callable[[B], None]) -> Callable[[B], None]:
            called = name or alter.__name__.replace("_", "-")
            self.add(Defect(called, requirements, _summary(alter), alter, needs))
            return alter

        return register

    def add(self, defect: Defect[B]) -> None:
        """Register a defect.

        Raises ``ValueError`` if it has no requirement or no summary, or if its name is taken.
        """
        if not defect.breaks:
            raise ValueError(f"the defect {defect.name!r} breaks no requirement")
        if not defect.summary:
            raise ValueError(f"the defect {defect.name!r} has no summary")
        if defect.name in self._defects:
            raise ValueError(f"two defects are called {defect.name!r}")
        self._defects[defect.name] = defect

    def all_defects(self) -> list[Defect[B]]:
        """Every defect there is, by the first requirement it breaks."""
        for module in pkgutil.walk_packages(self._path, f"{self._package}."):
            importlib.import_module(module.name)
        return sorted(self._defects.values(), key=lambda one: (one.breaks, one.name))

    def find(self, name: str) -> Defect[B]:
        """The defect of that name. Raises ``UnknownDefectError``."""
        names = [one.name for one in self.all_defects()]
        if name not in self._defects:
            near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(near)}?" if near else "--list-defects shows them all."
            raise UnknownDefectError(f"unknown defect {name!r}: {hint}")
        return self._defects[name]


def _summary(alter: Callable[[B], None]) -> str:
    """The first paragraph of the docstring, in one line."""
    paragraph, _, _ = inspect.cleandoc(alter.__doc__ or "").partition("\n\n")
    return " ".join(paragraph.split())


def replace(owner: object, name: str, value: object) -> None:
    """Put ``value`` in the place of a method or attribute of ``owner``, on this instance alone."""
    getattr(owner, name)  # a misspelled name must not pass for a defect
    setattr(owner, name, value)
