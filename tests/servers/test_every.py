"""Which targets a matrix is made of."""

from __future__ import annotations

import pytest

from plumbline.servers import every
from plumbline.servers.getting import Way
from plumbline.servers.targets import Target, TargetError, software


def test_names_become_arguments_of_verify_once_each() -> None:
    found = every.runs(["reference-nats", "nats-server@2.10", "nats-server@2.10.29", "reference-amqp"])
    assert found == [
        ("reference-nats", ()),
        ("nats-server@2.10.29", ("--target", "nats-server@2.10.29")),
        ("reference-amqp", ("amqp",)),
    ]


def test_what_is_known_of_a_server_is_waived() -> None:
    ((name, arguments),) = every.runs(["garagemq"])
    assert arguments[:3] == ("--target", name, "--waivers")
    assert arguments[3].endswith("garagemq.toml")


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(TargetError, match=r"no target is named 'nats'.*reference-nats, reference-amqp, all"):
        every.runs(["nats"])


def test_all_is_what_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def ways(known: Target) -> list[Way]:
        return [Way("debian", "get it", "" if known.version != "2.10.0" else "no network")]

    monkeypatch.setattr(every, "ways", ways)
    monkeypatch.setattr(every, "on_this_machine", lambda known: None)
    names = [name for name, _ in every.runs(["all"])]
    assert names[:2] == ["reference-nats", "reference-amqp"]
    listed = [f"nats-server@{version}" for version in software()["nats-server"].versions]
    assert [name for name in names if name.startswith("nats-server")] == [
        name for name in listed if name != "nats-server@2.10.0"
    ]
