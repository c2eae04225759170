"""Configuration: nats-server's keys, aliases and short forms."""

from __future__ import annotations

import re

import pytest

from plumbline.conformance.targets.variants import main_server, variants
from plumbline.reference_broker.nats.config import (
    Config,
    ConfigError,
    JetStreamOptions,
    Permission,
    Permissions,
)
from plumbline.reference_broker.nats.config_file import convert
from plumbline.reference_broker.nats.levels import NEWEST, CoreRules, Level, parse_level


def test_every_variant_of_the_suite_can_be_served() -> None:
    for variant in [main_server(), *variants().values()]:
        assert isinstance(Config.of(**variant.config), Config), variant.name


def test_aliases_mean_the_same() -> None:
    assert convert({"net": "h", "Port": 1, "max_subs": 2, "max_conn": 3}) == Config(
        host="h", port=1, max_subscriptions=2, max_connections=3
    )
    assert convert({"listen": "h:1"}) == Config(host="h", port=1)
    assert convert({"port": -1}).port == 0


def test_permissions_have_short_forms() -> None:
    long = {"publish": {"allow": ["a"]}, "subscribe": {"allow": ["b", "c"], "deny": ["d"]}}
    short = {"pub": "a", "sub": {"allow": ["b", "c"], "deny": "d"}}
    users = [
        {"user": "u", "password": "p", "permissions": long},
        {"username": "u", "pass": "p", "permission": short},
    ]
    first, second = convert({"authorization": {"users": users}}).authorization.users
    assert first == second
    assert first.permissions == Permissions(Permission(("a",)), Permission(("b", "c"), ("d",)))


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("1m30s", 90.0), (2, 2.0), ("2h", 7200.0)])
def test_durations(text: str | int, seconds: float) -> None:
    assert convert({"ping_interval": text}).ping_interval == seconds


@pytest.mark.parametrize(
    ("value", "options"),
    [
        (True, JetStreamOptions()),
        ("enabled", JetStreamOptions()),
        ({"store_dir": "d", "max_mem": 5}, JetStreamOptions("d", 5)),
        (False, None),
        (None, None),
        ({"enabled": False}, None),
    ],
)
def test_jetstream_is_a_switch_or_a_block(value: object, options: JetStreamOptions | None) -> None:
    assert convert({"jetstream": value}).jetstream == options


def test_a_store_directory_beside_the_block_counts() -> None:
    assert convert({"jetstream": True, "store_dir": "d"}).jetstream == JetStreamOptions("d")
    assert convert({"jetstream": {"max_mem": 5}}, {"jetstream": True}).jetstream == JetStreamOptions(None, 5)


@pytest.mark.parametrize(
    ("block", "fsync", "sync_interval"),
    [
        ({}, None, 120.0),
        ({"sync_interval": "always"}, None, "always"),
        ({"sync_interval": "1m30s"}, None, 90.0),
        ({"sync_interval": "10s"}, "interval", 10.0),
        ({"sync_interval": "always"}, "interval", 120.0),
        ({"sync_interval": "always"}, "never", "never"),
        ({}, "always", "always"),
    ],
)
def test_fsync_policy(block: object, fsync: str | None, sync_interval: object) -> None:
    options = convert({"jetstream": block}, {"fsync": fsync} if fsync else {}).jetstream
    assert options is not None
    assert options.sync_interval == sync_interval


def test_a_sync_interval_is_a_duration_or_a_word() -> None:
    with pytest.raises(ConfigError, match="'sometimes' is not a duration"):
        convert({"jetstream": {"sync_interval": "sometimes"}})
    with pytest.raises(ConfigError):
        convert({"ping_interval": "always"})


def test_levels() -> None:
    assert [parse_level(text) for text in ("2.9", "v2.9.10", "newest", "2.12")] == [
        (2, 9),
        (2, 9),
        NEWEST,
        (2, 12),
    ]
    for text in ("2.8", "3.0", "x", "2"):
        with pytest.raises(ValueError, match=r"write a level from 2\.9 to 2\.15"):
            parse_level(text)


@pytest.mark.parametrize("fields", [{"nonsense": 1}, {"authorization": {"nonsense": 1}}, {"level": "1.0"}])
def test_unknown_key_is_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        convert(fields)


def test_accounts_are_read_as_nats_server_writes_them() -> None:
    config = convert(variants()["accounts"].config)
    exporter, importer, _, mapper = config.accounts
    assert [one.response_type for one in exporter.exports] == [*["singleton"] * 4, "stream"]
    assert importer.imports[1].to == "from.*.news.>"
    assert mapper.mappings[0].destinations[0].subject == "{{wildcard(1)}}.mapped"


def test_an_operator_brings_its_accounts() -> None:
    config = convert(variants()["jwt"].config)
    assert config.operator_mode
    assert len(config.accounts) == 3


EXPORTER = {"exporter": {"exports": [{"service": "ask", "response_type": "stream"}]}}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"accounts": {"a": {"nonsense": 1}}}, 'unknown field "nonsense"'),
        (
            {"accounts": {"a": {"exports": [{"service": "q", "response_type": "two"}]}}},
            "Unknown response type",
        ),
        (
            {
                "accounts": {
                    **EXPORTER,
                    "a": {"imports": [{"service": {"account": "exporter", "subject": "q"}}]},
                }
            },
            "does not export to it",
        ),
        ({"mappings": {"a.*": "b.{{partition(0,1)}}"}}, "function argument is invalid"),
        ({"mappings": {"a.*": "b.{{nonsense(1)}}"}}, "unknown function"),
        ({"operator": "x"}, "an operator needs the resolver MEMORY"),
        ({"operator": "x", "resolver": "MEMORY"}, "operator: expected 3 chunks"),
        ({"operator": 5, "resolver": "MEMORY"}, "operator: "),
        (
            {"operator": variants()["jwt"].config["operator"], "resolver": "MEMORY"},
            "is not in resolver_preload",
        ),
    ],
)
def test_a_wrong_account_is_named(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        convert(fields)


@pytest.mark.parametrize(
    ("level", "reserved"),
    [
        ((2, 10), (b"_GR_.",)),
        ((2, 14), (b"_GR_.", b"$NRG.")),
        ((2, 15), (b"_GR_.", b"$NRG.", b"$GR.")),
        ((2, 16), (b"_GR_.", b"$NRG.", b"$GR.")),
    ],
)
def test_what_a_later_level_reserves_is_added(level: Level, reserved: tuple[bytes, ...]) -> None:
    assert CoreRules.of(level).reserved_subjects == reserved
