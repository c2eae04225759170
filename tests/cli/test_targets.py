"""``plumbline targets`` and ``plumbline verify --target``, by the real command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plumbline.servers.nats.nats_server import ServerBinary
from tests.cli.command import PLUMBLINE, Ended, environment, one_sentence, run


def plumbline(folder: Path, *arguments: str | Path, **more: str) -> Ended:
    """With a cache of its own, so that nothing was got before."""
    return run((*PLUMBLINE, *arguments), folder, environment(XDG_CACHE_HOME=str(folder), **more))


def test_the_list_names_what_is_here_with_its_version_and_place(
    tmp_path: Path, server_binary: ServerBinary
) -> None:
    ended = plumbline(tmp_path, "targets", f"nats-server@{server_binary.version}")
    assert ended.code == 0
    name, protocol, state, version, path = ended.out.split()
    assert (name, protocol) == (f"nats-server@{server_binary.version}", "nats")
    assert (state, version) == ("installed", server_binary.version)
    assert Path(path).exists()


def test_the_list_is_there_for_programs_too(tmp_path: Path) -> None:
    ended = plumbline(tmp_path, "targets", "--json", "nats-server@2.10", "nats-server@debian")
    rows = json.loads(ended.out)
    assert [row["target"] for row in rows] == ["nats-server@2.10.29", "nats-server@debian"]
    assert {row["protocol"] for row in rows} == {"nats"}
    assert all(way["possible"] == (not way["missing"]) for row in rows for way in row["ways"])


def test_without_a_name_every_known_target_is_listed(tmp_path: Path) -> None:
    ended = plumbline(tmp_path, "targets")
    assert ended.code == 0
    assert {"nats-server@debian", "nats-server@2.10.14"} <= {
        line.split()[0] for line in ended.out.splitlines()
    }


@pytest.mark.parametrize("command", [("targets",), ("verify", "--target")])
def test_a_name_that_means_nothing_is_a_mistake(tmp_path: Path, command: tuple[str, ...]) -> None:
    ended = plumbline(tmp_path, *command, "nats-servr@2.10.14")
    assert (ended.code, ended.out) == (2, "")
    assert one_sentence(ended.err) == "unknown target 'nats-servr'; did you mean nats-server?"


def test_unavailable_target_lists_missing_tools(tmp_path: Path) -> None:
    ended = plumbline(tmp_path, "verify", "--target", "nats-server@2.10.98", PATH="/nowhere")
    assert (ended.code, ended.out) == (2, "")
    assert "not on PATH: go" in one_sentence(ended.err)


def test_a_named_target_is_started_verified_and_named_for_another_run(
    tmp_path: Path, server_binary: ServerBinary
) -> None:
    name = f"nats-server@{server_binary.version}"
    ended = plumbline(tmp_path, "verify", "--target", name, "--select", "CORE-00*", "--json", "r.json")
    assert ended.code == 0, ended.err
    target = json.loads((tmp_path / "r.json").read_text())["target"]
    assert target["version"] == server_binary.version
    assert target["arguments"] == ["--target", name]
    assert "auth" in target["variants"]
