"""The error when the target is not what the URL names."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from plumbline.conformance.nats.probe import ROUND_TRIPS_S
from plumbline.conformance.targets.target import (
    MAX_SLACK_S,
    AccessRefusedError,
    NatsUrl,
    UrlError,
    open_target,
    parse_level,
)
from plumbline.errors import TargetUnreachable
from tests.conformance.scripted import INFO, Script, closing, dripping, http, lines, nats, scripted, silent


def chattering(link: socket.socket) -> None:
    """INFO, and then messages without end."""
    link.sendall(INFO)
    while True:
        link.sendall(b"MSG a 1 1\r\na\r\n" * 1000)


def leaving(link: socket.socket) -> None:
    """INFO, and a close in the middle of the handshake."""
    link.sendall(INFO)
    link.recv(4096)
    link.close()


def resetting(link: socket.socket) -> None:
    """The same with what came unread: the other side sees a reset."""
    link.sendall(INFO)
    while b"PING" not in link.recv(4096, socket.MSG_PEEK):
        pass
    link.close()


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (dripping(INFO * 10), "sends no data"),
        (chattering, "does not answer PING"),
        (leaving, "closes the connection before it answers PING"),
        (resetting, "closes the connection before it answers PING"),
        (silent, "accepts connections but sends no data; a NATS server sends INFO first."),
        (http, "speaks HTTP, not NATS"),
        (closing, "closes the connection"),
        (lambda link: link.sendall(b"220 mail.example ESMTP\r\n"), "does not speak NATS"),
        (lambda link: link.sendall(b"\x00\xff" * 100), "does not speak NATS"),
        (lambda link: link.sendall(b"INFO [1]\r\n"), "does not speak NATS"),
        (lambda link: (link.sendall(INFO), link.recv(10**6), link.recv(10**6))[0], "does not answer PING"),
    ],
)
def test_what_is_no_nats_server_is_refused_in_one_sentence(script: Script, sentence: str) -> None:
    """Some of them stay silent for ever: only the probe's own limit ends this test."""
    with scripted(script) as address, pytest.raises(TargetUnreachable, match=sentence) as raised:
        open_target(NatsUrl.parse(address))
    assert "\n" not in str(raised.value)


def test_closed_port_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(TargetUnreachable, match="connection refused"):
            open_target(NatsUrl.parse(f"nats://127.0.0.1:{unused.getsockname()[1]}"))


def test_error_for_refused_credentials_shows_what_to_write() -> None:
    def refuse(link: socket.socket) -> None:
        link.sendall(INFO)
        link.recv(4096)
        link.sendall(b"-ERR 'Authorization Violation'\r\n")
        link.close()

    with scripted(refuse) as address, pytest.raises(AccessRefusedError, match="nats://user:password@"):
        open_target(NatsUrl.parse(address))


def test_a_version_without_numbers_asks_for_a_level() -> None:
    script = nats(lambda link, line: None)

    def odd(link: socket.socket) -> None:
        link.sendall(INFO.replace(b"2.15.0", b"nightly"))
        for _ in range(9):
            link.recv(4096)
            link.sendall(b"PONG\r\n")

    with scripted(odd) as address, pytest.raises(AccessRefusedError, match="--level"):
        open_target(NatsUrl.parse(address))
    with scripted(script) as address:
        assert open_target(NatsUrl.parse(address), level="2.9").level == (2, 9)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("http://host", "scheme"),
        ("nats://", "not the URL of a server"),
        ("nats://host:notaport", "not a URL"),
        ("nats://host:99999", "not a URL"),
        ("nats://host/path", "not the URL of a server"),
        ("nats://[::1", "not a URL"),
        ("", "not the URL of a server"),
    ],
)
def test_error_of_wrong_url_shows_what_to_write(text: str, error: str) -> None:
    with pytest.raises(UrlError, match=error) as raised:
        NatsUrl.parse(text)
    assert "nats://127.0.0.1:4222" in str(raised.value)


def test_a_wrong_url_does_not_show_its_password() -> None:
    with pytest.raises(UrlError) as raised:
        NatsUrl.parse("http://user:s3cret@host")
    assert "s3cret" not in str(raised.value)


def test_credentials_are_read_from_the_url_and_not_shown() -> None:
    url = NatsUrl.parse("nats://al%40ice:p%3Ass@[::1]:4333")
    assert url.credentials() == {"user": "al@ice", "pass": "p:ss"}
    assert str(url) == "nats://al@ice@[::1]:4333"
    assert NatsUrl.parse("nats://t0ken@host").credentials() == {"auth_token": "t0ken"}


def test_levels_compare_as_numbers() -> None:
    assert parse_level("2.10.14") > parse_level("2.9")
    with pytest.raises(ValueError, match=r"for example 2\.9"):
        parse_level("newest")


def _info(**fields: object) -> bytes:
    return b"INFO " + json.dumps({"version": "2.15.0", **fields}).encode() + b"\r\n"


def _serving(infos: Iterator[bytes]) -> Script:
    """Each connection is greeted with the next of ``infos``."""

    def script(link: socket.socket) -> None:
        link.sendall(next(infos))
        for line in lines(link):
            if line == b"PING\r\n":
                link.sendall(b"PONG\r\n")

    return script


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"server_id": "A"}, {"server_id": "A"}, ""),
        ({"server_id": "A"}, {"server_id": "B"}, "restarted"),
        ({"server_id": "A", "cluster": "C"}, {"server_id": "B", "cluster": "C"}, ""),
    ],
)
def test_restarted_target_is_absent_but_cluster_is_not(
    first: dict[str, str], second: dict[str, str], reason: str
) -> None:
    with scripted(_serving(iter([_info(**first), _info(**second)]))) as address:
        access = open_target(NatsUrl.parse(address))
        absence = access.absence_reason()
    assert reason in absence
    assert bool(absence) == bool(reason)
    assert "Nothing listens" in access.absence_reason()


def test_of_a_slow_target_fewer_round_trips_are_measured() -> None:
    pings = 0

    def slow(link: socket.socket) -> None:
        link.sendall(INFO)
        for line in lines(link):
            if line == b"PING\r\n":
                nonlocal pings
                pings += 1
                time.sleep(0.4)
                link.sendall(b"PONG\r\n")

    with scripted(slow) as address:
        target = open_target(NatsUrl.parse(address)).target
    assert (
        pings <= 1 + ROUND_TRIPS_S // 0.4 + 1
    )  # of the probe, then within the limit, then the one that passes it
    assert target.slack_s == MAX_SLACK_S
    assert target.rtt_s > 0.4


def test_recalibration_only_increases_slack() -> None:
    pause = 0.0

    def script(link: socket.socket) -> None:
        link.sendall(INFO)
        for line in lines(link):
            if line == b"PING\r\n":
                time.sleep(pause)
                link.sendall(b"PONG\r\n")

    with scripted(script) as address:
        access = open_target(NatsUrl.parse(address))
        pause = 0.02
        busy = access.recalibrated()
        pause = 0.0
        again = busy.recalibrated()
    assert busy.slack_s >= max(0.02 * 20, access.slack_s)  # which a busy machine makes long, too
    assert again.slack_s >= busy.slack_s  # though the pause is gone
    assert busy.recalibrated() is busy  # there is no listener any more
    assert busy.next_token() != access.next_token()  # names stay unique
