"""Text with holes: ``{name}`` takes or gives a capture, ``{:int}`` means any number.

A template is a tuple of plain strings and holes. In what is sent every hole is filled; in what is
expected a hole whose capture is not taken yet matches by its kind, and takes it. Pure: a ``TraceScope``
says what names and captures stand for.
"""

from __future__ import annotations

import re
from enum import StrEnum

from msgspec import Struct, field

from plumbline.conformance.trace.names import Names


class CaptureKind(StrEnum):
    """What an open hole matches; the value is what a trace writes behind the colon."""

    WORD = "word"  # up to a blank
    TOKEN = "token"  # up to a dot: a word inside a dotted subject
    INT = "int"
    NS = "ns"  # nanoseconds since the epoch, as ack subjects carry them
    TEXT = "text"  # everything up to the end of the segment, also nothing
    TIME = "time"  # RFC 3339
    ANY = "any"  # JSON: any value
    ABSENT = "absent"  # no such header or field of JSON; {:absent|false} allows that value
    CHOICE = "choice"  # alternatives, written {:404|408}


# The kinds a trace may write by name.
WRITTEN_KINDS = (
    CaptureKind.INT,
    CaptureKind.NS,
    CaptureKind.TEXT,
    CaptureKind.TIME,
    CaptureKind.WORD,
    CaptureKind.ANY,
    CaptureKind.ABSENT,
)

SHAPES: dict[CaptureKind, str] = {
    CaptureKind.WORD: r"\S+",
    CaptureKind.TOKEN: r"[^\s.]+",
    CaptureKind.INT: r"-?[0-9]+",
    CaptureKind.NS: r"[0-9]{19}",
    CaptureKind.TEXT: r".*",
    CaptureKind.TIME: (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}(?::[0-9]{2}){2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    ),
    CaptureKind.ANY: r".+",
    CaptureKind.ABSENT: r"(?!)",
}


class NotANumberError(ValueError):
    """A capture that a trace calculates with, and that is no number."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__(f"the capture {{{name}}} is {value[:40]!r}, which is no number to calculate with")


class Hole(Struct, frozen=True):
    """A place for a capture. ``name`` is empty if nothing is captured; ``operand`` is added or subtracted."""

    source: str  # as written, braces included
    name: str = ""
    kind: CaptureKind = CaptureKind.WORD
    choices: tuple[str, ...] = ()
    sign: int = 0
    operand: str = ""

    def value(self, scope: TraceScope) -> str | None:
        """What the captures taken so far make of it; None if they do not say. Raises ``NotANumberError``."""
        value = scope.captures.get(self.name)
        if value is None or not self.sign:
            return value
        operand = self.operand if self.operand.isdigit() else scope.captures.get(self.operand)
        if operand is None:
            return None
        return str(_number(self.name, value) + self.sign * _number(self.operand, operand))

    def shape(self) -> str:
        """The regular expression of what the open hole matches."""
        if self.kind is CaptureKind.CHOICE:
            return "|".join(re.escape(choice) for choice in self.choices)
        return SHAPES[self.kind]


class SubjectHole(Struct, frozen=True):
    """``{subject ORDERS.new}``: the subject as it is on the wire, inside any text."""

    source: str
    subject: Subject

    def value(self, scope: TraceScope) -> str:
        return fill(self.subject.template(scope), scope)


Template = tuple[str | Hole | SubjectHole, ...]


class Subject(Struct, frozen=True):
    """A dotted subject, token by token."""

    tokens: tuple[Template, ...]

    @property
    def plain(self) -> list[str | None]:
        """The tokens; None for one that has holes."""
        return [plain(token) for token in self.tokens]

    def template(self, scope: TraceScope) -> Template:
        """With the names that stand on the wire."""
        joined: list[str | Hole | SubjectHole] = []
        for token, name in zip(self.tokens, scope.names.subject(self.plain), strict=True):
            joined += [".", *(token if name is None else (name,))]
        return tuple(joined[1:])


class NameOrText(Struct, frozen=True):
    """Text that may be a name or a subject as a whole: a JSON string, the value of a header."""

    template: Template
    subject: Subject | None = None

    def resolved(self, scope: TraceScope) -> Template:
        """With the names that stand on the wire."""
        return self.subject.template(scope) if self.subject else self.template


class TraceScope(Struct, frozen=True):
    """The values of the words of a trace at one moment of its play.

    ``received`` has the subjects that the target sent in another layout than the trace writes them: by the
    written text, the one to send back.
    """

    names: Names
    captures: dict[str, str]
    received: dict[str, str] = field(default_factory=dict)

    def fork(self) -> TraceScope:
        """A copy whose captures can be thrown away."""
        return TraceScope(self.names, dict(self.captures), self.received)


def plain(template: Template) -> str | None:
    """The text of a template without holes; None if it has some."""
    if not template:
        return ""
    return template[0] if len(template) == 1 and isinstance(template[0], str) else None


def is_absent(template: Template) -> bool:
    """Whether there must be nothing, written ``{:absent}``."""
    return any(isinstance(part, Hole) and part.kind is CaptureKind.ABSENT for part in template)


def fill(template: Template, scope: TraceScope) -> str:
    """The text of what is sent; the parser has seen to it that every capture was taken."""
    return "".join(part if isinstance(part, str) else _filled(part, scope) for part in template)


def show(template: Template, scope: TraceScope) -> str:
    """For reports: what is known is filled in, what is open stays as written."""
    return "".join(part if isinstance(part, str) else part.value(scope) or part.source for part in template)


def match(template: Template, actual: str, scope: TraceScope, flags: re.RegexFlag = re.DOTALL) -> bool:
    """Whether ``actual`` is what the template says; if so, its captures are added to the scope."""
    holes: list[Hole] = []
    shape = ""
    for part in template:
        value = part if isinstance(part, str) else part.value(scope)
        if value is not None:
            shape += re.escape(value)
        elif isinstance(part, Hole):
            shape += f"({part.shape()})"
            holes.append(part)
    found = re.fullmatch(shape, actual, flags)
    if found is None:
        return False
    taken: dict[str, str] = {}
    for hole, value in zip(holes, found.groups(), strict=True):
        if hole.name and not hole.sign and taken.setdefault(hole.name, value) != value:
            return False
    scope.captures.update(taken)
    return True


def token_difference(expected: str, actual: str) -> str:
    """``token 5: 2, not 1`` for two subjects of one length; nothing otherwise."""
    expected_tokens, found = expected.split("."), actual.split(".")
    if len(expected_tokens) != len(found) or len(expected_tokens) < 3:
        return ""
    apart = [
        f"token {position}: {actual_token}, not {expected_token}"
        for position, (expected_token, actual_token) in enumerate(zip(expected_tokens, found, strict=True), 1)
        if expected_token != actual_token and "{" not in expected_token and expected_token != "*"
    ]
    return "; ".join(apart)


def as_text(data: bytes) -> str:
    """Bytes as the text that templates match; every byte string has one."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """The bytes of such a text."""
    return text.encode("utf-8", "surrogateescape")


def _filled(hole: Hole | SubjectHole, scope: TraceScope) -> str:
    value = hole.value(scope)
    if value is None:
        raise LookupError(f"{hole.source} was never captured")
    return value


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,20}", value):
        raise NotANumberError(name, value)
    return int(value)
