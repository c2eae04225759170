"""The newest real server, beside which the drop-in is tested."""

from __future__ import annotations

import pytest

from plumbline.servers.nats.nats_server import MissingServer, ServerBinary
from tests.conftest import SERVERS, servers_required
from tests.reference_broker.drop_in.process import COMMAND


@pytest.fixture
def newest_server() -> ServerBinary:
    """Skips, or fails where real servers are required, if there is none."""
    server = SERVERS[-1]
    if isinstance(server, MissingServer):
        if servers_required():
            pytest.fail(str(server), pytrace=False)
        pytest.skip(str(server))
    return server


@pytest.fixture(params=["drop-in", pytest.param("real", marks=pytest.mark.external)])
def command(request: pytest.FixtureRequest) -> list[str]:
    """The drop-in, and the newest real server: both must do the same."""
    if request.param == "drop-in":
        return COMMAND
    binary = request.getfixturevalue("newest_server")
    assert isinstance(binary, ServerBinary)
    return [str(binary.path)]
