"""A power loss takes what was not fsynced, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from plumbline.cluster.disk import StoreDisk
from plumbline.cluster.strace import FileEvent, Opened, Removed, Renamed, Shortened, Synced
from plumbline.cluster.traced import TracedProcess
from plumbline.errors import UsageProblem
from plumbline.servers.process import ServerProcess


class Store:
    """Files and their disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "store"
        self.folder.mkdir()
        self.disk = StoreDisk(self.folder, folder / "on-disk")

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def write(self, name: str, content: bytes) -> None:
        """At the end, as an append does."""
        with (self.folder / name).open("ab") as file:
            file.write(content)

    def after_power_loss(self, *events: FileEvent) -> dict[str, bytes]:
        for event in events:
            self.disk.take(event)
        self.disk.lose_power()
        return {file.name: file.read_bytes() for file in self.folder.iterdir()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_bytes_after_the_last_fsync_are_lost(store: Store) -> None:
    store.write("1.blk", b"first")
    store.disk.take(Synced(store.path("1.blk")))
    store.write("1.blk", b"second")
    store.write("2.blk", b"third")
    assert store.after_power_loss() == {"1.blk": b"first", "2.blk": b""}


def test_what_was_lost_is_counted(store: Store) -> None:
    store.write("1.blk", b"first")
    store.disk.take(Synced(store.path("1.blk")))
    store.write("1.blk", b"second")
    store.write("2.blk", b"third")
    assert store.disk.lose_power() == (2, 11)
    assert store.disk.lose_power() == (0, 0)


def test_a_file_that_is_written_synchronously_keeps_all(store: Store) -> None:
    store.disk.take(Opened(store.path("meta.inf.tmp"), is_synchronous=True, is_emptied=True))
    store.write("meta.inf.tmp", b"meta")
    (store.folder / "meta.inf.tmp").rename(store.folder / "meta.inf")
    renamed = Renamed(store.path("meta.inf.tmp"), store.path("meta.inf"))
    assert store.after_power_loss(renamed) == {"meta.inf": b"meta"}


def test_a_file_that_replaces_another_has_its_own_bytes_only(store: Store) -> None:
    store.write("index.db", b"old")
    store.disk.take(Synced(store.path("index.db")))
    store.write("new", b"new")
    (store.folder / "new").rename(store.folder / "index.db")
    assert store.after_power_loss(Renamed(store.path("new"), store.path("index.db"))) == {"index.db": b""}


def test_a_file_that_was_renamed_before_its_fsync_was_seen_is_on_disk(store: Store) -> None:
    store.write("new", b"new")
    (store.folder / "new").rename(store.folder / "snap")
    events = Synced(store.path("new")), Renamed(store.path("new"), store.path("snap"))
    assert store.after_power_loss(*events) == {"snap": b"new"}


def test_files_of_a_renamed_folder_stay_on_disk(store: Store) -> None:
    (store.folder / "a").mkdir()
    store.write("a/1.blk", b"first")
    store.disk.take(Synced(store.path("a/1.blk")))
    (store.folder / "a").rename(store.folder / "b")
    store.disk.take(Renamed(store.path("a"), store.path("b")))
    store.disk.lose_power()
    assert (store.folder / "b" / "1.blk").read_bytes() == b"first"


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_that_begins_again_does_not_have_its_old_bytes(store: Store, is_removed: bool) -> None:
    path = store.path("1.blk")
    store.write("1.blk", b"old")
    store.disk.take(Synced(path))
    (store.folder / "1.blk").write_bytes(b"new")
    again = Removed(path) if is_removed else Opened(path, is_synchronous=False, is_emptied=True)
    assert store.after_power_loss(again) == {"1.blk": b""}


def test_a_shortened_file_stays_short(store: Store) -> None:
    store.write("1.blk", b"0123456789")
    store.disk.take(Synced(store.path("1.blk")))
    (store.folder / "1.blk").write_bytes(b"0123")
    store.write("1.blk", b"more")
    assert store.after_power_loss(Shortened(store.path("1.blk"), 4)) == {"1.blk": b"0123"}


def test_a_sync_of_everything_keeps_everything(store: Store) -> None:
    store.write("1.blk", b"first")
    assert store.after_power_loss(Synced()) == {"1.blk": b"first"}


def test_files_elsewhere_are_left(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "log"
    other.write_bytes(b"line")
    store.after_power_loss(Opened(str(other), is_synchronous=False, is_emptied=True))
    assert other.read_bytes() == b"line"


WRITER = """
import os, signal, sys
for name, synced in (("kept", True), ("lost", False)):
    with open(os.path.join(sys.argv[1], name), "wb") as file:
        file.write(b"x" * 100)
        file.flush()
        if synced:
            os.fsync(file.fileno())
print("written", flush=True)
signal.pause()
"""


class Writer(ServerProcess):
    """Writes two files, of which it fsyncs one, and waits."""

    def __init__(self, binary: Path | str) -> None:
        super().__init__(binary)

    def _commands(self) -> Sequence[Sequence[str | Path]]:
        store = self.folder / "store"
        store.mkdir(exist_ok=True)
        return [[self.binary, "-c", WRITER, store]]

    def _ready_url(self, deadline: float) -> str:
        return "writer" if "written" in self.log else ""


class TracedWriter(TracedProcess, Writer):
    store = "store"


def test_strace_shows_what_a_process_has_fsynced() -> None:
    with TracedWriter(sys.executable) as writer:
        writer.kill()
        assert writer.lose_power() == "1 files lost 100 bytes that were not fsynced"
        sizes = {file.name: file.stat().st_size for file in (writer.folder / "store").iterdir()}
        assert sizes == {"kept": 100, "lost": 0}


def test_without_strace_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageProblem, match="a power loss needs strace"):
        TracedWriter(sys.executable)
