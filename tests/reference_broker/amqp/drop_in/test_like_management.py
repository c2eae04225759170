"""The management API of the drop-in answers as that of RabbitMQ: statuses, refusals, fields and their types.

What the drop-in lacks, or has otherwise, is listed here with its reason.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plumbline.servers.amqp.rabbitmq import rabbitmq_server
from plumbline.servers.nats.nats_server import MissingServer
from tests.conftest import servers_required
from tests.reference_broker.amqp.drop_in.process import rabbit_drop_in
from tests.reference_broker.amqp.drop_in.real import ManagedRabbitMQ, ask

STEPS = [
    line
    for line in Path(__file__).with_name("management.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
READY_WITHIN_S = 60.0
pytestmark = [pytest.mark.slow, pytest.mark.external]

# Fields, as paths without their types, that only RabbitMQ has.
NOT_SERVED = {
    "rates and histories": r"_details|_stats\b|churn_rates|\.rates|sample_retention|_rate\b",
    "of the Erlang machine": r"garbage_collection|erlang_|metrics_gc|reductions|run_queue|fd_|sockets_|proc_"
    r"|mem_|disk_|io_|mnesia|msg_store|queue_index|gc_|processors|memory|message_bytes|messages_\w*ram",
    "of the user interface and plugins": r"auth_mechanisms|applications|config_files|db_dir"
    r"|log_files|contexts|ra_",
    "what a node has counted": r"^\[\]\.(channel|connection|queue)_(created|closed|deleted|declared)"
    r"|context_switches|^\[\]\.exchange_types",
    "listeners are named by address alone": r"listeners\[\]\.socket_opts",
    "who did it is not remembered": r"user_who_performed_action",
    "settings that the drop-in has not": r"disable_stats|enable_queue_totals|release_series|statistics_db"
    r"|net_ticktime|cluster_links|exchange_types\[\]\.description|global_parameters|being_drained",
    "of classic queues in Erlang": r"backing_queue|single_active|consumer_capacity|consumer_utilisation"
    r"|head_message|idle_since|exclusive_consumer|recoverable|slave|storage_version|messages_paged"
    r"|messages_persistent",
}
# RabbitMQ counts these some seconds later.
COUNTED_LATER = re.compile(r"\.messages(_ready|_unacknowledged)?: int")
# Requests that are answered otherwise.
OTHERWISE = {
    "GET /api/extensions": "there is no user interface",
    "GET /api/global-parameters": "a cluster has an id there",
    "GET /api/overview @u": "RabbitMQ shows less to a user who is no monitor",
    'PUT /api/permissions/%2F/u {"configure": "(", "write": "", "read": ""}': "its parser is another one",
    "POST /api/overview": "405 without a body",
    "DELETE /api/overview": "405 without a body",
}

Ask = Callable[[str, str, Any, str], tuple[int, Any]]


@pytest.fixture(scope="module")
def real() -> Iterator[Ask]:
    found = rabbitmq_server()
    if isinstance(found, MissingServer):
        if servers_required():
            pytest.fail(str(found), pytrace=False)
        pytest.skip(str(found))
    with ManagedRabbitMQ(found.path) as node:
        until(lambda: node.ask("GET", "/api/overview")[0] == 200)
        yield node.ask


def until(holds: Callable[[], bool]) -> None:
    """The plugin starts after the node, and makes statistics every few seconds."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("the management plugin is not ready")


def played(on: Ask) -> list[tuple[int, Any]]:
    """The answers to all steps but those that wait."""
    answers = []
    for step in STEPS:
        method, path, *more = step.split(" ", 2)
        if method == "~":
            field = more[0]
            until(lambda path=path, field=field: field in on("GET", path, None, "guest")[1])  # type: ignore[misc]
            continue
        found = re.fullmatch(r"(?:@(\w+))? ?(.*)", more[0] if more else "")
        assert found is not None
        body = json.loads(found[2]) if found[2] else None
        answers.append(on(method, path, body, found[1] or "guest"))
    return answers


def fields(content: Any, path: str = "") -> Iterator[str]:
    """Paths of all fields, and their types."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from fields(value, f"{path}.{'NODE' if '@' in name else name}")
    elif isinstance(content, list):
        for value in content:
            yield from fields(value, f"{path}[]")
    else:
        yield f"{path}: {type(content).__name__}"


def difference(step: str, theirs: tuple[int, Any], own: tuple[int, Any]) -> str:
    """What is not the same and not known, in a line."""
    if theirs[0] != own[0]:
        return f"{step}: status {theirs[0]}, not {own[0]}: {own[1]}"
    if theirs[0] >= 400 and theirs[0] != 503:
        return "" if theirs[1] == own[1] else f"{step}: {theirs[1]}, not {own[1]}"
    real, ours = set(fields(theirs[1])), set(fields(own[1]))
    lacking = [one for one in real - ours if not any(re.search(known, one) for known in NOT_SERVED.values())]
    more = [one for one in ours - real if not COUNTED_LATER.search(one)]
    return f"{step}: lacks {sorted(lacking)}, and has {sorted(more)}" if lacking or more else ""


def test_it_answers_as_rabbitmq(real: Ask, tmp_path: Path) -> None:
    with rabbit_drop_in(folder=tmp_path) as server:
        port = server.port_of("Management plugin")
        ours = played(lambda method, path, body, user: ask(port, method, path, body, user))
    steps = [step for step in STEPS if not step.startswith("~")]
    differences = {
        step: difference(step, theirs, own)
        for step, theirs, own in zip(steps, played(real), ours, strict=True)
    }
    assert not [step for step in OTHERWISE if not differences[step]], "they are alike now"
    unknown = [text for step, text in differences.items() if text and step not in OTHERWISE]
    assert not unknown, "\n".join(unknown)
