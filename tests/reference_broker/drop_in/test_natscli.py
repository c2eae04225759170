"""Commands of natscli print the same on the newest nats-server and on the drop-in, save names and times."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from pathlib import Path

import pytest

from plumbline.servers.nats.nats_server import ServerBinary
from tests.conformance.clients.libraries import BUILT_WITHIN_S
from tests.reference_broker.drop_in.natscli import natscli, sections, terminal
from tests.reference_broker.drop_in.process import COMMAND

SECTIONS = sections(Path(__file__).with_name("natscli.txt"))
PLAYED_WITHIN_S = 300.0
pytestmark = [pytest.mark.slow, pytest.mark.external, pytest.mark.timeout(BUILT_WITHIN_S + PLAYED_WITHIN_S)]


@pytest.fixture(scope="session")
def program() -> Path:
    return natscli()


def printed(program: Path, folder: Path, command: Sequence[str], lines: list[str]) -> list[tuple[str, str]]:
    """What the commands of a section print on a server."""
    with terminal(program, folder, command) as at:
        for line in lines:
            at.play(line)
        assert len(at.printed) == sum(line[0] in "$!" for line in lines)
        return at.printed


@pytest.mark.parametrize("section", SECTIONS)
def test_natscli_prints_the_same(
    section: str, program: Path, newest_server: ServerBinary, tmp_path: Path
) -> None:
    lines = SECTIONS[section]
    with ThreadPoolExecutor() as pool:  # many commands wait for their own time limit
        on_real = pool.submit(printed, program, tmp_path / "real", [str(newest_server.path)], lines)
        on_ours = pool.submit(printed, program, tmp_path / "ours", COMMAND, lines)
    real, ours = on_real.result(), on_ours.result()
    differences = [
        "\n".join(
            [command, *unified_diff(theirs.splitlines(), own.splitlines(), "real", "ours", lineterm="", n=1)]
        )
        for (command, theirs), (_, own) in zip(real, ours, strict=True)
        if theirs != own
    ]
    assert not differences, "\n\n".join(differences)
