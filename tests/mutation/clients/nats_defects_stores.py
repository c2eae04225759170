"""Faults of ordered consumers and key-value stores: CLIENT-ORDERED, CLIENT-KV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.wire.nats.jetstream import AckSubject
from tests.mutation.clients.defect import defect, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import Came, LibraryError
from tests.mutation.clients.nats_kv import KeyValue, Watch
from tests.mutation.clients.nats_ordered import Ordered


def _replacing(part: type, name: str, value: object) -> Callable[[Adapter], None]:
    return lambda adapter: replace(part, name, value)


def _nothing(*_: object) -> None:
    pass


def _configured(**other: object) -> Callable[[Adapter], None]:
    whole = Ordered.config
    return _replacing(Ordered, "config", lambda part, inbox: {**whole(part, inbox), **other})


defect(
    "orders-with-acks", breaks="CLIENT-ORDERED-001", summary="an ordered consumer has ack_policy explicit"
)(_configured(ack_policy="explicit"))
defect("orders-without-flow-control", breaks="CLIENT-ORDERED-002", summary="flow_control is off")(
    _configured(flow_control=False)
)
defect("misses-no-heartbeat", breaks="CLIENT-ORDERED-005", summary="a silent ordered consumer is kept")(
    _replacing(Ordered, "missed", _nothing)
)
defect("orders-answer-no-flow-control", breaks="CLIENT-ORDERED-006", summary="flow control is not answered")(
    _replacing(Ordered, "answer_flow_control", _nothing)
)
defect("empty-watch-has-no-end", breaks="CLIENT-KV-010", summary="a watch of no data has no end of it")(
    _replacing(Watch, "created", _nothing)
)
defect("deletes-look-like-values", breaks="CLIENT-KV-011", summary="a watch reports a delete as a value")(
    lambda adapter: _without_operation()
)


def _without_operation() -> None:
    whole = Watch.entry
    replace(Watch, "entry", lambda part, entry: {**whole(part, entry), "headers": {}})


@defect(
    "hands-over-behind-a-gap", breaks="CLIENT-ORDERED-003", summary="what came behind a gap is handed over"
)
def _(_: Adapter) -> None:
    def gap(part: Ordered, operation: Came) -> None:
        part.hand(operation)
        part.create()

    replace(Ordered, "gap", gap)


@defect(
    "begins-again-after-a-gap", breaks="CLIENT-ORDERED-004", summary="the new consumer delivers everything"
)
def _(_: Adapter) -> None:
    def gap(part: Ordered, operation: Came) -> None:
        last, hand = part.stream_seq, part.hand

        def if_new(message: Came) -> None:
            if AckSubject.parse(message.reply or "").stream_seq > last:
                hand(message)

        part.hand, part.stream_seq = if_new, 0
        part.create()

    replace(Ordered, "gap", gap)


@defect("puts-return-another-revision", breaks="CLIENT-KV-001", summary="put returns the revision before")
def _(_: Adapter) -> None:
    whole = KeyValue.put
    replace(KeyValue, "put", lambda part, *arguments: whole(part, *arguments) - 1)


@defect("deletes-without-a-header", breaks="CLIENT-KV-002", summary="a delete is an empty value")
def _(_: Adapter) -> None:
    replace(KeyValue, "DELETED", {})


@defect("purges-without-rollup", breaks="CLIENT-KV-003", summary="a purge has no Nats-Rollup")
def _(_: Adapter) -> None:
    replace(KeyValue, "PURGED", {"KV-Operation": "PURGE"})


@defect("creates-over-values", breaks="CLIENT-KV-004", summary="create takes any last message for a delete")
def _(_: Adapter) -> None:
    def create(part: KeyValue, bucket: str, key: str, data: bytes) -> int:
        try:
            return part.update(bucket, key, data, 0)
        except LibraryError:
            return part.update(bucket, key, data, part.last(bucket, key)["seq"])

    replace(KeyValue, "create", create)


@defect("creates-nothing-twice", breaks="CLIENT-KV-005", summary="a deleted key cannot be created")
def _(_: Adapter) -> None:
    replace(KeyValue, "create", lambda part, bucket, key, data: part.update(bucket, key, data, 0))


@defect("compares-revisions-itself", breaks="CLIENT-KV-006", summary="the broker hears of no revision")
def _(_: Adapter) -> None:
    whole = KeyValue.update

    def update(part: KeyValue, bucket: str, key: str, data: bytes, revision: int) -> int:
        if not revision or KeyValue.is_deleted(part, part.last(bucket, key)):
            return whole(part, bucket, key, data, revision)
        if part.last(bucket, key)["seq"] != revision:
            raise LibraryError("wrong last sequence")
        return part.put(bucket, key, data)

    replace(KeyValue, "update", update)


@defect("updates-always-succeed", breaks="CLIENT-KV-007", summary="the refusal of an update is not reported")
def _(_: Adapter) -> None:
    whole = KeyValue.update

    def update(part: KeyValue, bucket: str, key: str, data: bytes, revision: int) -> int:
        try:
            return whole(part, bucket, key, data, revision)
        except LibraryError:
            if not revision:
                raise
            return revision

    replace(KeyValue, "update", update)


@defect("gets-what-was-deleted", breaks="CLIENT-KV-008", summary="get hands the marker of a delete over")
def _(_: Adapter) -> None:
    def get(part: KeyValue, bucket: str, key: str) -> dict[str, Any]:
        return part.value(part.last(bucket, key), key)

    replace(KeyValue, "get", get)


@defect(
    "ends-the-initial-data-early", breaks="CLIENT-KV-009", summary="the first entry ends the initial data"
)
def _(_: Adapter) -> None:
    def report(part: Watch, operation: Came) -> None:
        whole(part, operation)
        part.complete()

    whole = Watch.report
    replace(Watch, "report", report)
