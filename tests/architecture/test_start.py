"""A command imports what it needs and no more: a broker starts in a blink."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTED = """
import sys
import plumbline.cli.main
sys.argv = ["plumbline", *sys.argv[1:]]
try:
    plumbline.cli.main.main()
except SystemExit:
    print("\\n".join(sys.modules))
"""


def imported(*arguments: str) -> set[str]:
    """The modules that ``plumbline ARGUMENTS`` has imported when it ends."""
    command = (sys.executable, "-c", IMPORTED, *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ended.stdout.split("\n"))


@pytest.mark.parametrize(
    "part", ["plumbline.conformance", "plumbline.reports", "plumbline.servers", "pytest", "rich"]
)
def test_a_broker_is_started_without_the_suite(part: str) -> None:
    assert part not in imported("broker", "nats", "--port=none")


def test_a_list_is_printed_without_a_broker() -> None:
    modules = imported("list", "CORE-001")
    assert "plumbline.conformance" in modules
    assert "plumbline.reference_broker" not in modules
