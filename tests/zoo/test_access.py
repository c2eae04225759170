"""Servers that one reaches by TLS or by a login are conformant; without it there is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.errors import ExitCode
from plumbline.servers.process import ServerError
from tests.conftest import servers_required
from tests.zoo.access import deployments, in_folder, started
from tests.zoo.running import Run, run_suite

DEPLOYMENTS = deployments()
# One of each kind; the others by ``python -m tests.zoo.access``.
OF_EACH_KIND = (
    *("nats-tls", "nats-client-certificate", "nats-nkey", "nats-creds", "nats-websocket"),
    *("rabbitmq-tls", "rabbitmq-external"),
)


@pytest.mark.external
@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_a_server_is_reached_and_conformant(name: str, tmp_path: Path) -> None:
    deployment = DEPLOYMENTS[name]
    try:
        with started(deployment, tmp_path) as (url, arguments):
            run = run_suite((url, *arguments), deployment.select, ["-n", "2"])
            if deployment.refused:
                without = in_folder(deployment.without, tmp_path)
                _is_refused(run_suite((url, *without)), deployment.refused)
    except ServerError as error:
        if servers_required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    assert run.red == ()
    assert run.is_green, run.output


def _is_refused(run: Run, sentence: str) -> None:
    assert run.exit_code == ExitCode.USAGE
    lines = run.output.splitlines()
    assert len(lines) == 1, run.output
    assert sentence in lines[0]
