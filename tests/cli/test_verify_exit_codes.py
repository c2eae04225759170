"""``plumbline verify``: what each exit code means, and the sentence that goes with it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.reference_broker.nats.defects import all_defects
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.verdicts import Level
from tests.cli.command import (
    PLUMBLINE,
    TABLED,
    await_line,
    one_sentence,
    started,
    verify,
    write_trace,
)
from tests.conformance.scripted import INFO, Script, closing, http, scripted, silent
from tests.patience import HANGS_AFTER_S

pytestmark = pytest.mark.slow  # make test-all runs it


@pytest.fixture
def broker() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=True) as url:
        yield url


@pytest.fixture
def closed_port() -> Iterator[str]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"nats://127.0.0.1:{unused.getsockname()[1]}"


# -- 0 and 1 -----------------------------------------------------------------------------------


def test_the_embedded_reference_broker_is_conformant(tmp_path: Path) -> None:
    ended = verify(tmp_path, "--select", "CORE-00*")
    assert (ended.code, ended.err) == (0, "")
    assert "Conformant." in ended.out


@pytest.mark.parametrize("group", ["CORE", "JS-PULL", "JS-ACK"])
def test_a_defect_is_found_at_the_requirement_that_it_breaks(tmp_path: Path, group: str) -> None:
    must = {row.id for row in Catalogue.load().requirements if row.level is Level.MUST}
    found = (one for one in all_defects() if set(one.breaks) <= must and one.breaks[0].startswith(group))
    defect = next(found)
    ended = verify(tmp_path, "--select", defect.breaks[0], "--defect", defect.name)
    assert ended.code == 1
    assert f"{defect.breaks[0]} MUST" in ended.out
    assert "Not conformant." in ended.out


# -- 2 -----------------------------------------------------------------------------------------

USAGE = {
    "a URL of another scheme": (("http://127.0.0.1",), "nats://127.0.0.1:4222"),
    "a port that is none": (("nats://127.0.0.1:99999",), "nats://127.0.0.1:4222"),
    "a pattern with a slip": (("--select", "JS-PUL-015"), "did you mean JS-PULL-015"),
    "a pattern like nothing": (("--select", "XX*"), "patterns look like"),
    "a waiver file that is no TOML": (("--waivers", "broken"), "a table is: [[waiver]]"),
    "a waiver file that is not there": (("--waivers", "none.toml"), "none.toml: No such file"),
    "a report in a file's place for folders": (("--json", "broken/r.json"), "cannot write the json report"),
    "a report on a folder": (("--html", "."), "is a folder"),
    "a draft in no folder": (("--write-waivers", "none/w.toml"), "--write-waivers none/w.toml"),
    "a draft over what is there": (
        ("--write-waivers", "broken"),
        "the file already exists and may contain reasons; choose a new file name",
    ),
    "a defect that is none": (("--defect", "no-such-defect"), "unknown defect 'no-such-defect'"),
    "a variant with a slip": (("--variant", "autt=nats://h"), "did you mean auth"),
    "a variant without a URL": (("--variant", "auth"), "write NAME=URL"),
    "a level that is none": (("--level", "newish"), "2.9"),
    "a level for a URL that is none": (("nats://127.0.0.1:1", "--level", "newish"), "for example 2.9"),
    "a trace that is not there": (("--trace", "none.trace"), "cannot be read: No such file"),
    "a server that is none": (("--server", "broken"), "not an executable file"),
    "a URL and a server": (("nats://h", "--server", "s"), "give only one of URL, --server and --target"),
    "a defect of somebody else's server": (
        ("nats://h", "--defect", "d"),
        "--defect works only with the embedded reference broker: remove the URL, --server and --target",
    ),
}


@pytest.mark.parametrize("what", USAGE)
def test_usage_error_shows_correct_form(tmp_path: Path, what: str) -> None:
    (tmp_path / "broken").write_text("not = [toml")
    arguments, error = USAGE[what]
    ended = verify(tmp_path, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert error in one_sentence(ended.err)


def test_every_mistake_in_a_trace_is_shown_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "my.trace").write_text("title T\nsource s\nverifies CORE-004\n> PING\n< PUNG\n")
    ended = verify(tmp_path, "--trace", "my.trace")
    assert ended.code == 2
    assert ended.err.startswith("plumbline: my.trace:5:3: expected")
    assert "did you mean PONG?" in ended.err


def test_every_mistake_in_a_table_is_shown_at_its_place(tmp_path: Path) -> None:
    (tmp_path / "my.trace").write_text(TABLED.replace("PONG  ", "PUNG  "))
    ended = verify(tmp_path, "--trace", "my.trace")
    assert ended.code == 2
    assert ended.err.startswith("plumbline: my.trace:6:12: expected")
    assert "did you mean PONG?" in ended.err


def test_two_traces_with_one_id_are_refused(tmp_path: Path) -> None:
    (tmp_path / "my.trace").write_text(TABLED)
    write_trace(tmp_path / "fails.trace", "CORE-004")
    ended = verify(tmp_path, "--trace", "my.trace", "--trace", "fails.trace")
    assert ended.code == 2
    assert "fails.trace:1: my.trace:7 is the check fails, too; rename one of them" in one_sentence(ended.err)


def test_each_case_of_a_trace_of_ones_own_is_a_check(tmp_path: Path) -> None:
    (tmp_path / "my.trace").write_text(TABLED)
    ended = verify(tmp_path, "--trace", "my.trace", "--json", "result.json")
    assert ended.code == 1
    checks = json.loads((tmp_path / "result.json").read_text())["checks"]
    assert {check["id"]: check["outcome"] for check in checks} == {"passes": "passed", "fails": "failed"}
    assert {check["where"] for check in checks} == {"my.trace:6", "my.trace:10"}  # the row, and the line


def test_one_case_of_a_trace_of_ones_own_is_selected(tmp_path: Path) -> None:
    (tmp_path / "my.trace").write_text(TABLED)
    ended = verify(tmp_path, "--trace", "my.trace", "--select", "passes", "--json", "result.json")
    assert ended.code == 0
    (check,) = json.loads((tmp_path / "result.json").read_text())["checks"]
    assert (check["id"], check["outcome"]) == ("passes", "passed")


def test_unknown_requirement_error_suggests_ids(tmp_path: Path) -> None:
    write_trace(tmp_path / "my.trace", "CORE-04")
    ended = verify(tmp_path, "--trace", "my.trace")
    assert ended.code == 2
    assert "CORE-04 is not a requirement: CORE-" in one_sentence(ended.err)


def test_wrong_credentials_error_shows_url_form(tmp_path: Path) -> None:
    with NatsBroker.in_thread(authorization={"user": "u", "password": "secret"}) as url:
        ended = verify(tmp_path, url.replace("nats://", "nats://u:wrong@"))
    assert ended.code == 2
    sentence = one_sentence(ended.err)
    assert "Authorization Violation" in sentence
    assert "nats://user:password@" in sentence
    assert "wrong" not in sentence


@pytest.mark.parametrize(
    ("following", "error"),
    [
        (("-k", "no_check_is_called_so"), "no check was selected: -k, -m and the arguments match no check"),
        (("--no-such-option",), "pytest rejects the arguments after --"),
        (("--collect-only",), "the arguments after -- made pytest run no check"),
        (("test_broken.py",), "could not be read: test_broken.py: "),
    ],
)
def test_arguments_of_pytest_that_run_nothing_are_the_users_mistake(
    tmp_path: Path, following: tuple[str, ...], error: str
) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module")
    ended = verify(tmp_path, "--select", "CORE-00*", "-n", "2", "--", *following)
    assert ended.code == 2
    assert error in ended.err
    assert "Traceback" not in ended.err


# -- 3 -----------------------------------------------------------------------------------------


def greeting_only(link: socket.socket) -> None:
    """INFO, and then nothing more."""
    link.sendall(INFO)
    silent(link)


def chatter(link: socket.socket) -> None:
    """INFO, and messages without end."""
    link.sendall(INFO)
    while True:
        link.sendall(b"MSG a 1 1\r\na\r\n" * 1000)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (silent, "accepts connections but sends no data; a NATS server sends INFO first."),
        (http, "speaks HTTP, not NATS"),
        (closing, "closes the connection"),
        (greeting_only, "does not answer PING"),
        (chatter, "does not answer PING"),
    ],
)
def test_a_port_that_is_no_nats_server_ends_the_run_before_it_began(
    tmp_path: Path, script: Script, error: str
) -> None:
    """Some of them stay silent for ever: only the probe's own limit ends the command."""
    with scripted(script) as address:
        ended = verify(tmp_path, f"nats://{address}")
    assert (ended.code, ended.out) == (3, "")
    assert error in one_sentence(ended.err)


def test_a_port_without_a_listener_ends_the_run(tmp_path: Path, closed_port: str) -> None:
    ended = verify(tmp_path, closed_port)
    assert (ended.code, ended.out) == (3, "")
    assert "Nothing listens at" in one_sentence(ended.err)


def test_unreachable_variant_is_named(tmp_path: Path, broker: str, closed_port: str) -> None:
    ended = verify(tmp_path, broker, "--variant", f"auth={closed_port}")
    assert ended.code == 3
    assert one_sentence(ended.err).startswith("The variant 'auth': Nothing listens at")


def test_a_target_that_is_killed_ends_the_run(tmp_path: Path, nats_server: NatsServer) -> None:
    report = tmp_path / "r.json"
    with started((*PLUMBLINE, "verify", nats_server.url, "-n", "3", "--json", report), tmp_path) as run:
        await_line(run, " 25 %")
        os.kill(nats_server.pid, signal.SIGKILL)
        out, err = run.communicate(timeout=HANGS_AFTER_S)
    assert run.returncode == 3
    sentence = one_sentence(err)
    assert sentence.startswith("the target was lost: Nothing listens at")
    assert "Running then: " in sentence
    assert "Unknown: the target was lost." in out
    assert '"exit_code":3' in report.read_text().replace(" ", "")


def test_a_target_that_hangs_ends_the_run(tmp_path: Path, nats_server: NatsServer) -> None:
    with started((*PLUMBLINE, "verify", nats_server.url, "-n", "3"), tmp_path) as run:
        await_line(run, " 25 %")
        os.kill(nats_server.pid, signal.SIGSTOP)
        try:
            _, err = run.communicate(timeout=HANGS_AFTER_S)
        finally:
            os.kill(nats_server.pid, signal.SIGCONT)
    assert run.returncode == 3
    assert "accepts connections but sends no data; a NATS server sends INFO first." in one_sentence(err)


# -- 4 -----------------------------------------------------------------------------------------

CHECK = """
import os
from plumbline.conformance.check import verifies

@verifies("CORE-004")
def test_it(session):
    {body}
"""


def test_a_check_that_raises_is_an_error_of_plumbline(tmp_path: Path, broker: str) -> None:
    (tmp_path / "test_raising.py").write_text(CHECK.format(body="{}['what is missing']"))
    ended = verify(tmp_path, broker, "--select", "CORE-004", "--", "test_raising.py")
    assert ended.code == 4
    assert one_sentence(ended.err) == "1 check ended with an internal error of Plumbline"
    assert "KeyError: 'what is missing'" in ended.out
    assert "Unknown: internal error in Plumbline." in ended.out


def test_a_worker_that_dies_is_an_error_of_plumbline(tmp_path: Path, broker: str) -> None:
    (tmp_path / "test_dying.py").write_text(CHECK.format(body="os._exit(0)"))
    ended = verify(tmp_path, broker, "--select", "CORE-00*", "-n", "2", "--", "test_dying.py")
    assert ended.code == 4
    assert "test_dying.py" in one_sentence(ended.err)
    assert "crashed" in ended.err
    assert "Unknown: internal error in Plumbline." in ended.out
