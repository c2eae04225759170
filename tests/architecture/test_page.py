"""``ARCHITECTURE.md`` says what the code does: it lists the rooms that exist and the imports they have."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {path.name for path in (ROOT / "plumbline").iterdir() if path.is_symlink()}
ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]*)\|$", re.MULTILINE)
WORDS = re.compile(r"`(\w+)`")


def documented() -> dict[str, set[str]]:
    """The table of rooms: what each one imports."""
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    return {room: set(WORDS.findall(imports)) for room, imports in ROW.findall(page)}


@pytest.fixture(scope="module")
def imported() -> dict[str, set[str]]:
    """What each room imports of the others and of the modules beside them, also inside functions."""
    graph = grimp.build_graph("plumbline", cache_dir=None)
    arrows: dict[str, set[str]] = defaultdict(set)
    for importer in graph.modules:
        for other in graph.find_modules_directly_imported_by(importer):
            source, target = importer.split(".")[1:2], other.split(".")[1:2]
            if source and target and source != target:
                arrows[source[0]].add(target[0])
    return arrows


def test_the_page_lists_every_room() -> None:
    assert set(documented()) == ROOMS


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_the_page_lists_the_imports_of_a_room(room: str, imported: dict[str, set[str]]) -> None:
    assert documented()[room] == imported[room]
