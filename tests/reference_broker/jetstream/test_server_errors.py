"""Our table of errors beside the one that nats-server generates its own from: ``server/errors.json``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.levels import NEWEST, VERSIONS
from tests.conftest import servers_required

MODULE = f"github.com/nats-io/nats-server/v2@v{VERSIONS[NEWEST]}"
NO_GO = f"no Go to read the errors of {MODULE} with: install it from https://go.dev/dl/"
KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, errors.ErrorCode)}

Table = Mapping[int, Sequence[tuple[int, str]]]  # err_code -> code, text


@pytest.fixture(scope="module")
def table() -> Table:
    """The errors of the newest release that the reference broker is compared with."""
    go = shutil.which("go")
    if go is None:
        if servers_required():
            pytest.fail(NO_GO, pytrace=False)
        pytest.skip(NO_GO)
    command = [go, "mod", "download", "-json", MODULE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        problem = f"{' '.join(command)}: {json.loads(done.stdout or '{}').get('Error', done.stderr)}"
        if servers_required():
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    rows: list[dict[str, Any]] = json.loads(
        Path(json.loads(done.stdout)["Dir"], "server/errors.json").read_text()
    )
    found = defaultdict(list)
    for row in rows:
        found[row["error_code"]].append((row["code"], row["description"]))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_an_error_of_ours_is_one_of_the_server(name: str, table: Table) -> None:
    kind = KINDS[name]
    theirs = table.get(kind.err_code, ())
    assert any(code == kind.code and same(kind.text, text) for code, text in theirs), theirs


def same(one: str, other: str) -> bool:
    """Whether the texts are the same where neither has a placeholder: ours may be the server's, filled in."""
    return bool(re.fullmatch(pattern(one), other) or re.fullmatch(pattern(other), one))


def pattern(text: str) -> str:
    """A regular expression: a placeholder such as ``{err}`` is any text."""
    return ".*".join(map(re.escape, re.split(r"\{\w*\}", text)))


def test_texts_that_differ_are_found() -> None:
    assert same("stream not found", "stream not found")
    assert same("sequence {seq} not found", "sequence {err} not found")
    assert same("at most 255", "at most {max}")
    assert not same("stream not found", "consumer not found")
    assert not same("sequence {seq} not found", "stream {seq} not found")
