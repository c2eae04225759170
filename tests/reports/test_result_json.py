"""The JSON result: written, read back, and described by the published schema."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from plumbline.reports.result_json import SCHEMA_FILE, ResultError, decode, encode, read, schema_text
from plumbline.untrusted import read_gzip
from plumbline.verdicts import RunResult
from tests.reports.samples import HOSTILE, conformant_result, only, sample_result


def loaded(result: RunResult) -> dict[str, Any]:
    value = json.loads(encode(result))
    assert isinstance(value, dict)
    return value


def test_a_result_reads_back_as_it_was_written() -> None:
    result = conformant_result()
    assert decode(encode(result)) == result


def test_bytes_read_back_exactly_though_their_text_was_no_unicode() -> None:
    result = only("core_delivery::subjects_are_delivered_as_published")
    again = decode(encode(result))
    written, read_back = result.checks[0].wire[-1], again.checks[0].wire[-1]
    assert read_back.raw == written.raw
    assert "\\xff\\xfe\x00" in read_back.text
    assert decode(encode(again)) == again


def test_the_file_is_utf8_that_any_json_reader_opens_schema_first() -> None:
    data = encode(sample_result())
    assert data.decode("utf-8").startswith('{\n  "schema": "plumbline.result/1",\n')
    assert data.endswith(b"}\n")
    assert json.loads(data)["checks"][3]["outcome"] == "failed"


def test_raw_bytes_are_base64_with_readable_text_beside() -> None:
    line = loaded(sample_result())["checks"][0]["wire"][0]
    assert line["text"].startswith('INFO {"server_id"')
    assert base64.b64decode(line["raw"]) == line["text"].encode() + b"\r\n"


def test_the_published_schema_is_the_one_of_the_types() -> None:
    assert SCHEMA_FILE.read_text() == schema_text(), (
        "run: python -m plumbline.reports.result_json > reports/result.schema.json"
    )


def test_the_published_schema_accepts_what_is_written() -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(loaded(sample_result()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "plumbline.result/2"),
        (("summary", "claimed"), "many"),
        (("checks", 0, "outcome"), "green"),
        (("requirements", 0, "level"), "must"),
        (("checks", 0, "wire", 0, "direction"), "?"),
    ],
)
def test_the_published_schema_refuses_what_is_not_a_result(path: tuple[str | int, ...], value: str) -> None:
    document: Any = loaded(sample_result())
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(SCHEMA_FILE.read_text()))
    with pytest.raises(ResultError):
        decode(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a Plumbline result"),
        (b"<html>", "not a Plumbline result"),
        (b"[]", "not a Plumbline result"),
        (b"\xff", "not a Plumbline result"),
        (b"[" * 100_000, "not a Plumbline result"),
        (b"{}", 'it has no "schema"; expected plumbline.result/1'),
        (b'{"schema":"other/1"}', "its \"schema\" is 'other/1', expected plumbline.result/1"),
        (b'{"schema":"plumbline.result/2"}', r"another schema \(plumbline.result/2\); .* run again"),
        (b'{"schema":"plumbline.result/1"}', "an invalid plumbline.result/1 file: .*suite"),
    ],
)
def test_other_file_is_rejected_with_description(data: bytes, message: str) -> None:
    with pytest.raises(ResultError, match=message):
        decode(data)


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("{}")
    with pytest.raises(ResultError, match=r"r\.json: not a Plumbline result"):
        read(path)


def test_a_result_that_gzip_made_is_read(tmp_path: Path) -> None:
    path = tmp_path / "result.json.gz"
    path.write_bytes(gzip.compress(encode(conformant_result())))
    assert read(path) == conformant_result()


@pytest.mark.parametrize("damage", ["cut", "plain", "empty", "garbled"])
def test_a_damaged_compressed_result_is_refused(damage: str, tmp_path: Path) -> None:
    whole = gzip.compress(encode(sample_result()))
    path = tmp_path / "result.json.gz"
    garbled = whole[:40] + bytes(20) + whole[60:]
    path.write_bytes({"cut": whole[:-9], "plain": b"{}", "empty": b"", "garbled": garbled}[damage])
    with pytest.raises(ResultError, match=r"result\.json\.gz: (it is not whole or not gzip|not a Plumbline)"):
        read(path)


def test_a_compressed_file_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json.gz"
    path.write_bytes(gzip.compress(bytes(10_001)))
    with pytest.raises(OSError, match="more than 10,000 bytes, uncompressed"):
        read_gzip(path, 10_000)


def test_later_fields_are_ignored() -> None:
    document = loaded(conformant_result()) | {"later": 1}
    assert decode(json.dumps(document).encode()) == conformant_result()


def test_hostile_text_survives_as_text() -> None:
    result = conformant_result()
    hostile = replace(result, target=replace(result.target, server_name=HOSTILE))
    name = decode(encode(hostile)).target.server_name
    assert name == HOSTILE.replace("\udcff\udcfe", "\\xff\\xfe")
