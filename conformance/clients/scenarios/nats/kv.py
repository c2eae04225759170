"""Key-value stores: ADR-8, "JetStream based Key-Value Stores"."""

from __future__ import annotations

from typing import Any

from plumbline.conformance.clients.nats.scene import NatsScene, expect_error, expect_success, payload_of
from plumbline.conformance.clients.protocol import AdapterAnswer
from plumbline.conformance.clients.scenario import scenario
from plumbline.monitors import Observation
from plumbline.wire.nats import HPub, Pub

BUCKET = "CONFIGURATION"
PREFIX = f"$KV.{BUCKET}."
KEY = "auth.username"
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
QUIET_S = 0.5


def bucket(scene: NatsScene, **values: str) -> None:
    """A bucket with these keys; then connect."""
    make_bucket(scene, **values)
    scene.connect()


def make_bucket(scene: NatsScene, **values: str) -> None:
    """A bucket with these keys."""
    config: dict[str, Any] = {
        "max_msgs_per_subject": 5,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
    }
    scene.stage.stream(f"KV_{BUCKET}", [f"{PREFIX}>"], **config)
    for key, value in values.items():
        scene.stage.publish(PREFIX + key, value.encode())


def run(scene: NatsScene, command: str, **fields: Any) -> AdapterAnswer:
    """A command for the key; its answer may be an error."""
    return scene.try_command(f"kv.{command}", within=5.0, bucket=BUCKET, **{"key": KEY, **fields})


def written(scene: NatsScene) -> list[Observation]:
    """What the client published to keys of the bucket."""
    return [seen for seen in scene.sent_operations(Pub, HPub) if payload_of(seen).subject.startswith(PREFIX)]


def last_written(scene: NatsScene) -> tuple[Observation, dict[str, str]]:
    """The last of them, and its headers. Raises ``Failed`` if there is none."""
    found = written(scene)
    if not found:
        scene.fail("nothing was written", expected=f"a publish to {PREFIX}{KEY}", actual="nothing")
    operation = found[-1].operation
    headers = operation.headers if isinstance(operation, HPub) else None
    return found[-1], dict(headers.fields) if headers is not None else {}


def expect_headers(scene: NatsScene, what: str, **expected: str) -> None:
    """Evidence: what was written last has these headers; ``_`` is written for ``-``."""
    seen, headers = last_written(scene)
    wanted = {name.replace("_", "-"): value for name, value in expected.items()}
    scene.require(
        {name: headers.get(name) for name in wanted} == wanted,
        f"{what} has other headers",
        expected=str(wanted),
        actual=headers or "no headers",
        at=seen,
    )


@scenario("CLIENT-KV-001", needs=["kv"])
def put_stores_the_value_and_returns_its_revision(scene: NatsScene) -> None:
    """The second value of a bucket: published to the subject of the key; the revision is its sequence."""
    bucket(scene, other="x")
    answer = run(scene, "put", data="value")
    expect_success(scene, "put", answer)
    operation = payload_of(last_written(scene)[0])
    revision = answer.ok.seq if answer.ok is not None else None
    scene.require(
        (operation.subject, operation.payload, revision) == (PREFIX + KEY, b"value", 2),
        "put stores something else, or returns another revision",
        expected=f"{PREFIX}{KEY}, value, revision 2",
        actual=f"{operation}, revision {revision}",
    )


@scenario("CLIENT-KV-002", needs=["kv"])
def delete_leaves_a_marker(scene: NatsScene) -> None:
    """An empty message with KV-Operation: DEL."""
    bucket(scene, **{KEY: "value"})
    expect_success(scene, "delete", run(scene, "delete"))
    expect_headers(scene, "a delete", KV_Operation="DEL")
    body = payload_of(last_written(scene)[0]).payload
    scene.require(not body, "a delete has a body", expected="no body", actual=body)


@scenario("CLIENT-KV-003", needs=["kv"])
def purge_rolls_up(scene: NatsScene) -> None:
    """KV-Operation: PURGE and Nats-Rollup: sub."""
    bucket(scene, **{KEY: "value"})
    expect_success(scene, "purge", run(scene, "purge"))
    expect_headers(scene, "a purge", KV_Operation="PURGE", Nats_Rollup="sub")


@scenario("CLIENT-KV-004", needs=["kv"])
def create_refuses_a_key_that_is_there(scene: NatsScene) -> None:
    """The value stays as it is, and the user gets an error."""
    bucket(scene, **{KEY: "value"})
    expect_error(scene, "create of a key that is there", run(scene, "create", data="other"))


@scenario("CLIENT-KV-005", needs=["kv"])
def create_writes_a_key_that_was_deleted(scene: NatsScene) -> None:
    """After a delete the key can be created: the expected sequence is that of the marker."""
    bucket(scene, **{KEY: "value"})
    scene.stage.publish(PREFIX + KEY, b"", [("KV-Operation", "DEL")])
    expect_success(scene, "create of a deleted key", run(scene, "create", data="other"))
    headers = last_written(scene)[1]
    scene.require(
        headers.get(EXPECTED) == "2",
        "another sequence is expected",
        expected="2",
        actual=headers.get(EXPECTED),
    )


@scenario("CLIENT-KV-006", needs=["kv"])
def update_names_the_revision(scene: NatsScene) -> None:
    """The header has the revision of the user."""
    bucket(scene, **{KEY: "value"})
    expect_success(scene, "update", run(scene, "update", data="other", revision=1))
    expect_headers(scene, "an update", Nats_Expected_Last_Subject_Sequence="1")


@scenario("CLIENT-KV-007", needs=["kv"])
def update_with_an_old_revision_is_an_error(scene: NatsScene) -> None:
    """Another value was written meanwhile: the broker refuses, and the user gets an error."""
    bucket(scene, **{KEY: "value"})
    scene.stage.publish(PREFIX + KEY, b"newer")
    expect_error(scene, "update with an old revision", run(scene, "update", data="other", revision=1))


@scenario("CLIENT-KV-008", needs=["kv"])
def get_of_a_deleted_key_is_an_error(scene: NatsScene) -> None:
    """The marker of a delete is no value."""
    bucket(scene, **{KEY: "value"})
    scene.stage.publish(PREFIX + KEY, b"", [("KV-Operation", "DEL")])
    expect_error(scene, "get of a deleted key", run(scene, "get"))


def watched(scene: NatsScene) -> list[str]:
    """What the watch has reported so far, in order: ``key=value``, ``key DEL``, or ``(all)``."""
    found = []
    for event in scene.events_named("message", "up-to-date"):
        if event.message is None:
            found.append("(all)")
            continue
        marker = event.message.headers.get("KV-Operation", [""])[0]
        found.append(event.message.subject + (f" {marker}" if marker else f"={event.message.data}"))
    return found


def expect_watched(scene: NatsScene, *expected: str) -> None:
    """Evidence: the watch reports exactly these."""
    scene.await_events(lambda: len(watched(scene)) >= len(expected))
    scene.await_events(lambda: len(watched(scene)) > len(expected), QUIET_S)
    scene.require(
        watched(scene) == list(expected),
        "the watch reports something else",
        expected=", ".join(expected),
        actual=", ".join(watched(scene)) or "nothing",
    )


@scenario("CLIENT-KV-009", needs=["kv.watch"])
def a_watch_tells_when_it_has_handed_over_what_was_there(scene: NatsScene) -> None:
    """The last value of each key, then the end of the initial data, once; then what is new."""
    bucket(scene, a="1", b="2")
    scene.run_command("kv.watch", within=5.0, bucket=BUCKET, subscription="w")
    scene.await_events(lambda: "(all)" in watched(scene))
    scene.stage.publish(f"{PREFIX}a", b"3")
    expect_watched(scene, "a=1", "b=2", "(all)", "a=3")


@scenario("CLIENT-KV-010", needs=["kv.watch"])
def a_watch_of_nothing_tells_so_at_once(scene: NatsScene) -> None:
    """An empty bucket: the end of the initial data is reported all the same."""
    bucket(scene)
    scene.run_command("kv.watch", within=5.0, bucket=BUCKET, subscription="w")
    expect_watched(scene, "(all)")


@scenario("CLIENT-KV-011", needs=["kv.watch"])
def a_watch_reports_deletes_as_such(scene: NatsScene) -> None:
    """A deleted key is an entry whose operation is DEL."""
    bucket(scene, a="1")
    scene.run_command("kv.watch", within=5.0, bucket=BUCKET, subscription="w")
    scene.await_events(lambda: "(all)" in watched(scene))
    scene.stage.publish(f"{PREFIX}a", b"", [("KV-Operation", "DEL")])
    expect_watched(scene, "a=1", "(all)", "a DEL")
