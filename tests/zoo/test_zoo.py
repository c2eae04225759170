"""The short form of ``make zoo``, on the riskiest deployments: what a deployment once turned red, and what
finds its planted defect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest

from plumbline.servers.process import ServerError
from plumbline.servers.targets import TargetError
from tests.conftest import servers_required
from tests.zoo.deployments import Deployment, deployments
from tests.zoo.planted import DEFECTS
from tests.zoo.running import Run, run_suite, started, started_with_defect

DEPLOYMENTS = deployments()
RISKY = [name for name, deployment in DEPLOYMENTS.items() if deployment.risky]


@pytest.mark.external
@pytest.mark.timeout(900)  # one of them is run whole
@pytest.mark.parametrize("name", RISKY)
def test_a_deployment_is_conformant(name: str) -> None:
    run = run_on(started, DEPLOYMENTS[name], DEPLOYMENTS[name].select)
    assert run.red == ()
    assert run.is_green, run.output


@pytest.mark.external
@pytest.mark.parametrize("name", RISKY)
def test_a_planted_defect_is_not_conformant(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    run = run_on(started_with_defect, deployment, [deployment.fails])
    assert run.convicts(deployment.fails), run.output


def test_eight_deployments_are_the_riskiest() -> None:
    assert len(RISKY) == 8


def test_every_defect_is_planted_somewhere() -> None:
    assert {deployment.planted for deployment in DEPLOYMENTS.values()} == set(DEFECTS)


def run_on(
    start: Callable[[Deployment], AbstractContextManager[tuple[str, ...]]],
    deployment: Deployment,
    select: Sequence[str],
) -> Run:
    try:
        with start(deployment) as arguments:
            return run_suite(arguments, select, ["-n", "2"] if select else [])
    except (ServerError, TargetError) as error:
        if servers_required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
