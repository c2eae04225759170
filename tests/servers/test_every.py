"""Which targets a matrix is made of."""

from __future__ import annotations

import pytest

from plumbline.servers import every
from plumbline.servers.getting import InstallMethod
from plumbline.servers.targets import NamedServer, TargetError, software


def test_target_names_become_verify_arguments_without_duplicates() -> None:
    found = every.runs(["reference-nats", "nats-server@2.10", "nats-server@2.10.29", "reference-amqp"])
    assert found == [
        ("reference-nats", ()),
        ("nats-server@2.10.29", ("--target", "nats-server@2.10.29")),
        ("reference-amqp", ("amqp",)),
    ]


def test_known_failures_of_server_are_waived() -> None:
    ((name, arguments),) = every.runs(["garagemq"])
    assert arguments[:3] == ("--target", name, "--waivers")
    assert arguments[3].endswith("garagemq.toml")


def test_error_for_unknown_name_lists_known_names() -> None:
    with pytest.raises(TargetError, match=r"unknown target 'nats'.*reference-nats, reference-amqp, all"):
        every.runs(["nats"])


def test_all_is_what_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def ways(known: NamedServer) -> list[InstallMethod]:
        return [InstallMethod("debian", "get it", "" if known.version != "2.10.0" else "no network")]

    monkeypatch.setattr(every, "install_methods", ways)
    monkeypatch.setattr(every, "find_installed", lambda known: None)
    names = [name for name, _ in every.runs(["all"])]
    assert names[:2] == ["reference-nats", "reference-amqp"]
    listed = [f"nats-server@{version}" for version in software()["nats-server"].versions]
    assert [name for name in names if name.startswith("nats-server")] == [
        name for name in listed if name != "nats-server@2.10.0"
    ]
