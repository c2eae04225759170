"""The settings of an AMQP variant, as RabbitMQ reads them, and as the reference broker does."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from plumbline.conformance.targets.certificates import Certificates, make_certificates
from plumbline.conformance.targets.own_server import TLS
from plumbline.conformance.targets.variants import amqp_variants
from plumbline.reference_broker.amqp.config import Config
from plumbline.servers.amqp.garagemq import GarageMQ
from plumbline.servers.amqp.rabbitmq_settings import (
    alarm_code,
    configuration,
    definitions_of,
    settings_of,
    write_files,
)
from plumbline.servers.process import ServerError


@pytest.mark.parametrize("name", amqp_variants())
def test_both_brokers_know_every_setting_of_a_variant(name: str) -> None:
    settings = dict(amqp_variants()[name].settings)
    if TLS in settings:
        settings[TLS] = {**settings[TLS], **Certificates(Path("certificates")).settings}
    assert Config.of(**settings) != Config()
    assert settings_of(settings) != settings_of({})


def test_times_are_milliseconds_in_rabbitmq_conf() -> None:
    text = configuration(settings_of({"consumer_timeout": 1.5, "max_message_size": 9}), "users.json")
    assert text == "consumer_timeout = 1500\nmax_message_size = 9\n"


def test_users_and_what_they_may_are_definitions() -> None:
    permission = {"configure": "^a", "write": "", "read": ".*"}
    settings = settings_of({"users": {"ann": "secret"}, "permissions": {"ann": {"/": permission}}})
    definitions = definitions_of(settings)
    assert definitions["permissions"] == [{"user": "ann", "vhost": "/", **permission}]
    assert definitions["vhosts"] == [{"name": "/"}]
    assert "secret" not in json.dumps(definitions)
    assert "load_definitions = users.json" in configuration(settings, "users.json")


def test_permissions_for_topics_are_definitions() -> None:
    keys = {"write": "^a", "read": ""}
    settings = settings_of({"topic_permissions": {"ann": {"/": {"amq.topic": keys}}}})
    expected = {"user": "ann", "vhost": "/", "exchange": "amq.topic", **keys}
    assert definitions_of(settings)["topic_permissions"] == [expected]


def test_a_listener_with_tls_has_files_in_the_folder_of_the_node(tmp_path: Path) -> None:
    certificates, node = make_certificates(tmp_path / "made"), tmp_path / "node"
    node.mkdir()
    asked = {**amqp_variants()["amqp-tls"].settings[TLS], **certificates.settings}
    settings = settings_of({"tls": asked, "auth_mechanisms": ["PLAIN", "EXTERNAL"]})
    assert settings.plugins == ("rabbitmq_auth_mechanism_ssl",)
    write_files(settings, node, 5671)
    lines = dict(line.split(" = ") for line in (node / "rabbitmq.conf").read_text().splitlines())
    assert lines["listeners.ssl.1"] == "127.0.0.1:5671"
    assert lines["ssl_options.verify"] == "verify_peer"
    assert lines["ssl_options.fail_if_no_peer_cert"] == "true"
    assert lines["ssl_cert_login_from"] == "common_name"
    assert [lines[f"auth_mechanisms.{number}"] for number in (1, 2)] == ["PLAIN", "EXTERNAL"]
    key = Path(lines["ssl_options.keyfile"])
    assert key.parent == node
    assert key.read_bytes() == certificates.file("server").read_bytes()
    assert key.stat().st_mode & 0o777 == 0o600


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        settings_of({"colour": "red"})


def test_files_are_in_the_folder_of_the_node(tmp_path: Path) -> None:
    write_files(settings_of({"consumer_timeout": 1}), tmp_path)
    assert (tmp_path / "rabbitmq.conf").read_text() == "consumer_timeout = 1000\n"
    assert "channel_tick_interval" in (tmp_path / "advanced.config").read_text()


def test_the_code_of_alarms_is_one_word_of_a_shell(tmp_path: Path) -> None:
    assert len(alarm_code(tmp_path).split()) == 1


def test_other_software_is_started_as_it_usually_is() -> None:
    server = GarageMQ("/bin/sh")
    with pytest.raises(ServerError, match="usual configuration"):
        server.configure({"max_message_size": 1})
