"""Logins with an NKey: what is read from files, what is signed, and that no secret is shown."""

from __future__ import annotations

import json
import socket
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

from plumbline.conformance.nats.login import NatsLogin
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.targets.access import Access
from plumbline.conformance.targets.target import NatsUrl, UrlError, open_target
from plumbline.conformance.targets.urls import AmqpUrl
from plumbline.conformance.targets.variants import variants
from plumbline.errors import UsageProblem
from plumbline.wire.nats import Connect, HPub, Pub
from tests.conformance.scripted import INFO, lines, nats, scripted
from tests.nats_identities import ACCOUNT, USER, NKey, write_creds, write_nkey

# RFC 8032, section 7.1, test 1: the secret key, and its signature of nothing.
RFC_KEY = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
RFC_SIGNATURE = bytes.fromhex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe"
    "24655141438e7a100b"
)
NONCE = "n0nce"


@pytest.fixture
def creds(tmp_path: Path) -> Path:
    path = tmp_path / "user.creds"
    write_creds(path)
    return path


@pytest.fixture
def nkey(tmp_path: Path) -> Path:
    path = tmp_path / "user.nk"
    write_nkey(path)
    return path


def test_an_nkey_signs_the_nonce() -> None:
    fields = NatsLogin(RFC_KEY, "").fields("")
    assert fields["nkey"] == variants()["nkey"].credentials["wrong-signature"]["nkey"]
    assert urlsafe_b64decode(fields["sig"] + "==") == RFC_SIGNATURE


def test_a_file_with_a_seed_is_an_nkey(nkey: Path) -> None:
    fields = NatsLogin.of_nkey_file(nkey).fields(NONCE)
    assert set(fields) == {"nkey", "sig"}
    assert fields["nkey"] == NKey(USER, "alone").public


def test_a_creds_file_has_a_jwt_and_a_seed(creds: Path) -> None:
    login = NatsLogin.of_creds_file(creds)
    assert login.text == NKey(USER, "user").seed
    assert set(login.fields(NONCE)) == {"jwt", "sig"}
    assert login.fields(NONCE)["jwt"] in creds.read_text()


def test_line_ends_of_windows_are_read(creds: Path) -> None:
    before = NatsLogin.of_creds_file(creds)
    creds.write_bytes(creds.read_bytes().replace(b"\n", b"\r\n"))
    assert NatsLogin.of_creds_file(creds) == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no line with the seed"),
        (NKey(ACCOUNT, "account").seed, "no line with the seed"),
        (f"{NKey(USER, 'alone').seed[:-1]}{'AB'[NKey(USER, 'alone').seed[-1] == 'A']}", "seed is not valid"),
    ],
)
def test_a_wrong_seed_is_refused_and_not_shown(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "wrong.nk"
    path.write_text(text)
    with pytest.raises(UsageProblem, match=sentence) as caught:
        NatsLogin.of_nkey_file(path)
    assert not text or text[:20] not in str(caught.value)


def test_a_file_that_is_no_login(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match=r"--creds .*missing: No such file"):
        NatsLogin.of_creds_file(tmp_path / "missing")
    with pytest.raises(UsageProblem, match="expected a user JWT and its seed"):
        NatsLogin.of_creds_file(_written(tmp_path / "empty", b""))
    with pytest.raises(UsageProblem, match="not UTF-8"):
        NatsLogin.of_nkey_file(_written(tmp_path / "binary", b"\xff"))


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_options_that_exclude_each_other(creds: Path, nkey: Path) -> None:
    url = NatsUrl("h")
    with pytest.raises(UsageProblem, match="only one of --nkey and --creds"):
        Access(nkey=nkey, creds=creds).applied_to(url)
    with pytest.raises(UrlError, match="give only one login"):
        Access(nkey=nkey).applied_to(NatsUrl("h", token="t"))
    with pytest.raises(UsageProblem, match="--creds needs a URL of a NATS server"):
        Access(creds=creds).applied_to(AmqpUrl("h"))
    with pytest.raises(UsageProblem, match="expected tokens of a subject"):
        Access(inbox_prefix="a b").applied_to(url)
    with pytest.raises(UsageProblem, match="--inbox-prefix needs a URL"):
        Access(inbox_prefix="a").require_none()


def test_a_connection_signs_its_own_nonce_and_no_journal_shows_it(creds: Path) -> None:
    """Each connection has a nonce of its own. What reports show has neither JWT nor signature nor seed."""
    came: list[tuple[str, dict[str, str]]] = []

    def script(link: socket.socket) -> None:
        nonce = f"nonce{len(came)}"
        link.sendall(INFO.replace(b"}", b',"auth_required":true,"nonce":"%b"}' % nonce.encode()))
        for line in lines(link):
            if line.startswith(b"CONNECT"):
                came.append((nonce, json.loads(line[8:])))
            elif line == b"PING\r\n":
                link.sendall(b"PONG\r\n")

    login = NatsLogin.of_creds_file(creds)
    with scripted(script) as address:
        url = Access(creds=creds, inbox_prefix="_MINE").applied_to(NatsUrl.parse(address))
        target = open_target(url)
        with NatsSession(target) as session:
            assert session.inbox().startswith("_MINE.")
            connection = session.connect()
            connection.send(Connect.make(session.connect_fields(connection)))
            raw = json.dumps(session.connect_fields(connection)).encode()
            connection.send_bytes(b"connect " + raw + b"\r\n")
            connection.flush()
            shown = b"".join(line.raw + line.text.encode() for line in session.wire)
    assert len(came) >= 3
    assert all(fields["sig"] == login.fields(nonce)["sig"] for nonce, fields in came)
    assert login.jwt.rpartition(".")[2].encode() not in shown
    assert login.text.encode() not in shown
    assert url.flags == (f"--creds={creds}", "--inbox-prefix=_MINE")


def test_requests_to_jetstream_get_the_prefix_of_the_run() -> None:
    came: list[bytes] = []

    def answer(link: socket.socket, line: bytes) -> None:
        came.append(line)

    with scripted(nats(answer)) as address:
        url = Access(js_domain="hub").applied_to(NatsUrl.parse(address))
        assert url.flags == ("--js-api-prefix=$JS.hub.API",)
        with NatsSession(open_target(url)) as session:
            connection = session.connect()
            connection.send(
                Pub.make("$JS.API.INFO", b"", "reply"),
                HPub.make("$JS.API.STREAM.NAMES", [("A", "b")], b"$JS.API.x"),
                Pub.make("$JS.APIX", b""),
                Pub.make("$JS.ACK.x", b""),
            )
            connection.flush()
    assert came[0] == b"PUB $JS.hub.API.INFO reply 0\r\n"
    assert b"HPUB $JS.hub.API.STREAM.NAMES 18 27\r\n" in came
    assert b"$JS.API.x\r\n" in came
    assert b"PUB $JS.APIX 0\r\n" in came
    assert b"PUB $JS.ACK.x 0\r\n" in came


def test_options_of_the_api_exclude_each_other() -> None:
    with pytest.raises(UsageProblem, match="only one of --js-domain and --js-api-prefix"):
        Access(js_domain="hub", js_api_prefix="JS.acc").applied_to(NatsUrl("h"))
    assert Access(js_api_prefix="JS.acc").applied_to(NatsUrl("h")) == NatsUrl("h", api_prefix="JS.acc")
