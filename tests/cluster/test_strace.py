"""Lines of strace are read as what happened to files."""

from __future__ import annotations

import pytest

from plumbline.cluster.strace import FileEvent, Opened, Removed, Renamed, Shortened, StraceReader, Synced

LINES = [
    ("fsync(9</s/1.blk>) = 0", Synced("/s/1.blk")),
    ("fdatasync(9</s/1.blk>(deleted)) = 0", Synced("/s/1.blk")),
    ("fsync(9</s/1.blk>) = -1 EIO (Input/output error)", None),
    ("sync() = 0", Synced()),
    ('openat(AT_FDCWD</x>, "s/a", O_RDONLY|O_CLOEXEC) = 5</x/s/a>', None),
    (
        'openat(AT_FDCWD</x>, "s/a", O_WRONLY|O_CREAT|O_TRUNC, 0600) = 5</x/s/a>',
        Opened("/x/s/a", False, True),
    ),
    ('openat(AT_FDCWD</x>, "/s/a", O_RDWR|O_CREAT|O_SYNC, 0600) = 5</s/a>', Opened("/s/a", True, False)),
    ('openat(AT_FDCWD</x>, "/s/a", O_WRONLY) = -1 ENOENT (No such file or directory)', None),
    ('creat("/s/a", 0600) = 5</s/a>', Opened("/s/a", False, True)),
    ('rename("/s/a.tmp", "/s/a") = 0', Renamed("/s/a.tmp", "/s/a")),
    ('renameat(AT_FDCWD</x>, "/s/a.tmp", 7</s/b>, "a") = 0', Renamed("/s/a.tmp", "/s/b/a")),
    ('unlinkat(7</s/b>, "1.blk", 0) = 0', Removed("/s/b/1.blk")),
    ('unlink("/s/a") = 0', Removed("/s/a")),
    ("ftruncate(9</s/1.blk>, 4096) = 0", Shortened("/s/1.blk", 4096)),
    ('truncate("/s/1.blk", 0) = 0', Shortened("/s/1.blk", 0)),
    ("+++ exited with 0 +++", None),
    ("exit_group(0) = ?", None),
]


@pytest.mark.parametrize(("line", "event"), LINES)
def test_a_line_is_an_event(line: str, event: FileEvent | None) -> None:
    assert StraceReader().read(f"12546 {line}\n") == event


def test_a_call_that_another_thread_interrupted_is_one_event() -> None:
    reader = StraceReader()
    assert reader.read("7  fsync(9</s/1.blk> <unfinished ...>\n") is None
    assert reader.read('8  rename("/s/a", "/s/b") = 0\n') == Renamed("/s/a", "/s/b")
    assert reader.read("8  fsync(5</s/b> <unfinished ...>\n") is None
    assert reader.read("7  <... fsync resumed>) = 0\n") == Synced("/s/1.blk")
    assert reader.read("8  <... fsync resumed>) = -1 EIO (Input/output error)\n") is None
