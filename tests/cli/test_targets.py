"""``plumbline targets`` and ``plumbline verify --target``, by the real command."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
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


BROKER = f"{shlex.quote(sys.executable)} -P -m plumbline broker"
USERS = f"""
[broker]
protocol = "nats"
start = '''{BROKER} nats -c {{config}}'''
ready = "^nats://"
[memory]
protocol = "nats"
start = '''{BROKER} nats -js -p {{port}}'''
[rabbits]
protocol = "amqp"
start = '''{BROKER} amqp -p {{port}} -d {{store}}'''
"""


def users_file(folder: Path) -> tuple[str, str]:
    (folder / "my.toml").write_text(USERS)
    return "--targets-file", "my.toml"


def outcomes(folder: Path) -> dict[str, set[str]]:
    """Of the checks of each requirement."""
    found: dict[str, set[str]] = {}
    for check in json.loads((folder / "r.json").read_text())["checks"]:
        for name in check["requirements"]:
            found.setdefault(name, set()).add(check["outcome"])
    return found


def test_a_users_servers_are_listed(tmp_path: Path) -> None:
    ended = plumbline(tmp_path, "targets", *users_file(tmp_path), "--json")
    rows = json.loads(ended.out)
    assert [(row["target"], row["protocol"]) for row in rows] == [
        ("broker", "nats"),
        ("memory", "nats"),
        ("rabbits", "amqp"),
    ]
    assert {row["path"] for row in rows} == {shutil.which(sys.executable)}


@pytest.mark.slow
def test_a_users_server_is_verified_in_every_configuration_and_restarted(tmp_path: Path) -> None:
    arguments = ("--target", "broker", "--select", "JS-STORE-02*", "--select", "CORE-02*", "--json", "r.json")
    ended = plumbline(tmp_path, "verify", *users_file(tmp_path), *arguments)
    assert ended.code == 0, ended.out + ended.err
    assert set().union(*outcomes(tmp_path).values()) == {"passed"}
    target = json.loads((tmp_path / "r.json").read_text())["target"]
    assert "auth" in target["variants"]
    assert target["arguments"] == ["--targets-file", str(tmp_path / "my.toml"), "--target", "broker"]


@pytest.mark.slow
def test_a_users_server_without_a_store_is_not_restarted(tmp_path: Path) -> None:
    arguments = ("--target", "memory", "--select", "JS-STORE-022", "--json", "r.json")
    ended = plumbline(tmp_path, "verify", *users_file(tmp_path), *arguments)
    assert "or its start command has no {store}" in ended.out
    assert outcomes(tmp_path)["JS-STORE-022"] == {"unsupported"}


@pytest.mark.slow
def test_a_users_amqp_server_is_restarted(tmp_path: Path) -> None:
    arguments = ("--target", "rabbits", "--select", "AMQP-DURABILITY-00*", "--json", "r.json")
    ended = plumbline(tmp_path, "verify", *users_file(tmp_path), *arguments)
    assert ended.code == 0, ended.out + ended.err
    assert outcomes(tmp_path)["AMQP-DURABILITY-005"] == {"passed"}


def test_a_file_without_a_name_lists_the_names(tmp_path: Path) -> None:
    ended = plumbline(tmp_path, "verify", *users_file(tmp_path))
    assert (ended.code, ended.out) == (2, "")
    assert one_sentence(ended.err) == "--targets-file needs --target; my.toml has broker, memory, rabbits"


def test_explore_refuses_a_users_server_of_another_protocol(tmp_path: Path) -> None:
    ended = plumbline(tmp_path, "explore", *users_file(tmp_path), "--target", "rabbits")
    assert ended.code == 2
    assert one_sentence(ended.err) == "rabbits is a server for amqp; this command supports nats"
