"""INFO, CONNECT, authentication, permissions, keep-alive and malformed input, on the pure core."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.reference_broker.virtual import CLOSED, QUIET, Virtual

ONE_USER = {"user": "alice", "password": "secret", "timeout": 1}
VIOLATION = ["-ERR 'Authorization Violation'", CLOSED]
NKEY = "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL"
LIMITED: dict[str, Any] = {
    "users": [
        {
            "user": "bob",
            "password": "pw",
            "permissions": {
                "publish": {"allow": ["ok.>", "in.>"], "deny": "ok.bad"},
                "subscribe": {"allow": ["ok.>", "in.>", "work.> team"], "deny": ["ok.bad"]},
            },
        }
    ]
}


def connect(**fields: Any) -> str:
    return f"CONNECT {json.dumps({**QUIET, **fields})}\nPING"


def test_info_is_sent_first_with_server_identity() -> None:
    (info,) = Virtual(level="2.9").stranger().infos
    assert info == {
        "server_id": info["server_id"],
        "server_name": f"plumbline-{info['server_id'][:10]}",
        "version": "2.9.10",
        "proto": 1,
        "go": info["go"],
        "host": "127.0.0.1",
        "port": 0,
        "headers": True,
        "max_payload": 1048576,
        "client_id": 1,
        "client_ip": "127.0.0.1",
    }
    assert len(info["server_id"]) == 56


def test_info_has_the_configured_values() -> None:
    (info,) = (
        Virtual(authorization=ONE_USER, no_header_support=True, max_payload=10, server_name="mine")
        .stranger()
        .infos
    )
    assert (info["auth_required"], info["headers"], info["max_payload"], info["server_name"]) == (
        True,
        False,
        10,
        "mine",
    )
    assert (info["version"], info["api_lvl"]) == ("2.15.2", 5)
    assert "jetstream" not in info


@pytest.mark.parametrize(("level", "protocol", "infos"), [("2.15", 1, 1), ("2.15", 0, 0), ("2.9", 1, 0)])
def test_a_second_info_follows_the_first_pong_at_the_newest_level(
    level: str, protocol: int, infos: int
) -> None:
    client = Virtual(level=level).stranger()
    client.take_bytes()
    client.send("PING\n" + connect(protocol=protocol) + "\nPING")
    assert [info["connect_info"] for info in client.infos] == [True] * infos
    assert client.take() == ["PONG", "PONG", "PONG"]


def test_verbose_acknowledges_each_operation() -> None:
    client = Virtual().stranger()
    client.take_bytes()
    lines = connect(verbose=True) + "\nPONG\nSUB foo 1\nPUB foo 0\n\nUNSUB 1\nUNSUB 77\nPUB foo 0\n"
    assert client.ask(lines) == ["+OK", "PONG", "+OK", "+OK", "MSG foo 1 0", "+OK", "+OK", "+OK"]


def test_before_connect_a_client_is_verbose_and_pedantic() -> None:
    client = Virtual().stranger()
    client.take_bytes()
    assert client.ask("SUB a 1\nPUB a 1\nx\nPUB a..b 1\nx\nPING") == [
        "+OK",
        "+OK",
        "MSG a 1 1 | x",
        "-ERR 'Invalid Publish Subject'",
        "+OK",
        "PONG",
    ]


def test_a_later_connect_changes_what_it_names() -> None:
    client = Virtual(level="2.9").client(echo=False).send("SUB a 1")
    assert client.ask('CONNECT {"verbose":true}\nPUB a 1\nx') == ["+OK", "+OK"]
    assert client.ask('CONNECT {"echo":true}\nPUB a 1\nx') == ["+OK", "+OK", "MSG a 1 1 | x"]


@pytest.mark.parametrize(("level", "delivered"), [("2.9", ["MSG a 1 1 | x"]), ("2.15", [])])
def test_a_later_connect_drops_subscriptions_at_the_newest_level(level: str, delivered: list[str]) -> None:
    client = Virtual(level=level).client().send("SUB a 1")
    assert client.ask("CONNECT {}\nPUB a 1\nx") == delivered


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("CONNECT {bad", []),
        ('CONNECT {"verbose":"yes"}', []),
        ("CONNECT []", []),
        ("CONNECT", []),
        ('CONNECT {"protocol":2}', ["-ERR 'invalid client protocol'"]),
        ('CONNECT {"account":"x"}', ["-ERR 'Authorization Violation'"]),
        ('CONNECT {"no_responders":true}', ["-ERR 'no responders requires headers support'"]),
        ("FOO bar", ["-ERR 'Unknown Protocol Operation'"]),
        ("", ["-ERR 'Unknown Protocol Operation'"]),
        ("SUB", ["-ERR 'Unknown Protocol Operation'"]),
        ("GET / HTTP/1.1", ["-ERR 'Unknown Protocol Operation'"]),
        ("SUB foo", []),
        ("SUB a b c d", []),
        ("PUB foo xx\nhello", []),
        ("PUB foo -1\nhello", []),
        ("PUB foo\nhello", []),
        ("PUB foo 2\nhello", ["-ERR 'Unknown Protocol Operation'"]),
        ("HPUB foo 30 10\nNATS/1.0\n\n", []),
        ("PUB foo 1048577", ["-ERR 'Maximum Payload Violation'"]),
        ("HPUB foo 12 1048577", ["-ERR 'Maximum Payload Violation'"]),
        ("PUB " + "a" * 4096 + " 1\nx", ["-ERR 'maximum control line exceeded'"]),
    ],
)
def test_errors_that_close_connection(line: str, answer: list[str]) -> None:
    client = Virtual().stranger()
    client.take_bytes()
    assert client.ask(line + "\nPING") == [*answer, CLOSED]


def test_operations_before_error_are_processed() -> None:
    virtual = Virtual()
    client, other = virtual.client(), virtual.client().send("SUB a 1")
    assert client.ask("PUB a 1\nx\nPING\nFOO\nPUB a 1\ny") == [
        "PONG",
        "-ERR 'Unknown Protocol Operation'",
        CLOSED,
    ]
    assert other.take() == ["MSG a 1 1 | x"]


def test_a_payload_of_exactly_the_limit_is_legal() -> None:
    client = Virtual(max_payload=4).client().send("SUB a 1")
    assert client.ask("PUB a 4\nabcd") == ["MSG a 1 4 | abcd"]


def test_the_right_password_lets_in() -> None:
    client = Virtual(authorization=ONE_USER).stranger()
    client.take_bytes()
    assert client.ask(connect(user="alice", **{"pass": "secret"})) == ["PONG"]


@pytest.mark.parametrize(
    "credentials", [{}, {"user": "alice"}, {"user": "alice", "pass": "no"}, {"user": "bob", "pass": "secret"}]
)
def test_wrong_credentials_are_refused(credentials: dict[str, str]) -> None:
    client = Virtual(authorization=ONE_USER).stranger()
    client.take_bytes()
    assert client.ask(connect(**credentials)) == VIOLATION


def test_tokens() -> None:
    virtual = Virtual(authorization={"token": "s3cr3t"})
    good, bad = virtual.stranger(), virtual.stranger()
    good.take_bytes(), bad.take_bytes()
    assert good.ask(connect(auth_token="s3cr3t")) == ["PONG"]
    assert bad.ask(connect(auth_token="bad")) == VIOLATION


@pytest.mark.parametrize("data", [b"P", b"PUB a 1\r\nx\r\n", b"PING\r\n", b"garbage", b"\x16\x03\x01"])
def test_unauthenticated_client_may_only_connect(data: bytes) -> None:
    client = Virtual(authorization=ONE_USER).stranger()
    client.take_bytes()
    assert client.ask(data) == VIOLATION


def test_an_nkey_needs_a_signature_of_the_nonce() -> None:
    virtual = Virtual(authorization={"users": [{"nkey": NKEY}]})
    first, second = virtual.stranger(), virtual.stranger()
    nonces = [client.infos[0]["nonce"] for client in (first, second)]
    assert len(set(nonces)) == 2
    first.take_bytes()
    assert first.ask(connect(nkey=NKEY, sig="eHh4eA")) == VIOLATION


def test_silence_ends_at_the_authentication_timeout() -> None:
    virtual = Virtual(authorization=ONE_USER)
    silent, quick = virtual.stranger(), virtual.stranger()
    silent.take_bytes(), quick.take_bytes()
    quick.send(connect(user="alice", **{"pass": "secret"}))
    virtual.pass_time(0.999)
    assert silent.take() == []
    virtual.pass_time(0.001)
    assert silent.take() == ["-ERR 'Authentication Timeout'", CLOSED]
    assert quick.take() == ["PONG"]


def test_connection_over_limit_gets_err_and_close() -> None:
    virtual = Virtual(max_connections=1)
    first, second = virtual.client(), virtual.stranger()
    assert second.take() == ["-ERR 'maximum connections exceeded'", CLOSED]
    first.leave()
    assert virtual.stranger().take() == []


def test_publish_permissions() -> None:
    client = Virtual(authorization=LIMITED).client(user="bob", **{"pass": "pw"}).send("SUB ok.* 1")
    assert client.ask("PUB no.way 1\nx\nPUB ok.bad 1\nx\nPUB ok.good 1\nx") == [
        "-ERR 'Permissions Violation for Publish to \"no.way\"'",
        "-ERR 'Permissions Violation for Publish to \"ok.bad\"'",
        "MSG ok.good 1 1 | x",
    ]


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("SUB no.way 1", 'to "no.way"'),
        ("SUB no.way q9 1", 'to "no.way" using queue "q9"'),
        ("SUB ok.bad 1", 'to "ok.bad"'),
        ("SUB > 1", 'to ">"'),
        ("SUB work.x 1", 'to "work.x"'),
        ("SUB work.x other 1", 'to "work.x" using queue "other"'),
        ("SUB ok.x _sys_ 1", 'to "ok.x" using queue "_sys_"'),
        ("SUB work.x team 1", ""),
        ("SUB ok.x anybody 1", ""),
    ],
)
def test_subscribe_permissions(line: str, refused: str) -> None:
    client = Virtual(authorization=LIMITED).client(user="bob", **{"pass": "pw"})
    complaint = [f"-ERR 'Permissions Violation for Subscription {refused}'"] if refused else []
    assert client.ask(f"{line}\nPING") == [*complaint, "PONG"]


def test_a_wildcard_gets_what_is_not_denied() -> None:
    virtual = Virtual(authorization={"users": [*LIMITED["users"], {"user": "eve", "password": "all"}]})
    client = virtual.client(user="bob", **{"pass": "pw"}).send("SUB ok.* 1\nSUB ok.> queue 2")
    virtual.client(user="eve", **{"pass": "all"}).send("PUB ok.bad 1\nx\nPUB ok.good 1\ny")
    assert client.take() == ["MSG ok.good 1 1 | y", "MSG ok.good 2 1 | y"]


def test_the_first_ping_comes_soon_and_the_next_at_the_interval() -> None:
    virtual = Virtual()
    client = virtual.client()
    virtual.pass_time(1.9)
    assert client.take() == []
    virtual.pass_time(0.5)
    assert client.take() == ["PING"]
    client.send("PONG")
    virtual.pass_time(119)
    assert client.take() == []
    virtual.pass_time(1)
    assert client.take() == ["PING"]


def test_unanswered_pings_end_the_connection() -> None:
    virtual = Virtual(ping_interval="1s", ping_max=2)
    client = virtual.client()
    virtual.pass_time(2.9)
    assert client.take() == ["PING", "PING"]
    virtual.pass_time(0.5)
    assert client.take() == ["-ERR 'Stale Connection'", CLOSED]


def test_a_pong_or_traffic_keeps_a_connection() -> None:
    virtual = Virtual(ping_interval="1s", ping_max=2)
    answering, busy = virtual.client(), virtual.client()
    for _ in range(20):
        virtual.pass_time(0.5)
        answering.send("PONG")
        busy.send("PUB a 0\n")
    assert set(answering.take()) == {"PING"}
    assert busy.take() == ["PING"]  # the first one measures the round trip, traffic or not


def test_no_timers_without_connections() -> None:
    virtual = Virtual(authorization=ONE_USER)
    client = virtual.stranger()
    assert virtual.broker.next_wake() is not None
    client.leave()
    assert virtual.broker.next_wake() is None
