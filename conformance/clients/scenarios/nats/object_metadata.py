"""Object stores, what is changed, linked and watched: ADR-20, "JetStream based Object Stores"."""

from __future__ import annotations

import json
from typing import Any

from plumbline.conformance.clients.nats.scene import NatsScene, expect_error, expect_success, payload_of
from plumbline.conformance.clients.protocol import AdapterAnswer
from plumbline.conformance.clients.scenario import scenario
from plumbline.conformance.clients.scenarios.nats.objects import (
    BUCKET,
    NUID,
    OBJECT,
    bucket,
    digest_of,
    expect_fields,
    metadata,
    metadata_of,
    purges,
    run,
    store,
    store_deleted,
    written,
)
from plumbline.wire.nats.jetstream import api_subject

DATA = b"one object"
OTHER = "other"
QUIET_S = 0.5


def objects(scene: NatsScene) -> None:
    """A bucket with two objects; then connect."""
    bucket(scene)
    store(scene, DATA)
    store(scene, b"other bytes", name=OTHER, nuid="SECOND")
    scene.connect()


def link(scene: NatsScene, name: str, target: str = OBJECT) -> AdapterAnswer:
    """A link with that name."""
    return run(scene, "link", name=name, target=target)


@scenario("CLIENT-OBJ-014", needs=["obj.link"])
def a_link_names_its_object(scene: NatsScene) -> None:
    """options.link has the bucket and the name."""
    objects(scene)
    expect_success(scene, "a link", link(scene, "shortcut"))
    seen, info = metadata(scene, "shortcut")
    found = (info.get("options") or {}).get("link")
    scene.require(
        found == {"bucket": BUCKET, "name": OBJECT},
        "a link leads to something else",
        expected=f"bucket {BUCKET}, name {OBJECT}",
        actual=found,
        at=seen,
    )


@scenario("CLIENT-OBJ-015", needs=["obj.link"])
def a_link_to_a_link_is_an_error(scene: NatsScene) -> None:
    """The object that is linked is a link itself."""
    bucket(scene)
    store(scene, DATA)
    store(scene, name="shortcut", digest="", options={"link": {"bucket": BUCKET, "name": OBJECT}})
    scene.connect()
    expect_error(scene, "a link to a link", link(scene, "another", target="shortcut"))


@scenario("CLIENT-OBJ-016", needs=["obj.link"])
def a_link_over_an_object_is_an_error(scene: NatsScene) -> None:
    """There is an object of that name."""
    objects(scene)
    expect_error(scene, "a link over an object", link(scene, OTHER))


@scenario("CLIENT-OBJ-017", needs=["obj.link"])
def a_link_may_follow_a_deleted_object(scene: NatsScene) -> None:
    """The object of that name was deleted."""
    bucket(scene)
    store(scene, DATA)
    store_deleted(scene, OTHER)
    scene.connect()
    expect_success(scene, "a link with the name of a deleted object", link(scene, OTHER))


def update(scene: NatsScene, name: str = OBJECT, description: str = "a description") -> AdapterAnswer:
    """New metadata for the object."""
    return run(scene, "update", new_name=name, description=description)


@scenario("CLIENT-OBJ-018", needs=["obj.update"])
def an_update_keeps_the_object(scene: NatsScene) -> None:
    """The new description, and the rest as it was."""
    objects(scene)
    expect_success(scene, "an update", update(scene))
    expect_fields(
        scene,
        "an updated object",
        name=OBJECT,
        description="a description",
        nuid=NUID,
        size=len(DATA),
        chunks=1,
        digest=digest_of(DATA),
    )


@scenario("CLIENT-OBJ-019", needs=["obj.update"])
def an_update_renames_the_object(scene: NatsScene) -> None:
    """The metadata moves to the subject of the new name."""
    objects(scene)
    expect_success(scene, "an update of the name", update(scene, "renamed"))
    expect_fields(scene, "a renamed object", "renamed", name="renamed", nuid=NUID, size=len(DATA))
    asked = purges(scene)
    scene.require(
        metadata_of() in asked,
        "the metadata of the old name stays",
        expected=f"a purge of {metadata_of()}",
        actual=asked,
    )


@scenario("CLIENT-OBJ-020", needs=["obj.update"])
def an_update_takes_no_name_of_another_object(scene: NatsScene) -> None:
    """There is an object of the new name."""
    objects(scene)
    expect_error(scene, "an update with the name of another object", update(scene, OTHER))


@scenario("CLIENT-OBJ-021", needs=["obj.update"])
def an_update_of_a_deleted_object_is_an_error(scene: NatsScene) -> None:
    """Its metadata has deleted true."""
    bucket(scene)
    store_deleted(scene)
    scene.connect()
    expect_error(scene, "an update of a deleted object", update(scene))


def watched(scene: NatsScene) -> list[str]:
    """The names that the watch has reported so far, in order, and ``(all)``."""
    return [
        event.message.subject if event.message is not None else "(all)"
        for event in scene.events_named("message", "up-to-date")
    ]


@scenario("CLIENT-OBJ-022", needs=["obj.watch"])
def a_watch_reports_each_object_and_what_is_new(scene: NatsScene) -> None:
    """Two objects, the end of the initial data, and a third."""
    objects(scene)
    scene.run_command("obj.watch", within=5.0, bucket=BUCKET, subscription="w")
    scene.await_events(lambda: "(all)" in watched(scene))
    store(scene, b"third", name="third", nuid="THIRD")
    expected = [OBJECT, OTHER, "(all)", "third"]
    scene.await_events(lambda: len(watched(scene)) >= len(expected))
    scene.await_events(lambda: len(watched(scene)) > len(expected), QUIET_S)
    scene.require(
        watched(scene) == expected,
        "the watch reports something else",
        expected=", ".join(expected),
        actual=", ".join(watched(scene)),
    )


@scenario("CLIENT-OBJ-023", needs=["obj.list"])
def a_list_has_no_deleted_object(scene: NatsScene) -> None:
    """One object is there, the other one was deleted."""
    bucket(scene)
    store(scene, DATA)
    store_deleted(scene, OTHER)
    scene.connect()
    answer = run(scene, "list")
    expect_success(scene, "a list", answer)
    names = [message.subject for message in answer.ok.messages] if answer.ok is not None else []
    scene.require(names == [OBJECT], "the list has other objects", expected=OBJECT, actual=names)


@scenario("CLIENT-OBJ-024", needs=["obj.seal"])
def seal_updates_the_stream(scene: NatsScene) -> None:
    """STREAM.UPDATE with sealed true."""
    objects(scene)
    expect_success(scene, "seal", run(scene, "seal"))
    asked = written(scene, api_subject("STREAM.UPDATE", f"OBJ_{BUCKET}"))
    configs: list[dict[str, Any]] = [json.loads(payload_of(seen).payload) for seen in asked]
    sealed = scene.stage.stream_info(f"OBJ_{BUCKET}")["config"].get("sealed")
    scene.require(
        sealed is True, "the stream is not sealed", expected="STREAM.UPDATE with sealed true", actual=configs
    )
