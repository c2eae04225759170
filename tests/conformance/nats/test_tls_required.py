"""CORE-104 on servers with TLS that are wrong towards a client that forgets it, and on right ones."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.target import open_target
from plumbline.verdicts import CheckResult, Outcome
from tests.certificates import Certificates
from tests.conformance.nats.test_links import OFFER, nats_url, pong
from tests.conformance.scripted import INFO, Script, scripted

TLS_RECORD = b"\x16"
AVAILABLE = INFO.replace(b"}", b',"tls_available":true}')


def outcome(folder: Path, answer: bytes, *, info: bytes = OFFER, closes: bool = True) -> CheckResult:
    """Of the check, on a server that sends ``info`` and answers the clear CONNECT with ``answer``."""
    certificates = Certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.pem("server"), certificates.key("server"))

    def serve(link: socket.socket) -> None:
        link.sendall(info)
        if link.recv(1, socket.MSG_PEEK) == TLS_RECORD:
            with context.wrap_socket(link, server_side=True) as inside:
                pong(inside)
        else:
            link.recv(65536)
            link.sendall(answer)
            if closes:
                link.close()
            else:
                link.recv(1)

    (check,) = (one for one in all_checks("nats") if "CORE-104" in one.requirements)
    script: Script = serve
    with scripted(script) as address:
        return run_check(check, open_target(nats_url(address, certificates)), Catalogue.load())


@pytest.mark.parametrize("answer", [b"", b"-ERR 'Secure Connection - TLS Required'\r\n"])
def test_a_server_that_closes_passes(tmp_path: Path, answer: bytes) -> None:
    assert outcome(tmp_path, answer).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("answer", "closes"),
    [
        (b"PONG\r\n", False),
        (b"PONG\r\n", True),
        (b"-ERR 'Authorization Violation'\r\n", True),
        (b"-ERR 'Secure Connection - TLS Required'\r\n", False),
    ],
    ids=["serves it", "serves it and closes", "another reason", "stays open"],
)
def test_a_server_that_does_not_refuse_it_fails(tmp_path: Path, answer: bytes, closes: bool) -> None:
    assert outcome(tmp_path, answer, closes=closes).outcome is Outcome.FAILED


def test_a_server_that_offers_tls_may_serve_it(tmp_path: Path) -> None:
    found = outcome(tmp_path, b"PONG\r\n", info=AVAILABLE, closes=False)
    assert found.outcome is Outcome.UNSUPPORTED
    assert "does not require TLS" in found.message
