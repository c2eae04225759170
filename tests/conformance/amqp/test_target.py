"""AMQP URLs, and the error when the target is not what the URL names."""

from __future__ import annotations

import socket

import pytest

from plumbline.conformance.targets.target import AccessRefusedError, UrlError, open_target
from plumbline.conformance.targets.urls import AmqpUrl, NatsUrl, parse_url
from plumbline.errors import TargetUnreachable
from plumbline.reference_broker.amqp.server import AmqpBroker
from tests.conformance.scripted import Script, closing, http, scripted, silent


def test_url_gives_address_and_credentials() -> None:
    assert parse_url("amqp://al%40ice:p%3Ass@[::1]:5673/a%2fb") == AmqpUrl(
        "::1", 5673, "al@ice", "p:ss", "a/b"
    )
    assert parse_url("amqp://host") == AmqpUrl("host", 5672, "guest", "guest", "/")
    assert parse_url("amqp://host/") == AmqpUrl("host")
    assert parse_url("127.0.0.1:4222") == NatsUrl("127.0.0.1")


def test_a_url_is_shown_without_its_password() -> None:
    assert str(parse_url("amqp://alice:s3cret@host/%2f")) == "amqp://alice@host:5672/%2F"


@pytest.mark.parametrize(
    "text", ["amqp://", "amqp://host/a/b", "amqp://host?x=1", "amqp://host:99999", "amqp://u:s3cret@"]
)
def test_invalid_url_error_shows_example(text: str) -> None:
    with pytest.raises(UrlError) as caught:
        parse_url(text)
    assert "amqp://guest:guest@127.0.0.1:5672/%2f" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_properties_of_broker_make_the_target() -> None:
    with AmqpBroker.in_thread() as url:
        target = open_target(parse_url(url)).target
    assert (target.protocol, target.version) == ("amqp", target.level)
    assert {"publisher_confirms", "basic.nack"} <= set(target.features)
    assert 0 < target.rtt_s < target.slack_s


def test_refused_login_is_an_error() -> None:
    with AmqpBroker.in_thread() as url, pytest.raises(AccessRefusedError, match="ACCESS_REFUSED") as caught:
        open_target(parse_url(url.replace("guest:guest", "guest:s3cret")))
    assert "s3cret" not in str(caught.value)


def _nats(link: socket.socket) -> None:
    link.sendall(b'INFO {"server_id":"X"}\r\n')
    link.recv(4096)


def _amqp_1_0(link: socket.socket) -> None:
    link.recv(8)
    link.sendall(b"AMQP\x00\x01\x00\x00")
    link.recv(4096)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (silent, "accepts connections and does not answer the protocol header"),
        (closing, "closes the connection|closed the connection"),
        (http, "speaks HTTP, not AMQP"),
        (_nats, "does not speak AMQP"),
        (_amqp_1_0, "does not speak AMQP 0-9-1"),
    ],
)
def test_what_is_no_broker_is_refused_in_one_sentence(script: Script, sentence: str) -> None:
    """Some of them stay silent for ever: only the probe's own limit ends this test."""
    with scripted(script) as address, pytest.raises(TargetUnreachable, match=sentence) as caught:
        open_target(parse_url(f"amqp://{address}"))
    assert "\n" not in str(caught.value)


def test_closed_port_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(TargetUnreachable, match="connection refused"):
            open_target(parse_url(f"amqp://127.0.0.1:{unused.getsockname()[1]}"))


@pytest.mark.parametrize("scheme", ["nats", "amqp"])
@pytest.mark.parametrize(
    "rest",
    [
        "//alice:s3c/r3tPW@h:1",
        "//alice:r3tPW#@h:1",
        "//alice:r3tPW?@h:1",
        "/alice:r3tPW@h:1",
        "//alice:r3tPW",
        "//alice:r3t@PW@h:x",
        "//alice:s3c//r3tPW@h",
        "//r3tPW#@",
    ],
)
def test_an_error_shows_no_part_of_a_password(scheme: str, rest: str) -> None:
    with pytest.raises(UrlError) as caught:
        parse_url(f"{scheme}:{rest}")
    assert not any(part in str(caught.value) for part in ("s3c", "r3t", "PW"))


def test_url_error_names_characters_to_encode() -> None:
    with pytest.raises(UrlError, match=r"percent-encode / # \? @ in a user name or a password"):
        parse_url("nats://alice:s3c/r3t@h")


def test_a_password_that_comes_apart_belongs_to_the_user_of_the_url() -> None:
    assert parse_url("nats://alice@h").with_password("a/b") == NatsUrl("h", user="alice", password="a/b")
    assert parse_url("nats://h").with_password("a/b") == NatsUrl("h", token="a/b")
    assert parse_url("amqp://alice@h").with_password("a/b") == AmqpUrl("h", user="alice", password="a/b")
    for url in ("nats://alice:pw@h", "amqp://alice:pw@h"):
        with pytest.raises(UrlError, match="already has a password"):
            parse_url(url).with_password("a/b")


def test_the_password_of_rabbitmq_is_no_secret() -> None:
    shown = "\0guest\0guest amqp://guest:guest@h"
    assert parse_url("amqp://h").mask.text(shown) == shown
