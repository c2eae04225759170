"""``plumbline explore`` as a user has it: exit codes, sentences, the trace file and its replay."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from plumbline.servers.nats.nats_server import NatsServer
from tests.cli.command import PLUMBLINE, Ended, run, started, verify
from tests.conformance.streams import stream_names
from tests.hostile import nats_servers
from tests.hostile.sockets import serving

pytestmark = pytest.mark.slow  # make test-all runs it

DEFECT = "--defect=nak-acknowledges"


def explore(folder: Path, *arguments: str) -> Ended:
    return run((*PLUMBLINE, "explore", *arguments), folder)


def test_divergence_is_reported_and_its_trace_replays(tmp_path: Path) -> None:
    ended = explore(tmp_path, DEFECT, "--seed=1", "--most=1", "-o", "found")
    assert ended.code == 1, ended.out + ended.err
    (trace,) = (tmp_path / "found").iterdir()
    assert "DIVERGED" in ended.out
    assert "  Expected: " in ended.out
    assert "    Actual: " in ended.out
    assert f"again: plumbline verify {DEFECT} --trace found/{trace.name}" in ended.out
    assert verify(tmp_path, DEFECT, "--trace", trace).code == 1
    assert verify(tmp_path, "--trace", trace).code == 0


def test_no_divergence_reports_programs_run(tmp_path: Path) -> None:
    ended = explore(tmp_path, "--examples=10", "--seed=3")
    assert ended.code == 0, ended.out + ended.err
    assert "explored  10 programs, " in ended.out
    assert "--seed 3" in ended.out
    assert "found  0 divergences" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_a_program_is_started_and_explored(nats_server: NatsServer, tmp_path: Path) -> None:
    ended = explore(tmp_path, "--server", str(nats_server.binary), "--examples=3", "--seed=1")
    assert ended.code == 0, ended.out + ended.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--budget=soon",), "--budget soon: expected a number and one of ms, s, m, h, d"),
        (("--level=1.0",), "level '1.0' is not known"),
        (("nats://127.0.0.1:4222", "--server=x"), "give only one of URL, --server and --target"),
        (
            ("nats://127.0.0.1:4222", DEFECT),
            "--defect works only with the embedded reference broker: remove the URL, --server and --target",
        ),
        (("--defect=none-such",), "none-such"),
        (("http://127.0.0.1",), "scheme"),
    ],
)
def test_usage_errors_are_one_sentence(arguments: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    ended = explore(tmp_path, *arguments)
    assert ended.code == 2, ended.out + ended.err
    assert sentence in ended.err
    assert "Traceback" not in ended.err


def test_a_target_that_is_not_there_has_a_code_of_its_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert explore(tmp_path, f"nats://127.0.0.1:{port}").code == 3


def test_ctrl_c_reports_findings_and_cleans_up(nats_server: NatsServer, tmp_path: Path) -> None:
    with started((*PLUMBLINE, "explore", nats_server.url, "--seed=1"), tmp_path) as process:
        deadline = time.monotonic() + 60
        while not stream_names(nats_server.url):  # it has begun
            assert time.monotonic() < deadline
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert "interrupted" in err
    assert "explored  " in out
    assert "restarts  none: Plumbline did not start this server" in out
    assert stream_names(nats_server.url) == []


def test_the_budget_ends_a_search_on_a_server_that_does_not_answer(tmp_path: Path) -> None:
    with serving(nats_servers.silent) as address:
        ended = explore(tmp_path, f"nats://{address}", "--budget=1s")
    assert ended.code in (1, 3), ended.out + ended.err  # a difference, or no time to confirm it
    assert "explored  " in ended.out
