"""Logins of AMQP: the response of each mechanism, and what its options need."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.conformance.amqp.connection import redacted
from plumbline.conformance.amqp.handshake import start_ok
from plumbline.conformance.targets.access import Access
from plumbline.conformance.targets.urls import AmqpUrl, NatsUrl
from plumbline.errors import UsageProblem
from plumbline.tls import TlsOptions
from plumbline.wire.amqp import Method

URL = AmqpUrl("h", user="alice", password="s3cret-word")


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", "\0alice\0s3cret-word"),
        ("AMQPLAIN", "\x05LOGINS\0\0\0\x05alice\x08PASSWORDS\0\0\0\x0bs3cret-word"),
        ("EXTERNAL", ""),
    ],
)
def test_a_mechanism_has_its_response(mechanism: str, response: str) -> None:
    url = AmqpUrl("h", user="alice", password="s3cret-word", mechanism=mechanism)
    sent = start_ok(url, {})
    assert sent.arguments["mechanism"] == mechanism
    assert sent.arguments["response"] == response
    shown = redacted(sent)
    assert isinstance(shown, Method)
    assert len(shown.raw) == len(sent.raw)
    assert b"s3cret" not in shown.raw
    assert url.flags == ((f"--auth-mechanism={mechanism}",) if mechanism != "PLAIN" else ())


def test_options_of_a_mechanism() -> None:
    assert Access(auth_mechanism="amqplain").applied_to(URL) == AmqpUrl(
        "h", user="alice", password="s3cret-word", mechanism="AMQPLAIN"
    )
    with pytest.raises(UsageProblem, match="known are PLAIN, AMQPLAIN, EXTERNAL"):
        Access(auth_mechanism="X").applied_to(URL)
    with pytest.raises(UsageProblem, match="EXTERNAL needs --tls-cert"):
        Access(auth_mechanism="EXTERNAL").applied_to(AmqpUrl("h", tls=TlsOptions()))
    with pytest.raises(UsageProblem, match="--auth-mechanism needs a URL of an AMQP server"):
        Access(auth_mechanism="PLAIN").applied_to(NatsUrl("h"))


def test_a_url_without_a_user_shows_none() -> None:
    url = AmqpUrl("h", 5671, mechanism="EXTERNAL", tls=TlsOptions(certificate=Path("c.pem")))
    assert str(url) == "amqps://h:5671/%2F"
    assert url.flags == ("--tls-cert=c.pem", "--auth-mechanism=EXTERNAL")
