"""Files of users and stores that are no text, are nested without end, or lead somewhere else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plumbline.conformance.requirements import catalogue
from plumbline.conformance.targets.variants import VariantsError, variants
from plumbline.conformance.waivers import WaiverError, load_waivers
from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.config_file import load
from plumbline.reference_broker.store_folder import LOCK, STAMP, Stamp, StoreError, StoreFolder
from plumbline.reference_broker.write_queue import Append, Replace
from plumbline.reports.allure import AllureReport

DEEP = b"[" * 100_000
NO_TEXT = b'{"layout": "\xff"}'
OURS = Stamp("test", 1)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("content", [DEEP, NO_TEXT, b"", b"\xff", b'{"layout":1,"version":9e999}'])
def test_an_unreadable_layout_file_is_reported_as_damaged(content: bytes, tmp_path: Path) -> None:
    (tmp_path / STAMP).write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        StoreFolder(tmp_path, OURS, synced=False).open()


@pytest.mark.parametrize("content", [DEEP, b'{"server_name": "\xff"}', b'{"a":' * 10_000])
def test_a_configuration_that_cannot_be_read_is_an_error_of_the_user(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="write the configuration as JSON"):
        load(file)


@pytest.mark.parametrize("port", ["²", "9" * 5000, "-1", ""])
def test_the_port_of_an_address_is_a_number(port: str, tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_text(f'{{"listen": "127.0.0.1:{port}"}}', encoding="utf-8")
    with pytest.raises(ConfigError, match="is not an address"):
        load(file)


@pytest.mark.parametrize("content", [b"a = " + DEEP, b'a = "\xff"', b"a = " + b"9" * 5000])
def test_toml_that_cannot_be_read_is_an_error_of_the_user(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file.toml"
    file.write_bytes(content)
    with pytest.raises(WaiverError):
        load_waivers(file, [])
    with pytest.raises(VariantsError):
        variants(file)
    problems: list[str] = []
    assert catalogue._read(file, problems) is None
    assert len(problems) == 1


@pytest.mark.parametrize("path", [LOCK, STAMP + ".tmp", "data/log", "data/whole.tmp"])
def test_a_store_does_not_write_through_a_symbolic_link(path: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"untouched")
    folder = tmp_path / "store"
    (folder / path).parent.mkdir(parents=True)
    if path.startswith("data"):
        (folder / "data").rmdir()
        store = StoreFolder(folder, OURS, synced=False)
        store.open()
        (folder / "data").mkdir()
        (folder / path).symlink_to(precious)
        change = Append("data/log", [b"x"]) if path == "data/log" else Replace("data/whole", b"x")
        with pytest.raises(OSError, match="symbolic links"):
            store.write([change])
        store.close()
    else:
        (folder / path).symlink_to(precious)
        with pytest.raises(StoreError, match="symbolic links"):
            StoreFolder(folder, OURS, synced=False).open()
    assert precious.read_bytes() == b"untouched"


def test_the_allure_folder_may_hold_a_file_or_folder_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".plumbline").write_text("mine", encoding="utf-8")
    (tmp_path / "b" / ".plumbline").mkdir(parents=True)
    AllureReport(tmp_path / "a")
    AllureReport(tmp_path / "b")
    assert (tmp_path / "a" / ".plumbline").read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in tmp_path.glob("*/*")) == [".plumbline", ".plumbline"]


def test_nobody_catches_only_one_of_the_errors_of_a_decoder() -> None:
    """``UNDECODABLE`` is the rule; ``wire`` imports nothing of ours, and is tested by itself."""
    caught = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for room in ("captures", "cli", "conformance", "pipeline", "proxy", "reference_broker", "reports")
        for path in (ROOT / room).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"except.*(msgspec|tomllib|json)\.(TOML|JSON)?DecodeError", line)
    ]
    assert caught == []
