"""The configuration language of nats-server: text to values that know their line.

A file is keys with values: text, numbers with sizes such as ``64MB``, booleans, dates, arrays and blocks.
``=``, ``:`` or a blank separates a key from its value. ``#`` and ``//`` begin comments. ``$name`` is the
value of a key before, or of a variable of the environment. ``include file`` puts another file in its place.
Pure: files and the environment come in as functions. Source: docs.nats.io, "Server Configuration".

The places of keys are nats-server's: columns count from 0 in the first line and from 1 in the others.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, NoReturn

from msgspec import Struct

from plumbline.bounds import CONFIGURATION_DEPTH, CONFIGURATION_FILES
from plumbline.reference_broker.nats.config import ConfigError

MAX_INTEGER = 2**63 - 1
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_SPACE = re.compile(r"[\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*")
_BLANK = re.compile(r"[\t ]*")
_COMMENT = re.compile(r"[^\r\n\0]*")
_KEY = re.compile(r"[^\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000=:\0]*")
_TEXT = re.compile(r"[^\r\n\t ;,\]}'\\\0]*")
_INCLUDED = re.compile(r"[^\r\n\t ;}'\0]*")
_SIZED = re.compile(r"\d+[kKmMgGtTpPeE][bBiI]*(?=[\r\n\t };,\0])")
_INTEGER = re.compile(r"\d+(?=[\r\n\t };,\0])")
_NEGATIVE = re.compile(r"-(\d+)(?:(\.\d+)|([kKmMgGtTpPeE][bBiI]*))?")
_FLOAT = re.compile(r"\d+\.\d+")
_ADDRESS = re.compile(r"[\d.:-]*")
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_BCRYPT = "2a$"
_NOT_UTF_8 = re.compile("[\ud800-\udfff]")  # what "surrogateescape" makes of other bytes
_END = "\0"  # behind the text; nats-server, too, takes it for the end
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}

Read = Callable[[PurePath], str]  # raises ConfigError


class Value(Struct, eq=False):
    """A value and the place of its key. ``used``: a variable refers to it, so its name may be any."""

    value: Any  # str, int, float, bool, datetime, dict of names to Values, list of Values
    file: str
    line: int
    column: int
    used: bool = False

    def error(self, message: str) -> ConfigError:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        return ConfigError(f"{place}{message}")


def parse(
    text: str,
    file: str = "",
    *,
    read: Read | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Value]:
    """The keys of a file. ``read`` gives the text of included files.

    Raises ``ConfigError`` with the line.
    """
    return _Parser(text, file, read or _no_file, environment or {}, (), 1).top()


def placed(value: Any) -> Value:
    """What ``plain`` makes of it is ``value``; it is in no file."""
    if isinstance(value, Mapping):
        value = {name: placed(inner) for name, inner in value.items()}
    elif isinstance(value, list | tuple):
        value = [placed(inner) for inner in value]
    return Value(value, "", 0, 0)


def plain(value: Any) -> Any:
    """Without places: what ``msgspec`` and tests take."""
    if isinstance(value, Value):
        return plain(value.value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def _no_file(path: PurePath) -> str:
    raise ConfigError(f"open {path}: no such file or directory")


class _Parser:
    """One text. ``scopes`` are the blocks that are open, the innermost last."""

    def __init__(
        self,
        text: str,
        file: str,
        read: Read,
        environment: Mapping[str, str],
        variables: tuple[str, ...],
        files: int,
    ) -> None:
        self.text = text + _END
        self.file = file
        self.read = read
        self.environment = environment
        self.variables = variables  # of the environment, whose values are being read
        self.files = files  # this one and those that include it
        self.position = 0
        self.depth = 0
        self.scopes: list[dict[str, Value]] = []
        if _NOT_UTF_8.search(text):
            raise ConfigError(f"{self.named()}the configuration is not UTF-8")
        self.lines = [match.start() for match in re.finditer("\n", text)]

    # Places and characters

    def fail(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.named()}Parse error on line {self.line(self.position)}: '{message}'")

    def named(self) -> str:
        return f"{self.file}: " if self.file else ""

    def line(self, position: int) -> int:
        return bisect_right(self.lines, position - 1) + 1

    def column(self, position: int) -> int:
        line = self.line(position)
        return position - (self.lines[line - 2] if line > 1 else 0)

    def at(self, position: int, value: Any) -> Value:
        return Value(value, self.file, self.line(position), self.column(position))

    @property
    def here(self) -> str:
        return self.text[self.position]

    @property
    def is_end(self) -> bool:
        return self.here == _END

    def take(self, pattern: re.Pattern[str]) -> str:
        """What matches here, passed over."""
        match = pattern.match(self.text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        return match[0]

    def take_comment(self) -> bool:
        if self.here == "#" or self.text.startswith("//", self.position):
            self.take(_COMMENT)
            return True
        return False

    def take_gaps(self) -> None:
        """Blanks, line ends and comments."""
        self.take(_SPACE)
        while self.take_comment():
            self.take(_SPACE)

    # Keys

    def top(self) -> dict[str, Value]:
        """A whole file: keys, or one block in braces, as in JSON."""
        fields: dict[str, Value] = {}
        self.scopes.append(fields)
        while True:
            self.take_gaps()
            if self.is_end:
                break
            if self.here == "{":
                self.position += 1
                self.block(fields, ends=("}", _END))
                continue
            if self.key_and_value(fields):
                self.expect_end_of_value(
                    ";,}", "Expected a top-level value to end with a new line, comment or EOF"
                )
        if self.position < len(self.text) - 1:
            self.fail("Unexpected EOF.")
        return fields

    def block(self, fields: dict[str, Value], ends: tuple[str, ...] = ("}",)) -> None:
        """Keys up to the closing brace, which is passed over."""
        self.deeper()
        while True:
            self.take_gaps()
            if self.here in ends:
                break
            if self.is_end:
                self.fail("Unexpected EOF processing map.")
            if self.here in "=:":
                self.fail(f"Unexpected key separator '{self.here}'.")
            if self.here == "]":
                self.fail("Unexpected array end ']' processing map.")
            if self.key_and_value(fields) and self.here != "}":
                self.expect_end_of_value(
                    ";,", "Expected a map value terminator ',' or a map terminator '}'", "}"
                )
        self.position += not self.is_end
        self.depth -= 1

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > CONFIGURATION_DEPTH:
            self.fail(f"more than {CONFIGURATION_DEPTH} blocks and arrays inside each other")

    def expect_end_of_value(self, terminators: str, expected: str, ends: str = "") -> None:
        """After a value: its line ends, or a terminator comes; a character of ``ends`` is left."""
        self.take(_BLANK)
        self.take_comment()
        if self.is_end or self.here in ends:
            return
        if self.here not in "\r\n" + terminators:
            self.fail(f"{expected}, but got '{self.here}' instead.")
        self.position += 1

    def key_and_value(self, fields: dict[str, Value]) -> bool:
        """One key with its value, or an include. False for a brace that ends the file."""
        start = self.position
        if self.here in "=:":
            self.fail(f"Unexpected key separator '{self.here}'")
        if self.here in "\"'":
            start += 1
            key = self.quoted_key(self.here)
        else:
            key = self.take(_KEY)
            if key.lower() == "include" and self.here not in "=:" and not self.is_end:
                self.include(fields)
                return True
        self.take(_SPACE)
        if self.is_end:
            if key == "}":
                return False
            raise ConfigError(
                f"config is invalid ({self.file}:{self.line(self.position)}:{self.column(self.position)})"
            )
        if self.here in "=:":
            self.position += 1
            if self.depth:
                self.take(_SPACE)
        if self.depth and self.here in ",}":
            self.fail(f"Unexpected map value terminator {self.here!r}.")
        value = self.value()
        value.line, value.column = self.line(start), self.column(start)
        fields[key] = value
        return True

    def quoted_key(self, quote: str) -> str:
        end = self.text.find(quote, self.position + 1)
        if end < 0:
            self.position = len(self.text) - 1
            self.fail("Unexpected EOF processing quoted map key.")
        key = self.text[self.position + 1 : end]
        self.position = end + 1
        return key

    def include(self, fields: dict[str, Value]) -> None:
        self.take(_BLANK)
        if self.here in "[{(-\\\r\n" or self.here.isdecimal():
            self.fail("Expected the name of a file to include")
        name = self.quoted_key(self.here) if self.here in "\"'" else self.take(_INCLUDED)
        if self.files >= CONFIGURATION_FILES:
            self.fail(f"more than {CONFIGURATION_FILES} files that include each other")
        path = PurePath(self.file).parent / name
        try:
            text = self.read(path)
            inner = _Parser(text, str(path), self.read, self.environment, (), self.files + 1)
            fields |= inner.top()
        except ConfigError as error:
            raise ConfigError(f"{self.named()}error parsing include file '{name}', {error}") from None

    # Values

    def value(self) -> Value:
        self.take(_BLANK)
        start = self.position
        match self.here:
            case "[":
                return self.at(start, self.array())
            case "{":
                fields: dict[str, Value] = {}
                self.position += 1
                self.scopes.append(fields)
                self.block(fields)
                self.scopes.pop()
                return self.at(start, fields)
            case "'":
                return self.at(start, self.quoted_key("'"))
            case '"':
                self.position += 1
                return self.at(start, self.escaped('"'))
            case "(":
                return self.at(start, self.long_text())
            case "-":
                return self.at(start, self.negative())
            case ".":
                self.fail("Floats must start with a digit")
            case "\r" | "\n":
                self.fail("Expected value but found new line")
        if self.here.isdecimal():
            return self.at(start, self.number())
        return self.bare(start)

    def array(self) -> list[Value]:
        self.deeper()
        self.position += 1
        values: list[Value] = []
        while True:
            self.take_gaps()
            if self.here == "]":
                self.position += 1
                self.depth -= 1
                return values
            if self.here in ",/":
                self.fail("Unexpected array value terminator ','.")
            if self.is_end:
                self.fail("Unexpected EOF processing array.")
            values.append(self.value())
            self.expect_end_of_value(
                ",", "Expected an array value terminator ',' or an array terminator ']'", "]"
            )
            if self.is_end:
                self.fail("Unexpected EOF processing array.")

    def bare(self, start: int) -> Value:
        """Text without quotes: a boolean, a variable, or itself."""
        word = self.take(_TEXT)
        if self.here == "\\":
            return self.at(start, self.escaped("", word))
        if self.here == "'":  # it ends the text, too
            self.position += 1
            return self.at(start, word)
        if word.lower() in _BOOLEANS:
            return self.at(start, _BOOLEANS[word.lower()])
        if word.startswith("$"):
            return self.at(start, self.variable(word[1:]))
        return self.at(start, word)

    def escaped(self, quote: str, word: str = "") -> str:
        """Text with escapes, up to the closing quote, or without quotes to its end."""
        parts = [word.encode()]
        pattern = re.compile(r'[^"\\\0]*') if quote else _TEXT
        while True:
            parts.append(self.take(pattern).encode())
            if self.here == "\\":
                parts.append(self.escape())
                continue
            if quote and self.is_end:
                self.fail("Unexpected EOF.")
            self.position += bool(quote) or self.here == "'"
            try:
                return b"".join(parts).decode()
            except UnicodeDecodeError:
                self.fail("Escapes make a text that is not UTF-8")

    def escape(self) -> bytes:
        following = self.text[self.position + 1 : self.position + 4]
        if re.fullmatch(r"x[0-9a-fA-F]{2}", following):
            self.position += 4
            return bytes([int(following[1:], 16)])
        if following[:1] == "x":
            self.fail("Expected two hexadecimal digits after '\\x'")
        if following[:1] not in _ESCAPES:
            self.fail(f"Invalid escape character '{following[:1]}'.")
        self.position += 2
        return _ESCAPES[following[0]].encode()

    def long_text(self) -> str:
        """``(`` up to a ``)`` on a line of its own."""
        end = re.compile(r"\n\)(?=[\n\0])").search(self.text, self.position)
        if end is None:
            self.position = len(self.text) - 1
            self.fail("Unexpected EOF processing block.")
        text = self.text[self.position + 1 : end.start() + 1]
        self.position = end.end()
        return text

    # Numbers

    def number(self) -> Any:
        """What begins with a digit: a number, a size, a date, an address, or text."""
        if sized := self.take(_SIZED) or self.take(_INTEGER):
            return self.integer(sized)
        if re.compile(r"\d+-").match(self.text, self.position):
            return self.date()
        if number := self.take(_FLOAT):
            if self.here == ".":
                return number + self.take(_ADDRESS)
            return self.real(number)
        if re.compile(r"\d+\.").match(self.text, self.position):
            self.fail("Floats must have a digit after the '.'")
        return self.after_digits()

    def after_digits(self) -> str:
        """Text that begins with digits. A bracket right behind them belongs to it, as in nats-server."""
        digits = self.take(re.compile(r"\d+"))
        if self.here not in "\\\0":
            digits += self.here
            self.position += 1
        word = digits + self.take(_TEXT)
        if self.here == "\\":
            return self.escaped("", word)
        self.position += self.here == "'"
        return word

    def negative(self) -> Any:
        match = _NEGATIVE.match(self.text, self.position)
        if match is None:
            self.fail("Expected a digit after '-'")
        self.position = match.end()
        return self.real(match[0]) if match[2] else self.integer(match[0])

    def integer(self, text: str) -> int:
        digits = text.rstrip("kKmMgGtTpPeEbBiI")
        suffix = text[len(digits) :].lower()
        if suffix[1:] not in ("", "b", "i", "ib"):
            self.fail(f"'{text}' is no number")
        number = int(digits) if len(digits) <= 20 and digits.isascii() else MAX_INTEGER + 1
        if suffix:
            number *= (1024 if suffix[1:] else 1000) ** _POWERS[suffix[0]]
        if not -MAX_INTEGER - 1 <= number <= MAX_INTEGER:
            raise ConfigError(f"{self.named()}integer '{text}' is out of the range")
        return number

    def real(self, text: str) -> float:
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise ConfigError(f"{self.named()}float '{text}' is out of the range")
        return number

    def date(self) -> datetime:
        text = self.take(_DATE)
        try:
            return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        except ValueError:
            self.fail("All ISO8601 dates must be in full Zulu form.")

    # Variables

    def variable(self, name: str) -> Any:
        """The value of a key of an open block, or of the environment. A bcrypt hash is itself."""
        if name.startswith(_BCRYPT):
            return f"${name}"
        for scope in reversed(self.scopes):
            if name in scope:
                scope[name].used = True
                return scope[name].value
        line = self.line(self.position)
        if name in self.variables:
            raise ConfigError(f"{self.named()}variable reference cycle for '{name}'")
        if name not in self.environment:
            raise ConfigError(
                f"{self.named()}variable reference for '{name}' on line {line} can not be found"
            )
        text = f"pk={self.environment[name]}"
        inner = _Parser(text, "", self.read, self.environment, (*self.variables, name), self.files)
        try:
            return inner.top()["pk"].value
        except ConfigError as error:
            raise ConfigError(
                f"{self.named()}variable reference for '{name}' on line {line} could not be parsed: {error}"
            ) from None
