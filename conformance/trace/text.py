"""Text with its position in the file, and errors that point to it.

Blanks are spaces and tabs, lines end at line feeds; nothing else of Unicode is a blank or a line end.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from plumbline.errors import PlumblineError

BLANKS = " \t"
_MAX_QUOTE = 60
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_WORD = re.compile(r"[^ \t]+")


class Text(Struct, frozen=True):
    """A piece of a trace file. If it spans lines, those after the first begin at column 1."""

    value: str
    line: int = 1
    column: int = 1

    def __bool__(self) -> bool:
        return bool(self.value)

    def place(self, offset: int = 0) -> tuple[int, int]:
        """Line and column of the character at ``offset``, both counted from 1."""
        newlines = self.value.count("\n", 0, offset)
        if not newlines:
            return self.line, self.column + offset
        before = self.value[:offset]
        return self.line + newlines, offset - before.rfind("\n")

    def cut(self, start: int, end: int | None = None) -> Text:
        """The characters from ``start`` to ``end``."""
        line, column = self.place(start) if start else (self.line, self.column)
        return Text(self.value[start:end], line, column)

    def strip(self) -> Text:
        """Without the blanks around it."""
        stripped = self.value.strip(BLANKS)
        if len(stripped) == len(self.value):
            return self
        start = len(self.value) - len(self.value.lstrip(BLANKS))
        return self.cut(start, start + len(stripped))

    def words(self) -> list[Text]:
        """Its parts between runs of blanks."""
        return [self.cut(*match.span()) for match in _WORD.finditer(self.value)]

    def first_word(self) -> tuple[Text, Text]:
        """The first word, and what follows it without the blanks around."""
        text = self.strip()
        word = _WORD.match(text.value)
        end = word.end() if word else 0
        return text.cut(0, end), text.cut(end).strip()


class TraceLineError(Exception):
    """One thing wrong with a trace: where, what was expected there and what stands there."""

    def __init__(self, path: tuple[int, int], expected: str, found: str, advice: str = "") -> None:
        self.line, self.column = path
        self._parts = (expected, found, advice)
        self.message = f"expected {expected}, found {found}" + (f"; {advice}" if advice else "")
        super().__init__(self.message)

    @classmethod
    def at(cls, text: Text, expected: str, advice: str = "", *, offset: int = 0) -> TraceLineError:
        """A problem that begins at ``offset`` of ``text``."""
        rest = text.value[offset:]
        return cls(text.place(offset), expected, quoted(rest) if rest else "the end of the line", advice)

    def moved(self, place: tuple[int, int], advice: str = "") -> TraceLineError:
        """The same problem at another place, with more advice."""
        expected, found, first = self._parts
        return TraceLineError(place, expected, found, "; ".join(filter(None, (first, advice))))


def quoted(value: str) -> str:
    """``value`` as it is shown in a message: on one line, not too long."""
    shown = value if len(value) <= _MAX_QUOTE else value[: _MAX_QUOTE - 3] + "..."
    return '"' + shown.encode("unicode_escape").decode() + '"'


def near(word: str, known: Iterable[str]) -> str:
    """``did you mean MSG?``, or nothing if no known word is near."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[found[0]]}?" if found else ""


class TraceSyntaxError(PlumblineError):
    """A file that is not a trace: all its problems, in the order of its lines."""

    def __init__(self, path: str, lines: Sequence[str], problems: Iterable[TraceLineError]) -> None:
        self.path = path
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        super().__init__("\n".join(_shown(path, lines, problem) for problem in self.problems))


def split_lines(text: str) -> list[str]:
    """The lines of a file, without their ends."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def require_utf8(lines: Sequence[str], path: str) -> None:
    """Raises ``TraceSyntaxError`` for bytes that are no text; they were read with ``surrogateescape``."""
    for number, line in enumerate(lines, 1):
        wrong = _NOT_TEXT.search(line)
        if wrong is not None:
            place = number, wrong.start() + 1
            problem = TraceLineError(place, "text in UTF-8", f"U+{ord(wrong[0]):04X}")
            raise TraceSyntaxError(path, lines, [problem])


def _shown(path: str, lines: Sequence[str], problem: TraceLineError) -> str:
    head = f"{path}:{problem.line}:{problem.column}: {problem.message}"
    if not 0 < problem.line <= len(lines):
        return head
    line = lines[problem.line - 1]
    caret = re.sub(r"[^\t]", " ", line[: problem.column - 1]).ljust(problem.column - 1) + "^"
    return f"{head}\n    {line}\n    {caret}"
