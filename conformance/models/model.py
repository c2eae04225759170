"""What every model has: its file, its steps, and how a step is written in a trace. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from plumbline.conformance.models.itf import states_of

FOLDER = Path(__file__).parent
GROUP, GROUP_END = "in any order", "end"


class ModelScript(Struct, frozen=True):
    """The lines of a trace, and for each the number of its step in the model, from 0."""

    lines: tuple[str, ...]
    steps: tuple[int, ...]

    def until(self, line: int) -> ModelScript:
        """The lines up to that one, from 0: nothing behind it decides. A group of lines is kept whole."""
        end = line + 1
        if self.lines[:end].count(GROUP) > self.lines[:end].count(GROUP_END):
            end += self.lines[end:].index(GROUP_END) + 1
        return ModelScript(self.lines[:end], self.steps[:end])


class StepWriter(Protocol):
    """Writes the steps of one trace, one after the other."""

    def lines(self, step: Any) -> Iterator[str]:
        """What is sent and expected at a step."""
        ...


class Model(Struct, frozen=True):
    """``step`` is the type of a state; ``writer`` makes a writer for the steps of a trace.

    ``requirements`` are what a difference after a command is nearest to, ``requirement`` after any other.
    """

    name: str
    file: str
    protocol: str
    step: type[Any]
    writer: Callable[[], StepWriter]
    requirement: str
    requirements: dict[str, str]

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    def requirement_of(self, command: str) -> str:
        """What a difference after that command is nearest to."""
        return self.requirements.get(command, self.requirement)

    def steps(self, itf: bytes) -> list[Any]:
        """A trace in the Informal Trace Format. Raises ``ModelTraceError``."""
        return states_of(itf, self.step)

    def script_of(self, steps: Sequence[Any]) -> ModelScript:
        """What is sent and expected at each step."""
        writer = self.writer()
        pairs = [(line, number) for number, step in enumerate(steps) for line in writer.lines(step)]
        return ModelScript(tuple(line for line, _ in pairs), tuple(number for _, number in pairs))

    def text(self, script: ModelScript, *, title: str, verifies: str) -> str:
        """The trace file."""
        return "\n".join([*self.header(title=title, verifies=verifies), *script.lines, ""])

    def header(self, *, title: str = "-", verifies: str = "-") -> list[str]:
        """The lines above the first of the script."""
        return [
            f"title     {title}",
            f"source    conformance/models/{self.file}",
            f"verifies  {verifies}",
            f"protocol  {self.protocol}",
        ]
