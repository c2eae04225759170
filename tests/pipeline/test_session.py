"""Spark imports nothing of the working folder, and leaves the process that starts it as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.command import environment, run

pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.usefixtures("java")]
PLANTED = "import pathlib\npathlib.Path(__file__).with_suffix('.imported').touch()\n"
PROGRAM = """
import os
from plumbline.pipeline.spark.session import session
spark = session("local[1]")
rows = spark.sparkContext.parallelize([1], 1).map(lambda one: one + 1).collect()
print(rows, os.environ.get("PYTHONSAFEPATH"))
"""


def test_workers_import_nothing_of_the_working_folder_and_no_variable_stays(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(PLANTED)
    ended = run((sys.executable, "-P", "-c", PROGRAM), tmp_path, environment())
    assert (ended.code, ended.out) == (0, "[2] None\n"), ended.err
    assert not (tmp_path / "json.imported").exists()
