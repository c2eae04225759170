"""`verify --storage`, `--replicas` and `--queue-type` by the real command, on embedded and real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import NatsServer
from plumbline.servers.process import ServerError
from tests.cli.command import Ended, one_sentence, verify
from tests.conftest import servers_required
from tests.zoo.deployments import deployments
from tests.zoo.running import started

pytestmark = pytest.mark.slow  # make test-all runs it


def run(folder: Path, *arguments: str) -> tuple[Ended, Any]:
    report = folder / "result.json"
    ended = verify(folder, *arguments, "--json", report)
    return ended, json.loads(report.read_text()) if report.exists() else None


def outcomes(result: Any) -> set[str]:
    return {check["outcome"] for check in result["checks"]}


@pytest.mark.parametrize(
    ("arguments", "dimension"),
    [
        (("--storage", "file", "--select", "JS-PULL-015"), {"storage": "file"}),
        (("amqp", "--queue-type", "classic", "--select", "AMQP-GET-00*"), {"queue-type": "classic"}),
    ],
)
def test_reports_name_the_dimension(
    tmp_path: Path, arguments: tuple[str, ...], dimension: dict[str, str]
) -> None:
    ended, result = run(tmp_path, *arguments)
    assert ended.code == 0, ended
    assert outcomes(result) == {"passed"}
    assert result["target"]["dimensions"] == dimension
    ((name, value),) = dimension.items()
    assert f"dimensions  {name} {value}" in ended.out
    assert f"--{name}={value}" in result["target"]["arguments"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--storage", "file", "--select", "JS-PULL-022", "--defect", "pull-inbox-is-used-up-by-404"),
        (
            *("amqp", "--queue-type", "classic"),
            *("--select", "AMQP-ACK-00*", "--defect", "ack-multiple-settles-one"),
        ),
    ],
)
def test_a_broken_broker_is_not_conformant_in_a_dimension(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended, result = run(tmp_path, *arguments)
    assert ended.code == 1, ended
    assert "failed" in outcomes(result)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--replicas", "3"), "is not part of a cluster"),
        (("--storage", "disk"), "--storage disk: write one of file, memory"),
        (("amqp", "--storage", "file"), "--storage is for NATS"),
    ],
)
def test_a_dimension_that_the_target_cannot_have_is_an_error_of_usage(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    ended, _ = run(tmp_path, *arguments, "--select", "CORE-004" if "amqp" not in arguments else "AMQP-GET-*")
    assert ended.code == 2, ended
    assert sentence in one_sentence(ended.err)


def test_a_broker_without_quorum_queues_supports_no_check_that_declares_one(tmp_path: Path) -> None:
    ended, result = run(tmp_path, "amqp", "--queue-type", "quorum", "--select", "AMQP-GET-00*")
    assert ended.code == 0, ended
    reasons = [check["message"] for check in result["checks"] if check["outcome"] == "unsupported"]
    refused = "with --queue-type quorum: the target refuses such queues: PRECONDITION_FAILED"
    assert any(reason.startswith(refused) for reason in reasons)
    assert "untestable" not in outcomes(result)


QUORUM_DIFFERS = ("AMQP-REQUEUE-00*", "AMQP-CONFIRM-01*", "AMQP-CONSUME-016", "AMQP-TOPO-02*", "AMQP-QOS-01*")


def test_rabbitmq_is_conformant_with_quorum_queues(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    selected = [f"--select={pattern}" for pattern in QUORUM_DIFFERS]
    ended, result = run(tmp_path, rabbitmq.url, "--queue-type", "quorum", *selected)
    assert ended.code == 0, ended
    assert outcomes(result) == {"passed", "unsupported"}
    reasons = {check["message"] for check in result["checks"] if check["outcome"] == "unsupported"}
    assert all(reason.startswith(("with --queue-type quorum: ", "AMQP-")) for reason in reasons)


STORED = ("--select=JS-API-05*", "--select=JS-PUB-02*", "--select=JS-RET-00*", "--select=JS-KV-00*")


def test_nats_server_is_conformant_with_files(tmp_path: Path, nats_server: NatsServer) -> None:
    ended, result = run(tmp_path, nats_server.url, "--storage", "file", *STORED)
    assert ended.code == 0, ended
    assert "failed" not in outcomes(result)


@pytest.mark.external
def test_a_cluster_is_conformant_with_three_replicas(tmp_path: Path) -> None:
    try:
        with started(deployments()["cluster"]) as (url,):
            ended, result = run(tmp_path, url, "--replicas", "3", "-n", "2", *STORED)
    except ServerError as error:
        if servers_required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    assert ended.code == 0, ended
    assert result["target"]["dimensions"] == {"replicas": "3"}
