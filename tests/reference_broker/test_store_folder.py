"""The folder of a store: used by one process, in one version of its layout, changed by a write queue."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plumbline.reference_broker.store_folder import Stamp, StoreError, StoreFolder
from plumbline.reference_broker.write_queue import Append, Move, Remove, Replace, Truncate

STAMP = Stamp("test", 3)


def folder(path: Path, stamp: Stamp = STAMP, *, synced: bool = False) -> StoreFolder:
    return StoreFolder(path / "store", stamp, synced=synced)


@pytest.mark.parametrize("synced", [False, True])
def test_written_files_are_read_at_next_start(tmp_path: Path, synced: bool) -> None:
    one = folder(tmp_path, synced=synced)
    assert one.open() == {}
    one.write([Append("a/b/log", [b"12", b"34"]), Append("a/gone", [b"x"]), Replace("a/whole", b"old")])
    one.write([Append("a/b/log", [b"56"]), Truncate("a/b/log", 5), Replace("a/whole", b"new")])
    one.write([Append("a/b/log", [b"!"]), Remove("a/gone"), Remove("never/there")])
    one.write([Append("c/d", [b"moved"]), Append("c/e", [b"too"]), Move("c", "f/g"), Append("c/d", [b"new"])])
    one.write([Append("h/i/j", [b"x"]), Remove("h")])
    one.close()
    assert folder(tmp_path).open() == {
        "a/b/log": b"12345!",
        "a/whole": b"new",
        "f/g/d": b"moved",
        "f/g/e": b"too",
        "c/d": b"new",
    }


def test_an_unfinished_replacement_does_not_count(tmp_path: Path) -> None:
    one = folder(tmp_path)
    one.open()
    one.write([Replace("a/whole", b"old")])
    one.close()
    (tmp_path / "store/a/whole.tmp").write_bytes(b"ne")
    assert folder(tmp_path).open() == {"a/whole": b"old"}
    assert not (tmp_path / "store/a/whole.tmp").exists()


def test_more_files_than_may_be_open_are_all_written(tmp_path: Path) -> None:
    one = folder(tmp_path)
    one.open()
    for text in (b"1", b"2"):
        one.write(Append(f"many/{number}", [text]) for number in range(300))
    one.sync()
    one.close()
    assert set(folder(tmp_path).open().values()) == {b"12"}


def test_second_broker_is_rejected_with_owner_pid(tmp_path: Path) -> None:
    first = folder(tmp_path)
    first.open()
    with pytest.raises(StoreError, match=rf"in use by another broker \(process {os.getpid()}\)"):
        folder(tmp_path).open()
    first.close()
    folder(tmp_path).open()


@pytest.mark.parametrize("other", [Stamp("test", 4), Stamp("test", 2), Stamp("another", 3)])
def test_other_layout_is_rejected_and_unchanged(tmp_path: Path, other: Stamp) -> None:
    theirs = folder(tmp_path, other)
    theirs.open()
    theirs.write([Append("data", [b"x"])])
    theirs.close()
    with pytest.raises(
        StoreError,
        match="reads and writes 'test', version 3, and cannot convert it: use the program that wrote it",
    ):
        folder(tmp_path).open()
    assert (tmp_path / "store/data").read_bytes() == b"x"
    folder(tmp_path, other).open()


def test_the_files_of_another_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / "store/$G/streams").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"contains '\$G' but no layout.json: another program wrote it"):
        folder(tmp_path).open()


def test_a_damaged_stamp_is_refused(tmp_path: Path) -> None:
    one = folder(tmp_path)
    one.open()
    one.close()
    (tmp_path / "store/layout.json").write_text("{")
    with pytest.raises(StoreError, match=r"layout.json is damaged.*\"version\":3"):
        folder(tmp_path).open()


def test_with_synced_every_write_is_on_the_disk_when_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought: list[str] = []
    fdatasync = os.fdatasync

    def spy(descriptor: int) -> None:
        brought.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", spy)
    one = folder(tmp_path, synced=True)
    one.open()
    one.write([Append("a/log", [b"x"]), Append("a/other", [b"y"])])
    assert sorted(brought) == ["log", "other"]
    assert not one.is_dirty


def test_manual_sync_without_fsync_policy(tmp_path: Path) -> None:
    one = folder(tmp_path)
    one.open()
    one.write([Append("a/log", [b"x"])])
    assert one.is_dirty
    one.sync()
    assert not one.is_dirty


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    one = folder(tmp_path)
    one.open()
    one.write([Append("a/log", [b"1"]), Replace("a/whole", b"2")])
    one.close()
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert len(files) > 2
