"""The commands to type by hand: bash sends the same bytes to a real server, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from plumbline.reports.manual_script import manual_script
from plumbline.verdicts import CheckResult, Target, WireLine
from plumbline.wire.amqp.operations import ProtocolHeader
from tests.patience import HANGS_AFTER_S
from tests.reports.samples import CHECKS, HOSTILE, TARGET, exchange

NO_WAIT = CHECKS[2]


def check_of(*operations: str) -> CheckResult:
    return replace(NO_WAIT, wire=exchange(*operations))


def sent(*raw: bytes) -> CheckResult:
    lines = [WireLine(0.001 * number, "client", ">", "x", data) for number, data in enumerate(raw)]
    return replace(NO_WAIT, wire=tuple(lines))


def run(check: CheckResult, target: Target) -> str:
    """What the script prints, run by the shell of the machine."""
    script = manual_script(target, check).script
    assert script
    done = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=HANGS_AFTER_S, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_the_replies_of_a_nats_server_are_printed(nats_broker: str) -> None:
    check = check_of(
        '> CONNECT {"verbose":false}', "> SUB 100%.s 1", "> PUB 100%.s 4\r\nit's", "< x", "> PING"
    )
    output = run(check, replace(TARGET, url=nats_broker))
    assert "client < MSG 100%.s 1 4^M\nclient < it's^M\n" in output
    assert output.endswith("client < PONG^M\n")


def test_the_replies_of_an_amqp_server_are_printed_readably(amqp_broker: str) -> None:
    output = run(sent(ProtocolHeader.make().raw), replace(TARGET, url=amqp_broker))
    assert "capabilities" in output
    assert {char for char in output if not " " <= char <= "~"} <= {"\n", "\t"}


def test_two_connections_speak_in_turn(nats_broker: str) -> None:
    wire = (
        *exchange("< INFO {}", "> CONNECT {}", "> SUB a 7", connection="listener"),
        *exchange("< INFO {}", "> CONNECT {}", "> PUB a 2\r\nhi", connection="speaker", start=0.1),
        *exchange("< MSG a 7 2 | hi", connection="listener", start=0.2),
        *exchange("> PING", connection="speaker", start=0.3),
    )
    output = run(replace(NO_WAIT, wire=wire), replace(TARGET, url=nats_broker))
    assert "listener < MSG a 7 2^M" in output
    assert "speaker < PONG^M" in output


@pytest.mark.parametrize(
    "nasty",
    [HOSTILE, "'; touch {}; '", "$(touch {})", "`touch {}`", "\nEND\ntouch {}\n", "\\047; touch {}; \\"],
)
def test_nothing_a_stranger_wrote_is_read_by_the_shell(nasty: str, tmp_path: Path, nats_broker: str) -> None:
    bait = tmp_path / "touched"
    text = nasty.replace("{}", str(bait))
    wire = exchange(f"> PUB {text} 0", f"< {text}", f"! {text}", connection=text)
    target = replace(TARGET, url=nats_broker, arguments=("--server", text), server_name=text, version=text)
    script = manual_script(target, replace(NO_WAIT, id=text, title=text, wire=wire)).script
    subprocess.run(["sh", "-c", script], capture_output=True, timeout=HANGS_AFTER_S, check=False)
    assert not bait.exists()
    assert script.isascii()
    assert all(char.isprintable() or char == "\n" for char in script)


def test_pauses_of_the_check_are_kept() -> None:
    wire = exchange("> PING") + exchange("> PING", start=1.25)
    assert "\nsleep 1.25\n" in manual_script(TARGET, replace(NO_WAIT, wire=wire)).script


def test_a_server_that_plumbline_started_is_to_be_started_again() -> None:
    def remarks(*arguments: str) -> str:
        return manual_script(replace(TARGET, arguments=arguments), check_of("> PING")).script

    assert "(the server of the run has ended): plumbline broker nats -js --defect=x\n" in remarks(
        "--defect=x"
    )
    assert "(the server of the run has ended): plumbline broker amqp --defect=x\n" in remarks(
        "amqp", "--defect=x"
    )
    assert (
        "start a server and use its address (the server of the run has ended): nats-server@2.10.14, in the "
        "configuration" in remarks("--target", "nats-server@2.10.14")
    )
    assert "(the server of the run has ended): plumbline broker" not in remarks("nats://127.0.0.1:4222")


def test_secrets_that_were_masked_are_to_be_put_in() -> None:
    assert (
        "replace the asterisks with the secrets"
        in manual_script(TARGET, check_of('> CONNECT {"pass":"****"}')).script
    )
    assert "asterisks" not in manual_script(TARGET, check_of("> SUB a.* 1")).script


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (replace(NO_WAIT, wire=()), "the check sent no operation that can be sent by hand"),
        (check_of("< INFO {}"), "the check sent no operation that can be sent by hand"),
        (sent(b"x" * 4096), "an operation is too long to type"),
        (sent(*[b"x" * 4000] * 5), "the exchange is too long to type"),
        (
            replace(
                NO_WAIT, wire=tuple(WireLine(0, str(number), ">", "PING", b"PING\r\n") for number in range(9))
            ),
            "it needs 9 connections",
        ),
    ],
)
def test_manual_script_gives_reason_if_impossible(check: CheckResult, why: str) -> None:
    refused = manual_script(TARGET, check)
    assert refused.script == ""
    assert refused.why_not.startswith(why)


@pytest.mark.parametrize("url", ["unix:///tmp/x", "nats://", "nats://h;touch x:1", "nats://h:x"])
def test_an_address_that_bash_cannot_have_gives_no_script(url: str) -> None:
    assert "address" in manual_script(replace(TARGET, url=url), check_of("> PING")).why_not
