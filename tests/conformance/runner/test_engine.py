"""What the engine makes of the ways a check can end."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plumbline.conformance.check import Check
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed, Inconclusive, Unsupported, Untestable
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.targets.own_server import OwnServer
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.errors import TargetUnreachable
from plumbline.verdicts import CheckResult, Outcome
from plumbline.wire.errors import ErrorKind, ProtocolError
from plumbline.wire.nats import Msg, Pub
from tests.conformance.scripted import nats, scripted

CATALOGUE = Catalogue.load()


def ran(run: Callable[[NatsSession], None], answer: bytes = b"") -> CheckResult:
    def script(link: socket.socket, line: bytes) -> None:
        if line.startswith(b"PUB"):
            link.sendall(answer)

    with scripted(nats(script)) as address:
        access = open_target(NatsUrl.parse(address))
        return run_check(Check("c", "title", ("CORE-001",), run), access, CATALOGUE)


@pytest.mark.parametrize(
    ("raised", "outcome"),
    [
        (Failed("no", expected="a", actual="b"), Outcome.FAILED),
        (Unsupported("INFO does not claim it"), Outcome.UNSUPPORTED),
        (Untestable("no stage"), Outcome.UNTESTABLE),
        (Inconclusive("late"), Outcome.INCONCLUSIVE),
        (AssertionError("1 is not 2"), Outcome.FAILED),
        (TargetUnreachable("it does not answer the TLS handshake"), Outcome.INCONCLUSIVE),
        (ZeroDivisionError("oh"), Outcome.HARNESS_ERROR),
        (ProtocolError(ErrorKind.JSON, "the target sent what is not valid"), Outcome.FAILED),
    ],
)
def test_each_way_to_end_is_an_outcome(raised: Exception, outcome: Outcome) -> None:
    def run(session: NatsSession) -> None:
        raise raised

    result = ran(run)
    assert result.outcome is outcome
    assert str(raised.args[0]) in result.message


DIES = """\
import os, signal, socket
listener = socket.create_server(("127.0.0.1", 0))
info = b'INFO {"server_id":"S","version":"2.10.14","max_payload":1048576,"headers":true}\\r\\n'
print(f"nats://127.0.0.1:{listener.getsockname()[1]}", flush=True)
while True:
    link, _ = listener.accept()
    if not os.fork():
        link.sendall(info)
        for line in link.makefile("rb"):
            if line.startswith(b"PUB"):
                signal.pause()
            elif line == b"PING\\r\\n":
                link.sendall(b"PONG\\r\\n")
        os._exit(0)
"""


@pytest.mark.parametrize(("fresh", "outcome"), [(True, Outcome.FAILED), (False, Outcome.INCONCLUSIVE)])
def test_a_connection_that_dies_on_a_server_of_its_own_is_a_failure(
    tmp_path: Path, fresh: bool, outcome: Outcome
) -> None:
    def run(session: NatsSession) -> None:
        client = session.connect()
        client.send(Pub.make(session.name("subject"), b""))
        client.expect(Msg, within=0.1)

    script = tmp_path / "dies.py"
    script.write_text(DIES)
    program = (sys.executable, str(script))
    server = OwnServer(program, {})
    try:
        running = RunningTarget(NatsUrl.parse(server.start()), program=program, fresh=fresh)
        ended = run_check(Check("c", "title", ("CORE-001",), run), open_target(running), CATALOGUE)
    finally:
        server.close()
    assert (ended.outcome, ended.message) == (
        outcome,
        "client: nothing within 0.1 s, and PING is not answered",
    )
    assert ended.actual == "nothing"


def test_bytes_that_are_not_utf_8_are_shown_by_their_escapes() -> None:
    def run(session: NatsSession) -> None:
        session.journal.add(0.0, "client", "<", "closed: \udcff", b"\xff")
        raise Failed("refused: \udcff", expected="a", actual="b")

    result = ran(run)
    assert result.message == "refused: \\udcff"
    assert (result.wire[-1].text, result.wire[-1].raw) == ("closed: \\udcff", b"\xff")


def test_a_check_that_saw_no_evidence_fails() -> None:
    result = ran(lambda session: None)
    assert result.outcome is Outcome.FAILED
    assert result.message == "the check made no observation"


@pytest.mark.parametrize("code", [b"10008", b"10009", b"10049"])
def test_a_failure_beside_the_servers_own_trouble_is_inconclusive(code: bytes) -> None:
    def run(session: NatsSession) -> None:
        client = session.connect()
        client.send(Pub.make("a"))
        client.expect(Msg, payload=b'{"success":true}')

    trouble = b'{"error":{"code":500,"err_code":%b,"description":"of the moment"}}' % code
    answer = b"MSG a 1 %d\r\n%b\r\n"
    assert ran(run, answer % (len(trouble), trouble)).outcome is Outcome.INCONCLUSIVE
    refusal = trouble.replace(code, b"10058")
    assert ran(run, answer % (len(refusal), refusal)).outcome is Outcome.FAILED


def test_the_error_of_malformed_data_does_not_keep_what_was_received() -> None:
    """Frames of the decoder hold it: megabytes, if a server wants, until the next garbage collection."""
    clients: list[NatsConnection] = []

    def run(session: NatsSession) -> None:
        clients.append(session.connect())
        clients[0].send(Pub.make("a"))
        clients[0].expect(Msg)

    result = ran(run, b"MSG a 1 1\r\nx__")
    broken = clients[0]._broken
    assert "malformed" in result.message
    assert broken is not None
    assert (broken.__traceback__, broken.__context__) == (None, None)
