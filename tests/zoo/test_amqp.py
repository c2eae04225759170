"""The checks that an AMQP deployment once turned red are conformant on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plumbline.servers.process import ServerError
from tests.conftest import servers_required
from tests.zoo.amqp import deployments, started

DEPLOYMENTS = deployments()
GREEN = ("passed", "unsupported")
RUN_WITHIN_S = 600.0


@pytest.mark.external
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_is_conformant(name: str, tmp_path: Path) -> None:
    deployment = DEPLOYMENTS[name]
    result = tmp_path / "result.json"
    try:
        with started(deployment) as arguments:
            command = [sys.executable, "-m", "plumbline", "verify", *arguments, "--json", str(result)]
            command += [f"--select={pattern}" for pattern in deployment.select]
            run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_WITHIN_S, check=False)
    except ServerError as error:
        if servers_required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    checks = json.loads(result.read_bytes())["checks"] if result.exists() else []
    red = [
        f"{check['id']}: {check['outcome']}: {check.get('message', '')}"
        for check in checks
        if check["outcome"] not in GREEN and check["level"] != "MAY"  # which a correct broker may fail
    ]
    assert red == []
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert any(check["outcome"] == "passed" for check in checks)
