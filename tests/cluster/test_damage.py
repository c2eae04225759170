"""Files are damaged at places that a random generator chooses."""

from __future__ import annotations

from pathlib import Path
from random import Random

from plumbline.cluster.damage import damage


def test_some_files_lose_their_end_or_have_flipped_bits(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    files = [tmp_path / f"{number}.blk" for number in range(8)]
    done: list[str] = []
    for file in files:
        file.write_bytes(content)
        done += damage([file], Random(file.name))
    assert len(done) == 8
    assert {len(file.read_bytes()) < len(content) for file in files} == {True, False}
    for file in files:
        found = file.read_bytes()
        assert found != content
        assert sum(one != other for one, other in zip(found, content, strict=False)) <= 2


def test_a_file_with_nothing_in_it_is_left(tmp_path: Path) -> None:
    empty = tmp_path / "1.blk"
    empty.touch()
    assert damage([empty], Random(1)) == []
