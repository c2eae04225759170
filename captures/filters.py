"""The filter language of every command that takes traffic apart.

    subject ~ "ORDERS.*" and op in (MSG, HMSG)
    connection = 3 and sender = client and not op in (PING, PONG)
    header.Nats-Msg-Id = "a" or payload ~ /"order":\\s*4/

    expression   comparisons with ``and``, ``or``, ``not`` and parentheses; ``and`` binds closer than ``or``
    comparison   NAME, or NAME with one of = != < <= > >= ~ !~ and a value, or NAME in (value, ...)
    value        a word, a number, "text", or /a regular expression/

A bare NAME asks whether the operation has such a field. ``~`` is for patterns: in "text", ``*`` is one token
of a subject or routing key and ``>`` or ``#`` the rest of it; in any other field ``*`` is any text. A regular
expression may match anywhere. Words of ``op`` and ``sender`` are compared without case. A comparison with a
field that the operation does not have is false, and so is its opposite, ``!=`` or ``!~``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import Any

from msgspec import Struct

from plumbline.errors import PlumblineError

TOKENS = frozenset(
    {"subject", "reply", "routing_key", "queue", "exchange"}
)  # fields of tokens with dots between
CASELESS = frozenset({"op", "sender"})

Fields = Mapping[str, Any]
Filter = Callable[[Fields], bool]

_WORD = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_+$-][\w.+$-]*)|(?P<number>\d+(?:\.\d+)?)(?![\w.])|"(?P<text>(?:[^"\\]|\\.)*)"
    |/(?P<regex>(?:[^/\\]|\\.)*)/|(?P<mark>!=|!~|<=|>=|==|[=~<>(),]))""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(.)")


class FilterError(PlumblineError, ValueError):
    """A filter that cannot be read: what was expected, and where."""


class _Token(Struct, frozen=True):
    kind: str
    value: str
    at: int


def match_all(_fields: Fields) -> bool:
    """The filter if none is given."""
    return True


def parse(text: str) -> Filter:
    """Reads a filter; an empty one takes everything. Raises ``FilterError``."""
    reader = _FilterReader(text)
    if reader.next.kind == "end":
        return match_all
    try:
        found = reader.expression()
    except RecursionError:
        raise reader.expected("fewer parentheses and nots within each other") from None
    if reader.next.kind != "end":
        raise reader.expected("and, or, or the end")
    return found


class _FilterReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self.next = self._tokens.pop(0)

    def _split(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        end = len(text.rstrip())
        while at < end:
            found = _WORD.match(text, at)
            if found is None:
                raise FilterError(
                    _pointed(text, at, 'a name, a number, "text", /regex/ or one of = ~ < > ( ) ,')
                )
            kind = found.lastgroup or ""
            tokens.append(_Token(kind, found[kind], found.start(kind)))
            at = found.end()
        return [*tokens, _Token("end", "", end)]

    def expected(self, what: str) -> FilterError:
        return FilterError(_pointed(self._text, self.next.at, what))

    def take(self, kind: str, *values: str) -> _Token | None:
        """The next token if it is such a one."""
        token = self.next
        if token.kind != kind or (values and token.value not in values):
            return None
        self.next = self._tokens.pop(0)
        return token

    def expression(self) -> Filter:
        parts = [self._conjunction()]
        while self.take("name", "or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else lambda fields: any(part(fields) for part in parts)

    def _conjunction(self) -> Filter:
        parts = [self._negation()]
        while self.take("name", "and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else lambda fields: all(part(fields) for part in parts)

    def _negation(self) -> Filter:
        if self.take("name", "not"):
            inner = self._negation()
            return lambda fields: not inner(fields)
        if self.take("mark", "("):
            grouped = self.expression()
            if not self.take("mark", ")"):
                raise self.expected(")")
            return grouped
        return self._comparison()

    def _comparison(self) -> Filter:
        if self.next.value in ("and", "or", "in") or not (token := self.take("name")):
            raise self.expected("the name of a field")
        name = token.value
        if self.take("name", "in"):
            return _any_of([self._equals(name, value) for value in self._list()])
        mark = self.take("mark", "=", "==", "!=", "~", "!~", "<", "<=", ">", ">=")
        if mark is None:
            return lambda fields: fields.get(name) is not None
        value = self._value()
        match mark.value:
            case "=" | "==":
                return self._equals(name, value)
            case "!=":
                return _negate(name, self._equals(name, value))
            case "~":
                return self._matches_subject(name, value)
            case "!~":
                return _negate(name, self._matches_subject(name, value))
        return _ordered(name, mark.value, value)

    def _list(self) -> list[_Token]:
        if not self.take("mark", "("):
            raise self.expected("(")
        values = [self._value()]
        while self.take("mark", ","):
            values.append(self._value())
        if not self.take("mark", ")"):
            raise self.expected(", or )")
        return values

    def _value(self) -> _Token:
        for kind in ("name", "number", "text", "regex"):
            if token := self.take(kind):
                return token
        raise self.expected("a value")

    def _equals(self, name: str, value: _Token) -> Filter:
        return self._finds(name, value) if value.kind == "regex" else _equal(name, value)

    def _matches_subject(self, name: str, value: _Token) -> Filter:
        if value.kind == "regex":
            return self._finds(name, value)
        pattern = _subjects(_literal(value)) if name in TOKENS else re.compile(translate(_literal(value)))
        search = pattern.fullmatch
        return lambda fields: (held := fields.get(name)) is not None and search(str(held)) is not None

    def _finds(self, name: str, value: _Token) -> Filter:
        """A regular expression between slashes; it may match anywhere in the text of the field."""
        try:
            search = re.compile(value.value.replace("\\/", "/")).search
        except (re.error, OverflowError, RecursionError) as error:
            raise FilterError(_pointed(self._text, value.at, f"a regular expression ({error})")) from None
        return lambda fields: (held := fields.get(name)) is not None and search(str(held)) is not None


def _pointed(text: str, at: int, what: str) -> str:
    return f"expected {what}\n  {text}\n  {' ' * at}^"


def _literal(token: _Token) -> str:
    return _ESCAPE.sub(r"\1", token.value) if token.kind == "text" else token.value


def _subjects(pattern: str) -> re.Pattern[str]:
    """``*`` is one token, ``>`` one or more at the end (NATS), ``#`` none or more (AMQP)."""
    parts: list[str] = []
    for token in pattern.split("."):
        if token in (">", "#"):
            some = r"[^.]+(?:\.[^.]+)*"
            parts.append((rf"\.{some}" if parts else some) if token == ">" else rf"(?:\.?{some})?")
        else:
            piece = "[^.]*".join(re.escape(fixed) for fixed in token.split("*"))
            parts.append(rf"\.{piece}" if parts else piece)
    return re.compile("".join(parts))


def _equal(name: str, value: _Token) -> Filter:
    expected = _literal(value)
    if name in CASELESS:
        folded = expected.casefold()
        return lambda fields: str(fields.get(name)).casefold() == folded
    if value.kind == "number":
        number = float(expected)
        return lambda fields: fields.get(name) is not None and _is(fields[name], expected, number)
    return lambda fields: fields.get(name) is not None and _text(fields[name]) == expected


def _is(held: Any, text: str, number: float) -> bool:
    return bool(held == number) if isinstance(held, int | float) else str(held) == text


def _text(held: Any) -> str:
    return str(held).lower() if isinstance(held, bool) else str(held)


def _negate(name: str, test: Filter) -> Filter:
    return lambda fields: fields.get(name) is not None and not test(fields)


def _any_of(tests: list[Filter]) -> Filter:
    return lambda fields: any(test(fields) for test in tests)


def _ordered(name: str, mark: str, value: _Token) -> Filter:
    try:
        limit = float(_literal(value))
    except ValueError:
        raise FilterError(f"{name} {mark} {value.value}: expected a number") from None
    tests: dict[str, Callable[[float], bool]] = {
        "<": lambda held: held < limit,
        "<=": lambda held: held <= limit,
        ">": lambda held: held > limit,
        ">=": lambda held: held >= limit,
    }
    test = tests[mark]

    def compare(fields: Fields) -> bool:
        try:
            return test(float(fields[name]))
        except (KeyError, TypeError, ValueError):
            return False

    return compare
