"""Names of real servers: what they mean, and the errors of a wrong name and a wrong file."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.servers.starting import command_of
from plumbline.servers.targets import TargetError, software, target, targets

FILE = """
[toy]
protocol = "nats"
description = "A toy."
module = "nats"
newest = "1.10.0"
versions = ["1.2.0", "1.2.9", "1.10.0"]
program = "toy"
debian = "toy-server"
clusters = [3, 5]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "targets.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("name", "version"),
    {
        "toy": "1.10.0",
        "toy@newest": "1.10.0",
        "toy@1.2.9": "1.2.9",
        "toy@v1.2.0": "1.2.0",
        "toy@1.7.3": "1.7.3",  # not listed: any release may be named
        "toy@1.2": "1.2.9",  # the last of its series
        "toy@1": "1.10.0",
        "toy@debian": "",
    }.items(),
)
def test_a_name_means_a_release(file: Path, name: str, version: str) -> None:
    assert target(name, file).version == version


@pytest.mark.parametrize(
    ("name", "version", "nodes"),
    [
        ("toy@1.2x3", "1.2.9", 3),
        ("toy@x5", "1.10.0", 5),
        ("toy@newestx3", "1.10.0", 3),
        ("toy@debianx3", "", 3),
    ],
)
def test_a_name_may_mean_a_cluster(file: Path, name: str, version: str, nodes: int) -> None:
    found = target(name, file)
    assert (found.version, found.nodes) == (version, nodes)
    assert target(found.name, file) == found


def test_a_cluster_of_another_size_is_refused(file: Path) -> None:
    with pytest.raises(TargetError, match=r"toy@1\.2x4: x4 is not possible; write x3 or x5 for a cluster"):
        target("toy@1.2x4", file)


def test_software_that_starts_alone_has_no_clusters() -> None:
    with pytest.raises(TargetError, match="garagemq@x3: x3 is not possible; it is started alone only"):
        target("garagemq@x3")


def test_a_series_is_not_the_beginning_of_another(file: Path) -> None:
    with pytest.raises(TargetError, match=r"toy@1\.1: write a release such as 1\.10\.0"):
        target("toy@1.1", file)


@pytest.mark.parametrize("version", ["latest", "1.2.x", "../1.2.0", "1.2.0 "])
def test_invalid_version_error_shows_valid_forms(file: Path, version: str) -> None:
    with pytest.raises(TargetError, match=r"write a release such as 1\.10\.0, newest, debian, or a series"):
        target(f"toy@{version}", file)


def test_a_misspelled_name_is_answered_with_the_nearest(file: Path) -> None:
    with pytest.raises(TargetError, match=r"unknown target 'tyo'; did you mean toy\?"):
        target("tyo@1.2.0", file)


@pytest.mark.parametrize(
    ("line", "error"),
    {
        'protocl = "nats"': "unknown key 'protocl'",
        "versions = 3": "Cannot overwrite",
        'container = ["nats"]': "'container' must be a str",
        'start = "{program} {port}"': "must have 'module' or 'start', and not both",
        'fresh = "yes"': "'fresh' must be a bool",
    }.items(),
)
def test_invalid_table_error_names_key(file: Path, line: str, error: str) -> None:
    file.write_text(FILE + line + "\n")
    with pytest.raises(TargetError, match=f"targets.toml: .*{error}"):
        software(file)


@pytest.mark.parametrize("lost", ["protocol", "newest", "versions", "program"])
def test_missing_key_error_names_key(file: Path, lost: str) -> None:
    file.write_text("\n".join(line for line in FILE.splitlines() if not line.startswith(lost)))
    with pytest.raises(TargetError, match=f"lacks '{lost}'"):
        software(file)


def test_the_newest_is_a_release_that_the_suite_was_run_against(file: Path) -> None:
    file.write_text(FILE.replace('newest = "1.10.0"', 'newest = "1.11.0"'))
    with pytest.raises(TargetError, match=r"newest = 1\.11\.0 is not in versions"):
        software(file)


def test_a_table_without_module_and_start_is_refused(file: Path) -> None:
    file.write_text(FILE.replace('module = "nats"\n', ""))
    with pytest.raises(TargetError, match=r"\[toy\] must have 'module' or 'start'"):
        software(file)


def test_every_start_command_of_the_project_is_right() -> None:
    commands = {name: command_of(known) for name, known in software().items() if known.start}
    assert all(command.words[0] == "{program}" for command in commands.values())
    assert commands["amqp-mock"].fresh
    assert not commands["amqp-mock"].keeps_store


def test_the_list_of_the_project_names_each_target_as_it_is_asked_for() -> None:
    listed = targets()
    assert [target(known.name) for known in listed] == listed
    assert {known.software.protocol for known in listed} <= {"nats", "amqp"}
    assert len(listed) > 5
