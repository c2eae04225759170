"""TLS of a target: what is encrypted when, and the one sentence for what is refused."""

from __future__ import annotations

import hashlib
import pickle
import re
import socket
import ssl
from base64 import b64encode
from pathlib import Path

import pytest

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Inconclusive
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.runner.prepare import RunOptions, prepare
from plumbline.conformance.suite import all_checks, select
from plumbline.conformance.targets.access import Access
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import (
    AccessRefusedError,
    NatsUrl,
    TargetAccess,
    UrlError,
    open_target,
)
from plumbline.conformance.targets.urls import AmqpUrl, AnyUrl, parse_url
from plumbline.errors import PlumblineError, TargetUnreachable, UsageProblem
from plumbline.tls import TlsError, TlsOptions, context_of
from plumbline.verdicts import Outcome
from plumbline.wire.websocket import Opcode
from tests.certificates import Certificates
from tests.conformance.scripted import INFO, Script, dripping, lines, nats, scripted, silent
from tests.wire.test_websocket import of_server

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455
OFFER = INFO.replace(b"}", b',"tls_required":true}')


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def encrypted(
    certificates: Certificates,
    script: Script,
    *,
    greeting: bytes = b"",
    name: str = "server",
    asks: bool = False,
) -> Script:
    """``script`` inside TLS, which begins after ``greeting`` in the clear."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem(name), certificates.key(name))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.pem("ca"))

    def wrapped(link: socket.socket) -> None:
        link.sendall(greeting)
        with context.wrap_socket(link, server_side=True) as inside:
            script(inside)

    return wrapped


def pong(link: socket.socket) -> None:
    """What comes after the INFO of a server with TLS."""
    for line in lines(link):
        if line == b"PING\r\n":
            link.sendall(b"PONG\r\n")


def nats_url(address: str, certificates: Certificates, query: str = "", **options: object) -> AnyUrl:
    given = {"authority": certificates.pem("ca"), **options}
    return Access(tls=TlsOptions(**given)).applied_to(parse_url(f"tls://{address}{query}"))  # type: ignore[arg-type]


def refusal(script: Script, certificates: Certificates, query: str = "", **options: object) -> PlumblineError:
    with scripted(script) as address, pytest.raises((AccessRefusedError, TargetUnreachable)) as caught:
        open_target(nats_url(address, certificates, query, **options))
    return caught.value


# -- URLs ------------------------------------------------------------------------------------------


def test_urls_with_tls() -> None:
    assert parse_url("tls://u:p@h") == NatsUrl("h", user="u", password="p", tls=TlsOptions())
    assert parse_url("tls://h?handshake_first=true") == NatsUrl("h", is_tls_first=True, tls=TlsOptions())
    assert parse_url("amqps://h") == AmqpUrl("h", 5671, tls=TlsOptions())
    for text in ("tls://h:4222?handshake_first=true", "tls://h:4222", "amqps://guest@h:5671/%2F"):
        assert str(parse_url(text)) == text


@pytest.mark.parametrize("text", ["nats://h?handshake_first=true", "tls://h?first", "amqps://h?verify=none"])
def test_a_query_that_nobody_reads_is_refused(text: str) -> None:
    with pytest.raises(UrlError):
        parse_url(text)


def test_the_options_of_a_url_reach_it_again(certificates: Certificates, tmp_path: Path) -> None:
    with scripted(encrypted(certificates, pong, greeting=OFFER)) as address:
        url = nats_url(address, certificates)
        prepared = prepare(RunOptions(select=("CORE-001",)), RunningTarget(url), tmp_path)
    assert prepared.run.target.target.arguments == (
        f"tls://{address}",
        f"--tls-ca={certificates.pem('ca')}",
    )
    assert pickle.loads(pickle.dumps(url)) == url


def test_options_of_tls_need_a_url_with_tls(certificates: Certificates) -> None:
    access = Access(tls=TlsOptions(certificates.pem("ca")))
    with pytest.raises(
        UsageProblem, match="--tls-ca needs a URL that begins with tls://, wss:// or amqps://"
    ):
        access.applied_to(parse_url("nats://h"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (TlsOptions(Path("missing.pem")), "--tls-ca missing.pem: no certificates: No such file"),
        (TlsOptions(key=Path("missing.key")), "give the certificate of this key"),
        (
            TlsOptions(certificate=Path("missing.pem")),
            "client certificate missing.pem: no certificate",
        ),
    ],
)
def test_files_that_cannot_be_used(options: TlsOptions, sentence: str) -> None:
    with pytest.raises(TlsError, match=sentence):
        context_of(options)


def test_an_encrypted_key_asks_for_no_passphrase(certificates: Certificates, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(certificates.key("client").read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(TlsError, match=r"locked\.key is encrypted"):
        context_of(TlsOptions(certificate=certificates.pem("client"), key=locked))


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [False, True], ids=["after-info", "handshake-first"])
def test_a_check_sees_info_first(certificates: Certificates, *, is_first: bool) -> None:
    greeting, script = (b"", nats(lambda *_: None)) if is_first else (OFFER, pong)
    query = "?handshake_first=true" if is_first else ""
    with scripted(encrypted(certificates, script, greeting=greeting)) as address:
        target = open_target(nats_url(address, certificates, query))
        assert target.target.url == f"tls://{address}{query}"
        with NatsSession(target) as session:
            connection = session.connect()
            assert connection.info is not None
            assert connection.flush() == []


def test_nothing_is_sent_in_the_clear(certificates: Certificates) -> None:
    """Somebody on the way takes tls_required out of INFO."""
    came: list[bytes] = []

    def stripped(link: socket.socket) -> None:
        link.sendall(INFO)
        while data := link.recv(4096):
            came.append(data)

    with scripted(encrypted(certificates, pong, greeting=OFFER)) as address:
        target = open_target(nats_url(f"secret@{address}", certificates))
    with scripted(stripped) as address:
        url = nats_url(f"secret@{address}", certificates)
        moved = TargetAccess(RunningTarget(url), target.target, target.info)
        with NatsSession(moved) as session, pytest.raises(Inconclusive, match="offers no TLS"):
            session.connect()
    assert came == []


# -- refusals --------------------------------------------------------------------------------------


def test_a_certificate_of_an_unknown_authority(certificates: Certificates) -> None:
    script = encrypted(certificates, pong, greeting=OFFER)
    error = refusal(script, certificates, authority=certificates.pem("stranger"))
    assert str(error).startswith("the certificate of tls://127.0.0.1:")
    assert "is not trusted" in str(error)
    assert str(error).endswith("give its certificate authority with --tls-ca FILE")


def test_a_certificate_for_another_name(certificates: Certificates) -> None:
    script = encrypted(certificates, pong, greeting=OFFER, name="other")
    assert str(refusal(script, certificates)).endswith("give its name with --tls-name NAME")
    with scripted(script) as address:
        open_target(nats_url(address, certificates, name="mq.example"))


def test_a_server_that_wants_a_certificate(certificates: Certificates) -> None:
    script = encrypted(certificates, pong, greeting=OFFER, asks=True)
    error = refusal(script, certificates)
    assert "wants a certificate" in str(error)
    assert str(error).endswith("with --tls-cert FILE and --tls-key FILE")
    with scripted(script) as address:
        certificate, key = certificates.pem("client"), certificates.key("client")
        open_target(nats_url(address, certificates, certificate=certificate, key=key))


def test_a_server_without_tls(certificates: Certificates) -> None:
    plain = nats(lambda *_: None)
    assert "offers no TLS" in str(refusal(plain, certificates))
    assert "write nats:// for a listener without TLS" in str(
        refusal(plain, certificates, "?handshake_first=true")
    )


def test_a_server_that_begins_with_tls(certificates: Certificates) -> None:
    error = refusal(silent, certificates)
    assert str(error).endswith("add ?handshake_first=true to the URL.")


def test_a_server_that_requires_tls_of_a_plain_url() -> None:
    def offer(link: socket.socket) -> None:
        link.sendall(OFFER)
        link.recv(4096)

    with scripted(offer) as address, pytest.raises(AccessRefusedError, match=f"write tls://{address}"):
        open_target(NatsUrl.parse(address))


# -- WebSocket -------------------------------------------------------------------------------------


def web_socket(answer: bytes = b"", refusal: bytes | None = None) -> Script:
    """A NATS server inside WebSocket; ``answer`` instead of its own to the upgrade.

    At FOO, and at an empty line, it sends ``refusal`` and closes, or without one goes on.
    """

    def script(link: socket.socket) -> None:
        with link.makefile("rb") as file:
            head = b"".join(iter(file.readline, b"\r\n"))
            key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)
            assert key is not None
            digest = hashlib.sha1(key[1] + GUID, usedforsecurity=False).digest()
            accepted = b"HTTP/1.1 101 Switching\r\nSec-WebSocket-Accept: %b\r\n\r\n" % b64encode(digest)
            link.sendall(answer or accepted + of_server(Opcode.BINARY, INFO) + of_server(Opcode.PING, b"?"))
            while not answer and (head := file.read(2)):
                size = head[1] & 0x7F
                size = int.from_bytes(file.read(2)) if size == 126 else size
                mask = file.read(4)
                text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(file.read(size)))
                if b"PING\r\n" in text:
                    link.sendall(of_server(Opcode.BINARY, b"PONG\r\n"))
                if (b"FOO" in text or text == b"\r\n") and refusal is not None:
                    link.sendall(of_server(Opcode.BINARY, refusal) if refusal else b"")
                    link.shutdown(socket.SHUT_RDWR)

    return script


def test_a_check_sees_nats_inside_web_socket(certificates: Certificates) -> None:
    with scripted(web_socket()) as address:
        target = open_target(parse_url(f"ws://{address}"))
        assert target.target.url == f"ws://{address}"
        with NatsSession(target) as session:
            assert session.connect().flush() == []
    with scripted(encrypted(certificates, web_socket())) as address:
        url = Access(tls=TlsOptions(certificates.pem("ca"))).applied_to(parse_url(f"wss://{address}"))
        assert str(open_target(url).url) == f"wss://{address}"


def closing_at_foo(link: socket.socket, line: bytes) -> None:
    if line.startswith(b"FOO"):
        link.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("scheme", "script", "outcome"),
    [
        ("ws", web_socket(refusal=b"-ERR 'Unknown Protocol Operation'\r\n"), Outcome.PASSED),
        ("ws", web_socket(refusal=b""), Outcome.UNSUPPORTED),
        ("ws", web_socket(refusal=b"-ERR 'Go Away'\r\n"), Outcome.FAILED),
        ("ws", web_socket(), Outcome.FAILED),
        ("nats", nats(closing_at_foo), Outcome.FAILED),
    ],
)
def test_only_web_socket_may_lose_the_error_of_a_closed_connection(
    scheme: str, script: Script, outcome: Outcome
) -> None:
    (check,) = select(all_checks("nats"), ["core/unknown-verb-is-refused"])
    with scripted(script) as address:
        result = run_check(check, open_target(parse_url(f"{scheme}://{address}")), Catalogue.load())
    assert result.outcome is outcome


def test_web_socket_may_also_lose_an_error_of_which_there_are_two_texts() -> None:
    (check,) = select(all_checks("nats"), ["core/empty-line-is-a-parse-error"])
    with scripted(web_socket(refusal=b"")) as address:
        result = run_check(check, open_target(parse_url(f"ws://{address}")), Catalogue.load())
    assert result.outcome is Outcome.UNSUPPORTED


def test_urls_of_web_sockets() -> None:
    assert parse_url("wss://h") == NatsUrl("h", 443, is_web=True, tls=TlsOptions())
    assert parse_url("ws://u:p@h:8080") == NatsUrl("h", 8080, user="u", password="p", is_web=True)
    assert [str(parse_url(text)) for text in ("ws://h:80", "wss://h:443")] == ["ws://h:80", "wss://h:443"]


def test_a_server_that_is_no_web_socket() -> None:
    refused = b"HTTP/1.1 404 Not Found\r\n\r\n"
    for script in (web_socket(refused), nats(lambda *_: None)):
        with (
            scripted(script) as address,
            pytest.raises(TargetUnreachable, match=r"does not answer .*WebSocket"),
        ):
            open_target(parse_url(f"ws://{address}"))


def test_an_answer_to_the_upgrade_that_never_ends_is_not_awaited() -> None:
    with scripted(dripping(b"x" * 1000)) as address, pytest.raises(TargetUnreachable, match="upgrade"):
        open_target(parse_url(f"ws://{address}"))
