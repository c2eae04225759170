"""The whole suite, as a user runs it: against the reference broker and the real servers of this machine."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from plumbline.conformance.suite import all_checks
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.nats.nats_server import ServerBinary
from tests.cli.command import Ended, verify
from tests.conformance.known import known_of
from tests.conformance.streams import THEIRS, make_streams, state_of


def _whole(folder: Path, *arguments: str | Path, failing: Collection[str] = ()) -> dict[str, Any]:
    """A run of everything, which must be conformant but for the requirements ``failing``; its JSON result."""
    ended: Ended = verify(folder, *arguments, "--json", "r.json")
    result: dict[str, Any] = json.loads((folder / "r.json").read_text())
    assert {row["id"] for row in result["requirements"] if row["verdict"] == "failed"} == set(failing), (
        ended.out
    )
    assert (ended.code, ended.err) == (result["summary"]["exit_code"] if failing else 0, "")
    assert len(result["checks"]) == len(all_checks("nats"))
    return result


def test_the_embedded_reference_broker_passes_every_check(tmp_path: Path) -> None:
    result = _whole(tmp_path)
    unsupported = [check["id"] for check in result["checks"] if check["outcome"] == "unsupported"]
    # It has no TLS.
    assert unsupported == ["core_connect::connect_in_the_clear_is_refused_where_tls_is_required"]


def test_a_real_server_in_every_configuration_fails_what_is_known_alone(
    tmp_path: Path, server_binary: ServerBinary
) -> None:
    known = known_of(server_binary.version)
    result = _whole(tmp_path, "--server", server_binary.path, failing=known)
    assert result["target"]["version"] == server_binary.version
    reasons = {check["message"] for check in result["checks"] if check["outcome"] == "unsupported"}
    assert not any("this run has no server with the configuration" in reason for reason in reasons)


@pytest.mark.slow
def test_a_run_touches_nothing_of_others_on_a_reference_broker(tmp_path: Path) -> None:
    """As ``tests/zoo/test_neighbours.py`` shows it for real servers."""
    with NatsBroker.in_thread(jetstream=True) as url:
        make_streams(url)
        before = state_of(url)
        assert len(before) == 2 * len(THEIRS)
        assert all(before[f"{name}/durable"]["num_ack_pending"] == 1 for name in THEIRS)
        _whole(tmp_path, url)
        assert state_of(url) == before
