"""The checks that a deployment once turned red are conformant on it: the short form of ``make zoo``."""

from __future__ import annotations

import pytest

from plumbline.servers.process import ServerError
from tests.conftest import servers_required
from tests.zoo.running import deployments, run_suite, started

DEPLOYMENTS = deployments()


@pytest.mark.external
@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_is_conformant(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    try:
        with started(deployment) as url:
            run = run_suite(url, deployment.select, ["-n", "2"])
    except ServerError as error:
        if servers_required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    assert run.red == ()
    assert run.is_green, run.output
