"""Damages files of a node that does not run: single bits, or the end. Which ones, a random generator says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

FLIPS = 2  # bits of a file
MOST_FILES = 3
LONGEST_CUT = 4096  # bytes of the end


def damage(files: Sequence[Path], random: Random) -> list[str]:
    """Flips bits or cuts off the end of some of these files. Says what was done."""
    candidates = sorted(file for file in files if file.stat().st_size > 1)
    chosen = random.sample(candidates, min(len(candidates), random.randint(1, MOST_FILES)))
    return [(_flip if random.random() < 0.5 else _cut)(file, random) for file in chosen]


def _flip(file: Path, random: Random) -> str:
    data = bytearray(file.read_bytes())
    places = sorted(random.sample(range(len(data)), min(FLIPS, len(data))))
    for place in places:
        data[place] ^= 1 << random.randrange(8)
    file.write_bytes(data)
    return f"{file.name}: a bit flipped at {' and at '.join(map(str, places))}"


def _cut(file: Path, random: Random) -> str:
    size = file.stat().st_size
    length = random.randint(1, min(size - 1, LONGEST_CUT))
    with file.open("r+b") as opened:
        opened.truncate(size - length)
    return f"{file.name}: the last {length} bytes cut off"
