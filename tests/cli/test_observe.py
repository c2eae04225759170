"""``plumbline observe``: somebody's program finds the brokers, and the rules of monitors judge it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.verdicts import ExitCode
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, socket, sys
from urllib.parse import urlsplit
from plumbline.wire.nats import Decoder, Msg, Pub, Sender, Sub
from plumbline.wire.nats.jetstream import next_subject

parts = urlsplit(os.environ["NATS_URL"])
link = socket.create_connection((parts.hostname, parts.port))
decoder = Decoder(Sender.SERVER)

def ask(subject, body=b""):
    link.sendall(Pub.make(subject, body, "in.box").raw)
    while True:
        for operation in decoder.feed(link.recv(65536)):
            if isinstance(operation, Msg):
                return operation

link.sendall(b"CONNECT {}\\r\\n" + Sub.make("in.box", 1).raw)
ask("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"],"storage":"memory"}')
config = b'{"stream_name":"S","config":{"durable_name":"D","ack_policy":"explicit"}}'
ask("$JS.API.CONSUMER.DURABLE.CREATE.S.D", config)
ask("s", b"hello")
message = ask(next_subject("S", "D"))
for _ in range(int(sys.argv[1])):
    link.sendall(Pub.make(message.reply, b"+ACK").raw)
link.sendall(b"PING\\r\\n")
while b"PONG" not in link.recv(4096):
    pass
link.close()
sys.exit(int(sys.argv[2]))
"""


def observe(*words: object, program: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = program or (sys.executable, "-c", PROGRAM, *map(str, words))
    full = [sys.executable, "-m", "plumbline", "observe", "--", *command]
    return subprocess.run(full, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)


def test_a_client_that_keeps_the_rules_is_green() -> None:
    ran = observe(1, 0)
    assert ran.returncode == ExitCode.CONFORMANT, ran.stderr
    assert "1 connection, " in ran.stdout
    assert "no violations" in ran.stdout
    assert "AMQP_URL=amqp://guest:guest@127.0.0.1:" in ran.stderr


def test_a_client_that_acknowledges_twice_is_red_with_the_evidence() -> None:
    ran = observe(2, 0)
    assert ran.returncode == ExitCode.NOT_CONFORMANT
    assert "one-acknowledgement: client broke JS-ACK-041" in ran.stdout
    assert ran.stdout.count("PUB $JS.ACK.S.D.1.1.1.") == 2


def test_a_program_that_fails_is_red() -> None:
    ran = observe(1, 7)
    assert ran.returncode == ExitCode.NOT_CONFORMANT
    assert "the program ended with exit code 7" in ran.stderr


@pytest.mark.parametrize(
    ("program", "code", "error"),
    [
        (("true",), ExitCode.NOT_CONFORMANT, "nothing was observed"),
        (("/nonexistent/program",), ExitCode.USAGE, "cannot be started: No such file"),
    ],
)
def test_observe_without_connections_fails(program: tuple[str, ...], code: int, error: str) -> None:
    ran = observe(program=program)
    assert ran.returncode == code
    assert error in ran.stderr


def test_invalid_fault_is_reported() -> None:
    words = [sys.executable, "-m", "plumbline", "observe", "--fault", "explode", "--", "true"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False)
    assert ran.returncode == ExitCode.USAGE
    assert "expected one of latency" in ran.stderr
