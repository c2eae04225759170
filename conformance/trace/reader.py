"""Reads the words of one trace: escapes, holes, subjects, names; and keeps what they introduce.

It refuses what could not be played: a capture used before it is taken, a subject that would reach
beyond the run's own names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from enum import StrEnum

from plumbline.conformance.trace.names import INBOX_PREFIX, inbox_label
from plumbline.conformance.trace.template import (
    WRITTEN_KINDS,
    CaptureKind,
    Hole,
    NameOrText,
    Subject,
    SubjectHole,
    Template,
)
from plumbline.conformance.trace.text import BLANKS, Text, TraceLineError, near

_HOLE = re.compile(
    r"\{(?:subject[ \t]+(?P<subject>[^\s{}]+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)?"
    r"(?:[ ]*(?P<sign>[+-])[ ]*(?P<operand>[0-9]{1,18}|[A-Za-z_][A-Za-z0-9_]*))?"
    r"(?::(?P<kind>[^{}\n]*))?)\}"
)
_HOLE_START = re.compile(r"\{[ ]*[A-Za-z_:]")  # any other brace is just a brace
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "{": "{", "}": "}", "|": "|", "*": "*", '"': '"'}
_ESCAPE_HELP = r"an escape (\n \r \t \xNN \\ \{ \} \| \* \")"
_HOLE_HELP = (
    r"a capture such as {seq}, {seq+1}, {seq:int}, {:404|408} or {subject ORDERS.new} (a plain brace is \{)"
)
# An outcome of splitting at dots must not split a hole or an escape.
_SUBJECT_PARTS = re.compile(r"\{[^{}]*\}|\\.|\.")
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Use(StrEnum):
    """Whether a word is sent or expected: it decides what a hole and ``*`` mean."""

    SENT = "sent"
    EXPECTED = "expected"


class TraceReader:
    """One trace being read. ``labels`` are its names so far, ``captures`` those taken so far.

    ``columns`` are those of its table of cases: no capture has such a name.
    """

    def __init__(self, columns: frozenset[str] = frozenset()) -> None:
        self._columns = columns
        self.labels: set[str] = set()
        self.captures: set[str] = set()
        self.literal = False  # the trace says "names literal"
        self.reserved: frozenset[str] = frozenset()  # words of the protocol's own subjects: no names
        self._taking = self.captures

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Captures taken inside can be calculated with only behind it: its order is not known."""
        self._taking = set()
        try:
            yield
        finally:
            self.captures |= self._taking
            self._taking = self.captures

    # -- templates ---------------------------------------------------------------------------

    def template(self, text: Text, use: Use, kind: CaptureKind = CaptureKind.WORD) -> Template:
        """``text`` with its escapes undone and its holes found; ``kind`` is that of an untyped hole."""
        value, parts, plain, position = text.value, list[str | Hole | SubjectHole](), "", 0
        while position < len(value):
            character = value[position]
            if character == "\\":
                decoded, position = self._escape(text, position)
                plain += decoded
            elif _HOLE_START.match(value, position):
                hole, end = self._hole(text, position, use, kind)
                if plain:
                    parts.append(_normal(plain))
                elif parts and use is Use.EXPECTED:
                    raise TraceLineError.at(text, "text between two captures", offset=position)
                parts.append(hole)
                plain, position = "", end
            else:
                plain += character
                position += 1
        if plain:
            parts.append(_normal(plain))
        return tuple(parts)

    def _escape(self, text: Text, position: int) -> tuple[str, int]:
        following = text.value[position + 1 : position + 2]
        if following in _ESCAPES and following:
            return _ESCAPES[following], position + 2
        number = re.compile(r"x([0-9A-Fa-f]{2})").match(text.value, position + 1)
        if number is None:
            raise TraceLineError.at(text, _ESCAPE_HELP, offset=position)
        byte = bytes([int(number[1], 16)])
        return byte.decode("utf-8", "surrogateescape"), number.end()

    def _hole(self, text: Text, position: int, use: Use, kind: CaptureKind) -> tuple[Hole | SubjectHole, int]:
        found = _HOLE.match(text.value, position)
        if found is None or (found["sign"] and not found["name"]):
            raise TraceLineError.at(text, _HOLE_HELP, offset=position)
        if found["subject"]:
            subject = self.subject(text.cut(*found.span("subject")), Use.SENT)
            return SubjectHole(found[0], subject), found.end()
        hole = self._capture(text, found, kind)
        self._check_captured(text, found, hole, use)
        return hole, found.end()

    def _capture(self, text: Text, found: re.Match[str], kind: CaptureKind) -> Hole:
        name, written = found["name"] or "", found["kind"]
        for used in (name, found["operand"] or ""):
            if used in self._columns:
                expected = f"{{{used}}} alone, or a capture with another name"
                raise TraceLineError.at(text.cut(*found.span()), expected, f"{used} is a column of the table")
        choices: tuple[str, ...] = ()
        if written is not None:
            if "|" in written:
                kind, choices = CaptureKind.CHOICE, tuple(choice.strip() for choice in written.split("|"))
                if choices[0] == CaptureKind.ABSENT:
                    kind, choices = CaptureKind.ABSENT, choices[1:]
            elif written.strip() in WRITTEN_KINDS:
                kind = CaptureKind(written.strip())
            else:
                raise TraceLineError.at(
                    text.cut(*found.span("kind")),
                    f"a kind of capture ({', '.join(WRITTEN_KINDS)}, or alternatives such as 404|408)",
                    near(written, WRITTEN_KINDS),
                )
        sign = {"+": 1, "-": -1}.get(found["sign"] or "", 0)
        return Hole(found[0], name, kind, choices, sign, found["operand"] or "")

    def _check_captured(self, text: Text, found: re.Match[str], hole: Hole, use: Use) -> None:
        needed = [hole.name] if use is Use.SENT or hole.sign else []
        needed += [hole.operand] if hole.sign and not hole.operand.isdigit() else []
        for name in needed:
            if name not in self.captures:
                advice = near(name, self.captures | self._columns) or "an earlier expectation has to take it"
                raise TraceLineError.at(
                    text.cut(*found.span()), "a capture that was taken before this line", advice
                )
        if use is Use.SENT and found["kind"] is not None:
            raise TraceLineError.at(
                text.cut(*found.span()), "a capture without a kind: only what is expected has one"
            )
        if hole.name and not needed:
            self._taking.add(hole.name)

    # -- subjects and names ------------------------------------------------------------------

    def subject(self, text: Text, use: Use) -> Subject:
        """A subject; its first token becomes one of the trace's names."""
        subject = self.word(text, use)
        first = subject.plain[0]
        if first is None:
            self._check_first(text, subject, use)
        elif inbox_label(first) is not None:
            pass
        elif first == INBOX_PREFIX:
            second = subject.plain[1] if len(subject.tokens) > 1 else None
            if second in (None, "", "*", ">") and use is Use.SENT and not self.literal:
                raise TraceLineError.at(
                    text,
                    "an inbox with a name of its own, such as $inbox.* or _INBOX.example.>",
                    "a wildcard here would receive the messages of other runs' inboxes",
                )
        elif first in ("*", ">") and not self.literal:
            if use is Use.SENT:
                raise TraceLineError.at(
                    text,
                    "a subject that starts with a word",
                    "names are rewritten so that runs never collide, and a leading wildcard would match "
                    'all of them: begin with a word ("foo.*"), or write "names literal" at the top',
                )
        elif first and not first.startswith("$") and not self.literal:
            self.label(text.cut(0, len(first)))
        return subject

    def word(self, text: Text, use: Use) -> Subject:
        """A word that may be a subject or a name, and introduces none; ``*`` means any token."""
        if not text:
            raise TraceLineError.at(text, "a word")
        return self._dotted(text, use, {"*"} if use is Use.EXPECTED else set())

    def value(self, text: Text, use: Use, kind: CaptureKind = CaptureKind.WORD) -> NameOrText:
        """Text that may be a name or a subject as a whole; ``*`` is an asterisk."""
        template = self.template(text, use, kind)
        if not text or text.value.startswith("{") or any(blank in text.value for blank in BLANKS):
            return NameOrText(template)
        return NameOrText(template, self._dotted(text, use, set()))

    def _dotted(self, text: Text, use: Use, wildcards: set[str]) -> Subject:
        cuts, start = list[Text](), 0
        for found in _SUBJECT_PARTS.finditer(text.value):
            if found[0] == ".":
                cuts.append(text.cut(start, found.start()))
                start = found.end()
        cuts.append(text.cut(start))
        kind = CaptureKind.TOKEN if len(cuts) > 1 else CaptureKind.WORD
        tokens = [
            (Hole("*", kind=kind),) if cut.value in wildcards else self.template(cut, use, kind)
            for cut in cuts
        ]
        return Subject(tuple(tokens))

    def label(self, text: Text) -> str:
        """A name of the trace: a stream, a consumer, a queue, the first token of a subject."""
        if not _LABEL.fullmatch(text.value):
            raise TraceLineError.at(text, "a name of letters, digits, _ and - that starts with a letter")
        if text.value in self.reserved:
            raise TraceLineError.at(text, "a name that is no word of the protocol's own subjects")
        if not self.literal:
            self.labels.add(text.value)
        return text.value

    def _check_first(self, text: Text, subject: Subject, use: Use) -> None:
        if use is Use.SENT and len(subject.tokens[0]) > 1:
            raise TraceLineError.at(text, "a first token that is a word or one capture, not a mixture")


def _normal(plain: str) -> str:
    """Bytes written as ``\\xNN`` and characters written as themselves must come out alike."""
    return plain.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
