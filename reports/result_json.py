"""The JSON result, ``plumbline.result/1``: one file holds a whole run, for machines and for later reports.

Exact bytes (``wire[].raw``) are base64 with a readable ``text`` beside them. Text that no JSON reader has
to accept (lone surrogates) is written as an escape, so any reader opens it; what would act on a terminal is
a JSON escape. ``red`` of a check is not in the file: it follows from outcome, level and ``summary.strict``.
``result.schema.json`` is published beside this module; ``python -m reports.result_json`` prints it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from plumbline.bounds import RESULT_FILE_BYTES
from plumbline.errors import PlumblineError
from plumbline.reports.files import PRIVATE, ReportFile
from plumbline.untrusted import BadInputError, parse_json, read_file, read_gzip
from plumbline.verdicts import Event, RunFinished, RunResult, with_red
from plumbline.visible import escape, visible_json

SCHEMA = "plumbline.result/1"
SCHEMA_FILE = Path(__file__).with_name("result.schema.json")

_SURROGATE = re.compile("[\ud800-\udfff]")


class ResultError(PlumblineError, ValueError):
    """A file is no result that this version reads; the message says what it is instead."""


class ResultJson:
    """Writes the result at the end of a run."""

    def __init__(self, path: Path) -> None:
        self._file = ReportFile(path, "json", PRIVATE)

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._file.write(encode(event.result))


def encode(result: RunResult, *, compact: bool = False) -> bytes:
    """The file's bytes: ``schema`` first, two blanks of indentation or all in one line, a line end at the
    end."""
    fields = escape_surrogates(msgspec.to_builtins(result))
    for check in fields["checks"]:
        del check["red"]
    ordered = {"schema": fields.pop("schema"), **fields}
    text = msgspec.json.format(msgspec.json.encode(ordered), indent=-1 if compact else 2).decode()
    return f"{visible_json(text)}\n".encode()


def decode(data: bytes) -> RunResult:
    """The result in ``data``. Raises ``ResultError``."""
    try:
        found = parse_json(data, _Envelope).schema
    except BadInputError as error:
        raise ResultError(f"not a Plumbline result: {error}") from error
    if found != SCHEMA:
        raise ResultError(_other_schema(found))
    try:
        result = parse_json(data, RunResult)
    except BadInputError as error:
        raise ResultError(f"an invalid {SCHEMA} file: {error}") from error
    checks = (with_red(check, strict=result.summary.strict) for check in result.checks)
    return replace(result, checks=tuple(checks))


def read(path: Path) -> RunResult:
    """The result in the file ``path``, which gzip may have made (``.gz``).

    Raises ``ResultError``, and ``OSError`` if it cannot be read.
    """
    read_bytes = read_gzip if path.suffix == ".gz" else read_file
    try:
        return decode(read_bytes(path, RESULT_FILE_BYTES))
    except (ResultError, BadInputError) as error:
        raise ResultError(f"{path}: {error}") from error


class _Envelope(msgspec.Struct):
    """What every version of the file has."""

    schema: str = ""


def _other_schema(found: str) -> str:
    if not found:
        return f'not a Plumbline result: it has no "schema"; expected {SCHEMA}'
    if found.startswith("plumbline.result/"):
        return (
            f"a result with another schema ({found}); this Plumbline reads {SCHEMA}:"
            " use the Plumbline version that wrote it, or run again"
        )
    return f'not a Plumbline result: its "schema" is {found!r}, expected {SCHEMA}'


def escape_surrogates(value: object) -> Any:
    """Plain ``value`` with lone surrogates escaped: JSON text is UTF-8 (RFC 8259, section 8.1)."""
    match value:
        case str():
            return value if value.isascii() else _SURROGATE.sub(lambda found: escape(found[0]), value)
        case dict():
            return {escape_surrogates(key): escape_surrogates(member) for key, member in value.items()}
        case list() | tuple():
            return [escape_surrogates(member) for member in value]
    return value


def schema() -> dict[str, Any]:
    """The JSON Schema of the file, from the types."""
    described = msgspec.json.schema(RunResult)
    definitions = described["$defs"]
    definitions["RunResult"]["properties"]["schema"] = {"const": SCHEMA}
    definitions["RunResult"]["required"].insert(0, "schema")
    del definitions["CheckResult"]["properties"]["red"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "The result of one conformance run. Later versions of /1 only add fields.",
        **described,
    }


def schema_text() -> str:
    """``result.schema.json``, as published."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
