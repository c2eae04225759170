"""A target is given up after probes in a row without an answer; a busy machine may miss one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from plumbline.conformance.runner.judge import LOST_AFTER, Judge, lost_reason

SILENT = "127.0.0.1:4222 does not answer PING within 2 s."


class Target:
    """A target whose probes find these reasons, one after the other."""

    def __init__(self, shared: Path, *reasons: str) -> None:
        self.shared = shared
        self._reasons: Iterator[str] = iter(reasons)

    def absence_reason(self) -> str:
        return next(self._reasons)


@pytest.mark.parametrize(
    ("reasons", "is_lost"),
    [
        ((SILENT,) * LOST_AFTER, True),
        ((SILENT,) * (LOST_AFTER - 1) + ("",), False),
        (("",), False),
    ],
    ids=["silent", "answers in the end", "answers"],
)
def test_a_target_is_lost_after_probes_in_a_row(
    reasons: tuple[str, ...], is_lost: bool, tmp_path: Path
) -> None:
    run = cast("Any", SimpleNamespace(target=Target(tmp_path, *reasons)))
    assert Judge(run)._report_target_lost() is is_lost
    assert lost_reason(run) == (SILENT if is_lost else "")
