"""The account's limits and counters. docs.nats.io, "JetStream wire API Reference".

Others use the account as well: counters are only compared with what this check has done itself.
"""

from __future__ import annotations

import json
from functools import partial

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import field, fits
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats.jetstream import ApiError

SOURCE = 'docs.nats.io, "JetStream wire API Reference"'
STORAGES = {"memory": "max_memory", "file": "max_storage"}
COUNTS = ("max_streams", "max_consumers")


@verifies("JS-API-003", source=SOURCE)
def test_a_limit_that_is_not_set_is_minus_one(session: NatsSession) -> None:
    """Each limit is -1, or a number above 0; or 0 for a storage in which no stream is accepted."""
    info = session.stage.answer("INFO")
    for name in COUNTS:
        fits(session, info, f"limits.{name}", _is_limit, f"limits.{name}: -1, or a number above 0")
    for storage, limit in STORAGES.items():
        if field(info, f"limits.{limit}") == 0:
            _require_no_room(session, storage, limit)
        else:
            fits(session, info, f"limits.{limit}", _is_limit, f"limits.{limit}: -1, or a number from 0 on")


@verifies("JS-API-004", source=SOURCE)
def test_requests_and_errors_are_counted(session: NatsSession) -> None:
    """Each request raises api.total, and each that fails raises api.errors."""
    before = session.stage.answer("INFO")
    session.stage.answer("STREAM.INFO", session.name("NOPE"))
    after = session.stage.answer("INFO")
    for name, more in (("total", 2), ("errors", 1)):
        fits(session, before, f"api.{name}", _is_count, f"api.{name}: a number")
        least = field(before, f"api.{name}") + more
        fits(session, after, f"api.{name}", partial(_is_count, least=least), f"api.{name}: at least {least}")


def _is_count(found: object, least: int = 0) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and found >= least


def _require_no_room(session: NatsSession, storage: str, limit: str) -> None:
    stream = session.name(storage)
    body = {"name": stream, "subjects": [stream], "storage": storage, "max_bytes": 1024}
    answer = session.stage.answer("STREAM.CREATE", stream, body=body)
    session.require(
        ApiError.of(answer) is not None,
        f"the account shows {limit} 0, and a stream there is accepted",
        expected=f"limits.{limit}: -1, or streams in {storage} refused",
        actual=json.dumps(answer),
    )


def _is_limit(found: object) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and (found == -1 or found > 0)
