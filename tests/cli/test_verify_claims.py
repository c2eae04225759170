"""`verify --claims` by the real command: contradictions, what is not claimed, restarts, drafts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import NatsServer, ServerBinary
from tests.cli.command import Ended, one_sentence, verify

pytestmark = pytest.mark.slow  # make test-all runs it

NAME = "claims.toml"


def claimed(folder: Path, text: str, *arguments: str) -> tuple[Ended, Any]:
    """Run with these claims; how it ended, and the JSON result."""
    (folder / NAME).write_text(text)
    report = folder / "result.json"
    report.unlink(missing_ok=True)
    ended = verify(folder, *arguments, "--claims", NAME, "--json", report)
    return ended, json.loads(report.read_text()) if report.exists() else None


def drafted(folder: Path, *arguments: str) -> str:
    (folder / NAME).unlink(missing_ok=True)
    ended = verify(folder, *arguments, "--write-claims", NAME)
    assert ended.code == 0, ended
    return (folder / NAME).read_text()


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of the embedded brokers."""
    folder = tmp_path_factory.mktemp("drafts")
    return {
        "nats": drafted(folder, "--select", "CORE-004"),
        "amqp": drafted(folder, "amqp", "--select", "AMQP-CHAN-001"),
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--select", "CORE-004"), ""),
        (("amqp", "--select", "AMQP-CHAN-001"), ""),
        (
            ("--select", "CORE-004", "--defect", "authentication-is-always-announced"),
            "the option auth_required is claimed to be absent, and INFO announces it",
        ),
        (
            ("amqp", "--select", "AMQP-CHAN-001", "--defect", "tune-proposes-tiny-frames"),
            "the limit frame_max is claimed to be 131072, and connection.tune announces 1024",
        ),
    ],
)
def test_a_server_that_announces_otherwise_than_claimed_is_not_conformant(
    tmp_path: Path, drafts: dict[str, str], arguments: tuple[str, ...], sentence: str
) -> None:
    ended, result = claimed(tmp_path, drafts["amqp" if "amqp" in arguments else "nats"], *arguments)
    reasons = [reason for reason in result["summary"]["reasons"] if "claimed" in reason]
    assert reasons == ([sentence] if sentence else [])
    assert ended.code == (1 if sentence else 0), ended
    assert sentence in ended.out


@pytest.fixture(scope="module")
def without_jetstream() -> Iterator[str]:
    with NatsBroker.in_thread(jetstream=False) as url:
        yield url


def test_unsupported_distinguishes_what_is_not_claimed(tmp_path: Path, without_jetstream: str) -> None:
    claims = 'profiles = ["nats-core", "jetstream"]'
    selected = ("--select", "JS-KV-001", "--select", "JS-PULL-015", "--select", "CORE-004")
    ended, result = claimed(tmp_path, claims, without_jetstream, *selected)
    rows = {row["id"]: (row["verdict"], row["claim"]) for row in result["requirements"]}
    assert rows["JS-KV-001"] == ("unsupported", "not claimed")
    assert rows["JS-PULL-015"] == ("unsupported", "claimed")
    assert rows["CORE-004"] == ("passed", "claimed")
    assert ended.code == 1
    assert result["summary"]["reasons"] == [
        "the profile jetstream is claimed, and INFO does not announce jetstream"
    ]
    assert "claimed, could not be tested here" in ended.out
    assert "the claims file does not claim the profile 'kv'" in ended.out


def test_no_claims_file_is_read_unasked(tmp_path: Path, without_jetstream: str) -> None:
    (tmp_path / "plumbline.claims.toml").write_text("no claims at all")
    ended = verify(tmp_path, without_jetstream, "--select", "CORE-004")
    assert ended.code == 0, ended


def test_a_wrong_file_is_an_error_of_usage(tmp_path: Path) -> None:
    ended, _ = claimed(tmp_path, 'profils = ["nats-core"]', "--select", "CORE-004")
    assert ended.code == 2
    assert one_sentence(ended.err) == f"{NAME}: unknown key 'profils'; did you mean profiles?"


def test_a_draft_overwrites_no_claims(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('profiles = ["nats-core"]')
    ended = verify(tmp_path, "--select", "CORE-004", "--write-claims", NAME)
    assert ended.code == 2
    assert "already exists" in one_sentence(ended.err)


@pytest.mark.parametrize("option", ["--write-claims", "--write-waivers"])
def test_a_run_that_did_not_begin_leaves_no_empty_draft(tmp_path: Path, option: str) -> None:
    ended = verify(tmp_path, "--server", "none", option, NAME)
    assert ended.code == 2
    assert not (tmp_path / NAME).exists()
    (tmp_path / NAME).touch()
    verify(tmp_path, "--server", "none", option, NAME)
    assert (tmp_path / NAME).exists()  # it was there before


BROKER = f"{sys.executable} -m plumbline broker amqp -p {{port}} -d {{store}}"


def test_server_is_restarted_with_command_of_claims(tmp_path: Path) -> None:
    """A URL alone cannot be restarted; the command of the claims file can."""
    from plumbline.reference_broker.amqp.server import AmqpBroker

    claims = f'profiles = ["amqp-core", "durability"]\nrestart = "{BROKER}"'
    with AmqpBroker.in_thread() as url:
        ended, result = claimed(tmp_path, claims, url, "--select", "AMQP-DURABILITY-001")
    assert ended.code == 0, ended
    assert result["summary"]["tested"] == 1


def test_a_draft_of_a_real_nats_server_contradicts_nothing(
    tmp_path: Path, nats_server: NatsServer, server_binary: ServerBinary
) -> None:
    draft = drafted(tmp_path, nats_server.url, "--select", "CORE-004")
    binary = os.fspath(server_binary.path)
    restart = f"restart = '{binary} -a 127.0.0.1 -js -p {{port}} -sd {{store}}'\n"
    ended, result = claimed(
        tmp_path, restart + draft, nats_server.url, "--select", "CORE-004", "--select", "JS-STORE-009"
    )
    assert ended.code == 0, ended
    assert [row["contradiction"] for row in result["claims"]["rows"] if row["contradiction"]] == []
    ended, _ = claimed(
        tmp_path, draft.replace("max_payload = ", "max_payload = 1"), nats_server.url, "--select", "CORE-004"
    )
    assert ended.code == 1
    assert "the limit max_payload is claimed to be" in ended.out


def test_a_draft_of_rabbitmq_contradicts_nothing(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    draft = drafted(tmp_path, rabbitmq.url, "--select", "AMQP-CHAN-001")
    ended, _ = claimed(tmp_path, draft, rabbitmq.url, "--select", "AMQP-CHAN-001")
    assert ended.code == 0, ended
    wrong = draft.replace("publisher_confirms = true", "publisher_confirms = false")
    ended, _ = claimed(tmp_path, wrong, rabbitmq.url, "--select", "AMQP-CHAN-001")
    assert ended.code == 1
    assert "the option publisher_confirms is claimed to be absent" in ended.out
