"""Each variant behaves as described on every real server; errors of a wrong file name the place."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.conformance.targets.variants import Variant, VariantsError, main_server, variants
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from plumbline.wire.nats import Decoder, Err, Info, Msg, Operation, Ping, Pub, Sender, Sub
from tests.patience import HANGS_AFTER_S

SIGNED = ("nkey", "jwt")  # a client signs a nonce there: a URL has no credentials for that


@contextmanager
def started(binary: ServerBinary, variant: Variant) -> Iterator[str]:
    """``binary`` with this configuration; gives its URL with the default credentials."""
    with NatsServer(binary.path, variant.config) as server:
        yield variant.url(NatsUrl.parse(server.url).address)


@contextmanager
def session_with(binary: ServerBinary, name: str) -> Iterator[NatsSession]:
    with started(binary, variants()[name]) as url, NatsSession(open_target(NatsUrl.parse(url))) as session:
        yield session


def info_of(connection: NatsConnection) -> dict[str, object]:
    assert connection.info is not None
    return connection.info.fields


def refusal(session: NatsSession, **credentials: str) -> str:
    """What the server answers to a CONNECT with these fields, before it closes."""
    client = session.connect(handshake=False)
    fields = {"user": None, "pass": None, "auth_token": None, **credentials}
    with pytest.raises(Failed) as refused:
        session.handshake(client, **fields)
    return refused.value.actual


def test_the_main_server_has_jetstream(server_binary: ServerBinary) -> None:
    with started(server_binary, main_server()) as url:
        assert "jetstream" in open_target(NatsUrl.parse(url)).target.features


@pytest.mark.parametrize("name", [name for name in variants() if name not in SIGNED])
def test_the_default_credentials_open_every_variant(server_binary: ServerBinary, name: str) -> None:
    with started(server_binary, variants()[name]) as url:
        features = open_target(NatsUrl.parse(url)).target.features
        assert ("jetstream" in features) == bool(variants()[name].config.get("jetstream"))
        assert ("auth_required" in features) == ("authorization" in variants()[name].config)


@pytest.mark.parametrize(("name", "role"), [("auth", "wrong-password"), ("token", "wrong-token")])
def test_wrong_credentials_are_refused(server_binary: ServerBinary, name: str, role: str) -> None:
    with session_with(server_binary, name) as session:
        wrong = variants()[name].credentials[role]
        assert refusal(session, **wrong) == "-ERR 'Authorization Violation'"


def test_an_nkey_server_sends_a_nonce_and_refuses_a_wrong_signature(server_binary: ServerBinary) -> None:
    variant = variants()["nkey"]
    with (
        started(server_binary, variant) as url,
        socket.create_connection((NatsUrl.parse(url).host, NatsUrl.parse(url).port), timeout=5) as link,
    ):
        link.sendall(b"CONNECT " + json.dumps(variant.credentials["wrong-signature"]).encode() + b"\r\n")
        decoder, seen = Decoder(Sender.SERVER), list[Operation]()
        while data := link.recv(65536):
            seen += decoder.feed(data)
    info, error = seen
    assert isinstance(info, Info)
    assert info.fields["nonce"]
    assert isinstance(error, Err)
    assert error.message == "Authorization Violation"


def test_permissions_are_those_of_the_file(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "permissions") as session:
        mine = session.name("ANY")
        limited = session.connect("limited")
        limited.send(Pub.make(f"{mine}.ok.good"), Pub.make(f"{mine}.ok.bad"), Sub.make(f"{mine}.no", 1))
        limited.expect(Err, message=f'Permissions Violation for Publish to "{mine}.ok.bad"')
        limited.expect(Err, message=f'Permissions Violation for Subscription to "{mine}.no"')


def test_a_denied_message_is_kept_from_a_wildcard_subscription(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "permissions") as session:
        limited = session.connect("limited")
        limited.send(Sub.make("permitted.*", 1))
        limited.flush()
        everything: dict[str, Any] = {**variants()["permissions"].credentials["free"]}
        free = session.connect("free", **everything)
        free.send(Pub.make("permitted.secret"), Pub.make("permitted.note"))
        limited.expect(Msg, subject="permitted.note")


def test_a_third_subscription_is_refused(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "max-subscriptions") as session:
        client = session.connect()
        client.send(*(Sub.make(session.name("A"), sid) for sid in (1, 2, 3)))
        client.expect(Err, message="maximum subscriptions exceeded")


def test_a_fourth_connection_is_refused(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "max-connections") as session:
        for number in (1, 2, 3):
            session.connect(f"client{number}")
        fourth = session.connect("client4", handshake=False)
        fourth.expect(Info)
        fourth.expect(Err, message="maximum connections exceeded")


def test_headers_are_switched_off(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "no-headers") as session:
        assert info_of(session.connect(no_responders=None, headers=None))["headers"] is False


def test_pings_come_every_second(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "pings") as session:
        client = session.connect()
        for _ in range(2):
            assert isinstance(client.take(1.5, skip=(Info,)), Ping)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"PUB a 1025\r\n", "Maximum Payload Violation"),
        (b"SUB " + b"a" * 1000 + b" 1\r\n", "maximum control line exceeded"),
    ],
)
def test_limits_are_small(server_binary: ServerBinary, line: bytes, error: str) -> None:
    with session_with(server_binary, "small-limits") as session:
        client = session.connect()
        assert info_of(client)["max_payload"] == 1024
        client.send_bytes(line)
        client.expect(Err, message=error)


def test_a_client_that_does_not_read_is_cut_off(server_binary: ServerBinary) -> None:
    with session_with(server_binary, "slow-consumer") as session:
        url = session.target.url
        with socket.create_connection((url.host, url.port), timeout=HANGS_AFTER_S) as asleep:
            subject = session.name("FLOOD")
            asleep.sendall(b'CONNECT {"verbose":true}\r\nSUB ' + subject.encode() + b" 1\r\n")
            seen = b""
            while b"+OK\r\n+OK\r\n" not in seen:
                seen += asleep.recv(65536)
            publisher = session.connect("publisher")
            for _ in range(400):
                publisher.send(Pub.make(subject, b"x" * 60_000))
            publisher.flush(within=10)
            received = 0
            while data := asleep.recv(1 << 20):
                received += len(data)
    assert 0 < received < 400 * 60_000


def test_the_url_carries_the_default_credentials() -> None:
    variant = Variant("v", "", {}, {"default": {"user": "a b", "pass": "c:d@e"}})
    url = NatsUrl.parse(variant.url("127.0.0.1:4000"))
    assert (url.user, url.password, url.port) == ("a b", "c:d@e", 4000)
    assert NatsUrl.parse(variants()["token"].url("127.0.0.1:4000")).token == "plumb-token"
    assert variants()["pings"].url("127.0.0.1:4000") == "nats://127.0.0.1:4000"


def broken(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "variants.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (broken("[main"), "variants.toml: "),
        (broken("[main]\ndescription = 'd'"), "main"),
        (broken("[main]\ndescription='d'\nconfig={}\n[variant.a]\ndescription=1\nconfig={}"), "variant"),
        (broken("[main]\ndescription='d'\nconfig={}\n[variant.a]\ndescript='d'\nconfig={}"), "descript"),
    ],
)
def test_wrong_file_error_names_the_file(tmp_path: Path, write: Callable[[Path], Path], error: str) -> None:
    with pytest.raises(VariantsError, match=r"^variants\.toml: ") as raised:
        variants(write(tmp_path))
    assert error in str(raised.value)


def test_the_checks_of_three_variants_want_to_be_refused() -> None:
    refusing = {name for name, variant in variants().items() if variant.refuses}
    assert refusing == {"permissions", "account-limits", "jwt"}
