"""The search finds what is planted, and knows every secret that tests spell."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from base64 import b64encode, urlsafe_b64encode
from html import escape
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import pytest

from plumbline.captures.packets import PacketFlow
from plumbline.captures.pcapng import interface, packet, section_header
from plumbline.wire.sender import Direction
from tests.cli.command import ROOT
from tests.leaks import places
from tests.leaks.known import TESTS, is_distinctive, secrets_of_tests
from tests.leaks.places import PIECE
from tests.leaks.search import ALLOWED, Hit, Search
from tests.nats_identities import write_creds

PLANTED = 'pl4nted/W"ord +é'
RAW = PLANTED.encode()
SEARCH = Search({PLANTED: "tests/x.py:1"})


def found(path: Path, data: bytes) -> list[Hit]:
    path.write_bytes(data)
    return list(SEARCH.hits(path))


@pytest.mark.parametrize(
    "spelled",
    [
        RAW,
        json.dumps({"pass": PLANTED}).encode(),
        json.dumps({"pass": PLANTED}, ensure_ascii=False).encode(),
        json.dumps(json.dumps({"pass": PLANTED})).encode(),
        repr(RAW).encode(),
        ascii(PLANTED).encode(),
        quote(PLANTED).encode(),
        quote(PLANTED, safe="").encode(),
        re.sub("%..", lambda found: found[0].lower(), quote(PLANTED, safe="")).encode(),
        quote_plus(PLANTED).encode(),
        escape(PLANTED).encode(),
        escape(PLANTED, quote=False).encode(),
        *(b64encode(b"\0alice\0"[:size] + RAW + b"more") for size in range(7)),
        *(urlsafe_b64encode(b"\0alice\0"[:size] + RAW + b"more") for size in range(3)),
        RAW.hex().encode(),
        PLANTED.encode("utf-16"),
    ],
)
def test_every_spelling_is_found(spelled: bytes, tmp_path: Path) -> None:
    hits = found(tmp_path / "report", b"before" + spelled + b"after")
    assert hits
    assert "tests/x.py:1" in str(hits[0])
    assert "pl4nted" not in str(hits)


def test_what_is_like_a_secret_is_none(tmp_path: Path) -> None:
    assert not found(tmp_path / "report", PLANTED[:-1].encode() + b"*" + RAW[1:])


def zipped(data: bytes) -> bytes:
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside/report", data)
    return packed.getvalue()


def tarred(data: bytes) -> bytes:
    with tarfile.open(fileobj=(packed := io.BytesIO()), mode="w:gz") as archive:
        member = tarfile.TarInfo("inside")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.parametrize("pack", [gzip.compress, zipped, tarred, lambda data: zipped(gzip.compress(data))])
def test_archives_are_opened(pack: object, tmp_path: Path) -> None:
    assert callable(pack)
    packed = pack(b"x" * 100 + RAW + b"x" * 100)
    assert RAW not in packed
    hits = found(tmp_path / "packed", packed)
    assert (hits[-1].at, "packed!" in hits[-1].place) == (100, True)
    assert not found(tmp_path / "damaged", packed[: len(packed) // 2])


def test_a_secret_is_not_cut_in_two(tmp_path: Path) -> None:
    at = PIECE - 3
    hits = found(tmp_path / "a.gz", gzip.compress(bytes(at) + RAW + bytes(10), 1))
    assert {hit.at for hit in hits} == {at}


def test_tables_are_opened(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"who": "alice", "lines": [{"text": "nothing"}, {"text": f"CONNECT {PLANTED}"}]}] * 9
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "t.parquet", compression="gzip", write_statistics=False)
    assert RAW not in (tmp_path / "t.parquet").read_bytes()
    hits = list(SEARCH.hits(tmp_path))
    assert {hit.place for hit in hits} == {f"{tmp_path}/t.parquet!lines"}


def test_streams_of_captures_are_put_together(tmp_path: Path) -> None:
    flow = PacketFlow(1, ("127.0.0.1", 1000), ("127.0.0.1", 4222))
    blocks = [section_header("test"), interface("one", "")]
    for byte in b"CONNECT " + RAW:
        packet(blocks, 0, flow.head(Direction.TO_SERVER, 1), bytes([byte]), ())
    (hit,) = found(tmp_path / "c.pcapng", b"".join(blocks))
    assert (hit.at, hit.place.partition("!")[2]) == (8, "127.0.0.1:1000>127.0.0.1:4222")


def test_seeds_and_private_keys_are_known_by_their_shape(tmp_path: Path) -> None:
    write_creds(tmp_path / "user.creds")
    copied = (tmp_path / "user.creds").read_bytes()
    (tmp_path / "log").write_bytes(copied + b"-----BEGIN EC PRIVATE KEY-----\n")
    hits = list(SEARCH.hits(tmp_path))
    assert {hit.what for hit in hits} == {"the seed of an NKey", "a private key"}
    assert {hit.place for hit in hits} == {str(tmp_path / "log")}  # the other is allowed to have it
    assert all(ALLOWED.values())  # with a reason


# -- what tests spell --------------------------------------------------------------------------

# Found in another way than by ``known``: any name that ends like one, and a literal behind it.
LITERAL = re.compile(
    r"""(?i)(?:pass|password|passwd|token)["']?\s*[:=]\s*b?["']([^"'\\{}\n]+)["']|://[^\s:@/{}"']*:([^\s@{}"']+)@"""
)
NO_SECRETS = re.compile(r"\W+|[a-z_]+\s*=.*")


def test_every_literal_that_looks_like_a_password_is_known() -> None:
    known = secrets_of_tests()
    unknown = [
        f"{path.relative_to(TESTS)}: {value}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.parent.name != "leaks"
        for groups in LITERAL.findall(path.read_text("utf-8"))
        for value in groups
        if value and not NO_SECRETS.fullmatch(value) and not {value, unquote(value)} & set(known)
    ]
    assert unknown == []


def test_the_secrets_of_tests_are_many_and_each_has_its_place() -> None:
    known = secrets_of_tests()
    assert {"TOPSECRET", "tr0ub4dor", "hunter2-is-the-secret", "s3cret#1"} <= set(known)
    assert sum(map(is_distinctive, known)) >= 20
    for value in filter(is_distinctive, known):
        assert known[value].startswith("tests/")


def test_the_command_prints_places_and_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    (tmp_path / "found").mkdir()
    (tmp_path / "clean" / "log").write_text("nothing\n")
    (tmp_path / "found" / "log.gz").write_bytes(gzip.compress(b"CONNECT hunter2-is-the-secret"))
    ended = [
        subprocess.run(
            [sys.executable, "-m", "tests.leaks", tmp_path / name],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        for name in ("clean", "found", "none")
    ]
    assert [one.returncode for one in ended] == [0, 1, 2]
    assert f"{tmp_path}/found/log.gz!gz: byte 8: a secret of tests/proxy/test_recording.py" in ended[1].stdout
    assert "hunter2" not in ended[1].stdout + ended[1].stderr


def test_more_than_a_disk_has_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PIECE", 1000)
    monkeypatch.setattr(places, "MOST", 5000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(100_000)))
    assert sum(len(piece.data) for piece in places.pieces(tmp_path / "a.gz")) < 50_000


@pytest.mark.parametrize(
    ("folder", "count"), [("test_with_secrets_kept_a_note_0", 0), ("test_with_secrets_masked_0", 1)]
)
def test_only_named_tests_may_write_a_secret(folder: str, count: int, tmp_path: Path) -> None:
    written = tmp_path / "pytest-0" / folder / "report"
    written.parent.mkdir(parents=True)
    written.write_bytes(RAW)
    assert len(list(Search({PLANTED: "here"}).hits(tmp_path))) == count
