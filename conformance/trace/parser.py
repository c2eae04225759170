"""Reads the lines of one trace: its header, its steps, and every error of it at once. Pure.

Knows the marks and directives that all protocols share; what follows a mark is read by the
dialect. What a file holds, one trace or a table of cases, ``trace.cases`` knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from plumbline.conformance.trace.amqp.grammar import AmqpTraceDialect
from plumbline.conformance.trace.json_text import evaluate
from plumbline.conformance.trace.language import (
    BODY,
    DEFAULT_CONNECTION,
    DIRECTIVES,
    HEADER,
    MARKED,
    AnyOrder,
    AwaitState,
    CloseConnection,
    ConnectionOptions,
    Expect,
    ExpectClosed,
    ExpectSilence,
    ExpectState,
    GivenServer,
    Prepare,
    Restart,
    Send,
    SendBytes,
    Step,
    TimeWindow,
    Trace,
    TraceDialect,
    evidence,
)
from plumbline.conformance.trace.names import Names
from plumbline.conformance.trace.nats.grammar import NatsTraceDialect
from plumbline.conformance.trace.reader import TraceReader, Use
from plumbline.conformance.trace.settings import pairs, read_value
from plumbline.conformance.trace.template import TraceScope
from plumbline.conformance.trace.text import BLANKS, Text, TraceLineError, TraceSyntaxError, near
from plumbline.conformance.trace.windows import read_silence, take_state_window, take_window

__all__ = ["TraceSyntaxError", "read_lines"]

DIALECTS: dict[str, TraceDialect] = {"nats": NatsTraceDialect(), "amqp": AmqpTraceDialect()}
AWAIT_WITHIN_S = 5.0
LARGEST_GROUP = 12

_REQUIREMENT = re.compile(r"[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)+")
_LEVEL = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_FEATURE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def read_lines(
    lines: Sequence[str],
    path: str,
    *,
    case: str = "",
    line: int = 1,
    columns: frozenset[str] = frozenset(),
    is_header: bool = False,
) -> Trace:
    """Read the lines of one trace, in which the holes of a table are filled.

    ``case`` and ``line`` are the row of the table; ``columns`` are names that no capture may have. With
    ``is_header`` the lines are only those above the first step. Raises ``TraceSyntaxError``.
    """
    return _TraceFileParser(lines, path, columns).read(case, line, is_header=is_header)


def header_lines(lines: Sequence[str]) -> Sequence[str]:
    """The lines above the first step."""
    for number, line in enumerate(lines):
        word = Text(line).first_word()[0].value
        if MARKED.match(line) or word in BODY or word == "in":
            return lines[:number]
    return lines


class _Lines:
    """The lines of a file, one after the other; what is below the current one can be looked at."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._next = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> Text:
        if self._next >= len(self._lines):
            raise StopIteration
        self._next += 1
        return Text(self._lines[self._next - 1], self._next)

    def peek(self) -> Text | None:
        return self._unmarked(self._next)

    def take(self) -> Text | None:
        line = self.peek()
        if line is not None:
            self._next += 1
        return line

    def take_after_blank(self) -> Text | None:
        blank = self._next < len(self._lines) and not self._lines[self._next].strip(BLANKS)
        line = self._unmarked(self._next + 1) if blank else None
        if line is not None:
            self._next += 2
        return line

    def _unmarked(self, position: int) -> Text | None:
        if position >= len(self._lines):
            return None
        line = Text(self._lines[position], position + 1)
        first = line.first_word()[0].value
        if not first or first.startswith("#") or first in DIRECTIVES or MARKED.match(line.value):
            return None
        return line


class _TraceFileParser:
    """One trace being read."""

    def __init__(self, lines: Sequence[str], path: str, columns: frozenset[str]) -> None:
        self._path = path
        self._lines = lines
        self._problems: list[TraceLineError] = []
        self._reader = TraceReader(columns)
        self._dialect = DIALECTS["nats"]
        self._reader.reserved = self._dialect.reserved
        self._header: dict[str, str] = {}
        self._headed: set[str] = set()  # header words seen, readable or not
        self._verifies: list[str] = []
        self._needs: list[str] = []
        self._connections: dict[str, ConnectionOptions] = {}
        self._steps: list[Step] = []
        self._used: set[str] = set()  # connections that have been opened by a line above
        self._own_server: Text | None = None  # where "given server" stands

    def read(self, case: str, line_of_case: int, *, is_header: bool) -> Trace:
        lines = _Lines(self._lines)
        for line in lines:
            try:
                self._line(line.strip(), lines)
            except TraceLineError as problem:
                self._problems.append(problem)
                if MARKED.match(line.value):
                    _skip_pasted(lines)
        self._check_whole_file(is_header=is_header)
        if self._problems:
            raise TraceSyntaxError(self._path, self._lines, self._problems)
        return Trace(
            path=self._path,
            case=case,
            line=line_of_case,
            title=self._header["title"],
            source=self._header["source"],
            verifies=tuple(self._verifies),
            needs=tuple(self._needs),
            variant=self._header.get("variant"),
            since=self._header.get("since"),
            until=self._header.get("until"),
            labels=frozenset(self._reader.labels),
            connections=self._connections,
            steps=tuple(self._steps),
        )

    def _check_whole_file(self, *, is_header: bool) -> None:
        """What only the whole file shows; of a header less can be missing."""
        end = (len(self._lines), 1)
        for word in ("title", "source"):
            if word not in self._headed:
                self._problems.append(TraceLineError((1, 1), f'a line "{word} ..."', "none"))
        if "verifies" not in self._headed:
            self._problems.append(TraceLineError((1, 1), 'a line "verifies ID ..."', "none"))
        variants = [self._header.get("variant"), *(options.variant for options in self._connections.values())]
        if self._own_server is not None and any(variants):
            advice = "'given server' always uses the default configuration"
            self._problems.append(TraceLineError.at(self._own_server, "no variant beside it", advice))
        if not is_header and not self._problems and not evidence(self._steps):
            self._problems.append(
                TraceLineError(
                    end, "something expected (a line with <, or expect ...)", "the end of the file"
                )
            )

    # -- lines -------------------------------------------------------------------------------

    def _line(self, line: Text, lines: _Lines) -> None:
        if not line or line.value.startswith("#"):
            return
        if MARKED.match(line.value):
            self._add(self._marked(line, lines))
            return
        word, rest = line.first_word()
        if word.value in HEADER:
            self._header_line(word, rest)
        elif word.value == "in":
            self._add(self._group(line, lines))
        elif word.value in BODY:
            self._directive(word, rest, lines)
        else:
            raise TraceLineError.at(word, '">", "<", or a directive', near(word.value, DIRECTIVES))

    def _add(self, step: Step | None) -> None:
        if step is not None:
            self._steps.append(step)

    def _header_line(self, word: Text, rest: Text) -> None:
        self._headed.add(word.value)
        if self._steps:
            raise TraceLineError.at(word, f'"{word.value}" above the first step')
        if word.value == "cases":
            raise TraceLineError.at(word, "one trace, with one table of cases at most")
        if not rest:
            raise TraceLineError.at(rest, f"a value after {word.value}")
        if word.value == "verifies":
            self._verifies += [
                _matching(_REQUIREMENT, item, "an id such as JS-PULL-015") for item in rest.words()
            ]
        elif word.value == "needs":
            self._needs += [_matching(_FEATURE, item, "a feature such as headers") for item in rest.words()]
        elif word.value == "names":
            self._names(rest)
        elif word.value == "protocol":
            self._protocol(rest)
        elif word.value in self._header:
            raise TraceLineError.at(word, f"{word.value} at most once")
        elif word.value in ("since", "until"):
            self._header[word.value] = _matching(_LEVEL, rest, "a protocol level such as 2.10")
        elif word.value == "variant":
            self._header[word.value] = _matching(_NAME, rest, "the name of a variant")
        else:
            self._header[word.value] = rest.value

    def _protocol(self, rest: Text) -> None:
        if rest.value not in DIALECTS:
            raise TraceLineError.at(rest, f"a protocol ({', '.join(DIALECTS)})", near(rest.value, DIALECTS))
        self._dialect = DIALECTS[rest.value]
        self._reader.reserved = self._dialect.reserved

    def _names(self, rest: Text) -> None:
        if rest.value == "literal":
            if self._reader.labels:
                raise TraceLineError.at(rest, '"names literal" above every name')
            self._reader.literal = True
            return
        for item in rest.words():
            self._reader.label(item)

    def _directive(self, word: Text, rest: Text, lines: _Lines) -> None:
        if word.value == "end":
            raise TraceLineError.at(word, '"in any order" above "end"')
        if word.value in ("close", "abort"):
            self._add(CloseConnection(word.line, self._note_connection(rest), word.value == "abort"))
        elif word.value in ("restart", "kill"):
            self._add(self._restart(word, rest))
        elif word.value == "given":
            kind, behind = rest.first_word()
            if kind.value == "connection":
                self._connection(behind)
            elif kind.value == "server":
                self._add(self._server(kind, behind))
            else:
                self._add(Prepare(word.line, self._dialect.read_given(kind, behind, lines, self._reader)))
        else:
            self._add(self._state(word, rest))

    def _state(self, word: Text, rest: Text) -> Step:
        """``await`` is part of the stage, so only ``expect`` is exact about the time."""
        if word.value == "expect":
            times, rest = take_state_window(rest)
            return ExpectState(word.line, self._dialect.read_state(*rest.first_word(), self._reader), times)
        window, rest = take_window(rest)
        if window is not None and window.after:
            raise TraceLineError.at(word, "only within T for what is awaited")
        state = self._dialect.read_state(*rest.first_word(), self._reader)
        return AwaitState(word.line, state, window.within if window else AWAIT_WITHIN_S)

    def _server(self, kind: Text, behind: Text) -> Step:
        if behind:
            raise TraceLineError.at(behind, 'no text after "given server"')
        if self._steps:
            raise TraceLineError.at(kind, '"given server" above every other step')
        self._own_server = kind
        return GivenServer(kind.line)

    def _restart(self, word: Text, rest: Text) -> Step:
        if rest:
            raise TraceLineError.at(rest, f'no text after "{word.value}": there is one server')
        if self._own_server is None:
            raise TraceLineError.at(word, '"given server" above', "restart works only with 'given server'")
        self._used.clear()  # every connection ends
        return Restart(word.line, word.value == "kill")

    def _note_connection(self, name: Text) -> str:
        if name.value not in self._used:
            raise TraceLineError.at(
                name, "a connection that a line above has used", near(name.value, self._used)
            )
        return name.value

    def _connection(self, rest: Text) -> None:
        name, settings = rest.first_word()
        _matching(_NAME, name, "the name of a connection")
        if name.value in self._connections or name.value in self._used:
            raise TraceLineError.at(name, "one line for a connection, above its first use")
        fields: dict[str, Any] = {}
        nothing = TraceScope(Names((), str, str), {})
        for key, value in pairs(settings):
            fields[key.value] = evaluate(read_value(value, self._reader), nothing)
        self._connections[name.value] = ConnectionOptions(
            variant=_option(fields, "variant", settings, None),
            handshake=_option(fields, "handshake", settings, "full", "none") == "full",
            answers_pings=_option(fields, "pings", settings, "answered", "unanswered") == "answered",
            fields=fields,
        )

    # -- marked lines ------------------------------------------------------------------------

    def _marked(self, line: Text, lines: _Lines) -> Step:
        found = MARKED.match(line.value)
        assert found is not None
        connection = found[1] or DEFAULT_CONNECTION
        self._used.add(connection)
        rest = line.cut(found.end()).strip()
        if not rest:
            raise TraceLineError.at(rest, "an operation")
        if found[2] == "<":
            return self._expected(connection, rest, lines)
        verb, behind = rest.first_word()
        if verb.value == "raw":
            return SendBytes(line.line, connection, self._reader.template(_quoted_bytes(behind), Use.SENT))
        return Send(line.line, connection, self._dialect.read_send(rest, lines, self._reader))

    def _expected(self, connection: str, rest: Text, lines: _Lines) -> Step:
        window, text = take_window(rest)
        word, behind = text.first_word()
        if word.value == "nothing":
            return ExpectSilence(rest.line, connection, read_silence(rest))
        if word.value == "closed":
            if behind:
                raise TraceLineError.at(behind, "within T or the end of the line")
            return ExpectClosed(rest.line, connection, window or TimeWindow())
        pattern = self._dialect.read_expect(text, lines, self._reader)
        return Expect(rest.line, connection, pattern, window or TimeWindow())

    def _group(self, line: Text, lines: _Lines) -> Step | None:
        if [word.value for word in line.words()] != ["in", "any", "order"]:
            raise TraceLineError.at(line, '"in any order"')
        expects: list[Expect] = []
        with self._reader.group():
            for inner in lines:
                text = inner.strip()
                if text.value == "end":
                    return self._closed_group(line, expects)
                if not text or text.value.startswith("#"):
                    continue
                try:
                    expects.append(self._member(text, lines))
                except TraceLineError as problem:
                    self._problems.append(problem)
        raise TraceLineError.at(line, '"in any order" with an "end" below')

    def _member(self, text: Text, lines: _Lines) -> Expect:
        found = MARKED.match(text.value)
        step = self._marked(text, lines) if found is not None and found[2] == "<" else None
        if not isinstance(step, Expect):
            raise TraceLineError.at(text, 'an operation that is expected ("< ..."), or "end"')
        return step

    def _closed_group(self, line: Text, expects: list[Expect]) -> Step | None:
        if not 2 <= len(expects) <= LARGEST_GROUP and not self._problems:
            raise TraceLineError(
                line.place(), f"2 to {LARGEST_GROUP} expectations in a group", str(len(expects))
            )
        return AnyOrder(line.line, tuple(expects))


def _skip_pasted(lines: _Lines) -> None:
    """What stands below a line that could not be read belongs to it: no errors of their own."""
    while lines.take() is not None:
        pass


def _matching(shape: re.Pattern[str], text: Text, expected: str) -> str:
    if not shape.fullmatch(text.value):
        raise TraceLineError.at(text, expected)
    return text.value


def _option(fields: dict[str, Any], key: str, settings: Text, default: Any, *others: str) -> Any:
    """Takes one of our own options out of those that go into CONNECT."""
    value = fields.pop(key, default)
    if others and value not in (default, *others):
        raise TraceLineError.at(settings, f"{key}={default} or {key}={' or '.join(others)}")
    return value


def _quoted_bytes(text: Text) -> Text:
    if len(text.value) < 3 or text.value[0] != '"' or text.value[-1] != '"':
        raise TraceLineError.at(text, 'bytes in double quotes, such as "PING\\r\\n"')
    return text.cut(1, len(text.value) - 1)
