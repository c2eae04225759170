"""The ten tests of NATS' compatibility programme: the commands, what its tester looks at, and the wire.

The tester itself is not public. The commands are those that the responders of nats.go, async-nats, nats.py,
nats-pure.rb and nats.deno read, and the answers those that they give. The suite ``kv`` is Plumbline's: NATS
has planned it and not written it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from plumbline.conformance.clients.compat.responder import ResponderScene, VendorFailedError
from plumbline.conformance.clients.nats.scene import payload_of
from plumbline.conformance.clients.scenarios.nats import kv, objects, services
from plumbline.conformance.sessions.polling import POLL_INTERVAL_S
from plumbline.wire.nats import HPub, Sub

BUCKET, OBJECT, NEW_NAME, LINK = "test", "nats-server.zip", "new-thing.zip", "link"
DATA = b"an archive " * 40_000  # some chunks
SECOND = b"another archive"
WATCHES_WITHIN_S = 10.0
STREAMS = (f"OBJ_{BUCKET}", f"KV_{kv.BUCKET}")  # of the tests: deleted after each of them
Play = Callable[[ResponderScene], None]


class CompatTest(Struct, frozen=True):
    """One test. ``play`` raises ``VendorFailedError``, and enters what the wire shows in the scene."""

    suite: str
    name: str
    play: Play

    @property
    def id(self) -> str:
        return f"{self.suite}.{self.name}"


TESTS: list[CompatTest] = []  # in the order of the programme: the responder of nats.js knows them by it alone


def _test(suite: str, name: str) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        TESTS.append(CompatTest(suite, name, play))
        return play

    return register


def _bucket(scene: ResponderScene, *, with_object: bool = True) -> None:
    objects.bucket(scene, BUCKET)
    if with_object:
        _store(scene, DATA)


def _store(scene: ResponderScene, data: bytes, nuid: str = objects.NUID, **other: Any) -> None:
    chunks = [
        data[start : start + objects.DEFAULT_CHUNK] for start in range(0, len(data), objects.DEFAULT_CHUNK)
    ]
    objects.store(scene, *chunks, **{"name": OBJECT, "bucket": BUCKET, "nuid": nuid, **other})


def _config(scene: ResponderScene) -> dict[str, Any]:
    config: dict[str, Any] = scene.stage.stream_info(f"OBJ_{BUCKET}")["config"]
    return config


def _stored(scene: ResponderScene, name: str) -> dict[str, Any]:
    """The last metadata on the wire, as the tester finds it in the stream; empty if there is none."""
    found = scene.published_to(objects.metadata_of(name, BUCKET))
    return json.loads(payload_of(found[-1]).payload) if found else {}


def _judge_bucket(scene: ResponderScene) -> None:
    config = _config(scene)
    with scene.judging("CLIENT-OBJ-025"):
        found = [sorted(config["subjects"]), config["discard"], config["allow_rollup_hdrs"]]
        expected = [[f"$O.{BUCKET}.C.>", f"$O.{BUCKET}.M.>"], "new", True]
        scene.require(
            found == expected, "a bucket is another stream", expected=str(expected), actual=str(found)
        )


@_test("object-store", "default-bucket")
def _default_bucket(scene: ResponderScene) -> None:
    scene.compare("the answer", b"", scene.send("create default bucket", config={"bucket": BUCKET}))
    config = _config(scene)
    wanted = {"max_age": 0, "max_bytes": -1, "storage": "file", "num_replicas": 1}
    _judge_bucket(scene)
    scene.compare("the stream", wanted, {name: config.get(name) for name in wanted})


@_test("object-store", "custom-bucket")
def _custom_bucket(scene: ResponderScene) -> None:
    wanted = {
        "description": "test bucket",
        "max_age": 1_800_000_000_000,
        "max_bytes": 11_534_336,
        "storage": "memory",
        "num_replicas": 1,
    }
    answer = scene.send("create custom bucket", config={"bucket": BUCKET, "compression": False, **wanted})
    scene.compare("the answer", b"", answer)
    config = _config(scene)
    _judge_bucket(scene)
    scene.compare("the stream", wanted, {name: config.get(name) for name in wanted})


@_test("object-store", "put-object")
def _put_object(scene: ResponderScene) -> None:
    _bucket(scene, with_object=False)
    config = {"name": OBJECT, "description": "this is a test"}
    scene.send("put object", url=scene.files, bucket=BUCKET, config=config)
    info = _stored(scene, OBJECT)
    chunks = [payload_of(seen).payload for seen in objects.written(scene, f"$O.{BUCKET}.C.>")]
    with scene.judging("CLIENT-OBJ-001"):
        found = scene.published_to(objects.metadata_of(OBJECT, BUCKET))
        headers = found[-1].operation.headers if found and isinstance(found[-1].operation, HPub) else None
        rollup = headers.get("Nats-Rollup") if headers is not None else None
        scene.require(
            b"".join(chunks) == DATA and rollup == "sub",
            "the object is stored in another way",
            expected=f"{len(DATA)} bytes, and metadata with Nats-Rollup: sub",
            actual=f"{sum(map(len, chunks))} bytes, Nats-Rollup: {rollup}",
        )
    with scene.judging("CLIENT-OBJ-003"):
        sizes = [len(chunk) for chunk in chunks[:-1]]
        scene.require(
            all(size == objects.DEFAULT_CHUNK for size in sizes),
            "chunks have another size",
            expected=str(objects.DEFAULT_CHUNK),
            actual=sizes,
        )
    with scene.judging("CLIENT-OBJ-004"):
        wanted = {"bucket": BUCKET, "size": len(DATA), "chunks": len(chunks)}
        actual = {name: info.get(name) for name in wanted}
        scene.require(actual == wanted, "other metadata", expected=str(wanted), actual=actual)
    with scene.judging("CLIENT-OBJ-005"):
        scene.require("mtime" not in info, "mtime is stored", expected="no mtime", actual=info.get("mtime"))
    scene.compare("the digest", objects.digest_of(DATA), info.get("digest"))
    scene.compare("the description", config["description"], info.get("description"))


@_test("object-store", "get-object")
def _get_object(scene: ResponderScene) -> None:
    _bucket(scene)
    answer = scene.send("get object", bucket=BUCKET, object=OBJECT)
    with scene.judging("CLIENT-OBJ-007"):
        _require_digest(scene, answer)
    scene.compare("the digest", hashlib.sha256(DATA).hexdigest(), answer.hex())


def _require_digest(scene: ResponderScene, answer: bytes) -> None:
    expected = hashlib.sha256(DATA).hexdigest()
    scene.require(
        answer.hex() == expected, "other bytes were handed over", expected=expected, actual=answer.hex()
    )


@_test("object-store", "update-metadata")
def _update_metadata(scene: ResponderScene) -> None:
    _bucket(scene)
    config = {"name": NEW_NAME, "description": "updated desc", "metadata": {}}
    scene.send("update metadata", bucket=BUCKET, object=OBJECT, config=config)
    info = _stored(scene, NEW_NAME)
    with scene.judging("CLIENT-OBJ-018"):
        wanted = {"nuid": objects.NUID, "size": len(DATA), "digest": objects.digest_of(DATA)}
        actual = {name: info.get(name) for name in wanted}
        scene.require(actual == wanted, "other metadata", expected=str(wanted), actual=actual)
    with scene.judging("CLIENT-OBJ-019"):
        found = [
            json.loads(payload_of(seen).payload or b"{}").get("filter")
            for seen in scene.published_to(f"$JS.API.STREAM.PURGE.OBJ_{BUCKET}")
        ]
        old = objects.metadata_of(OBJECT, BUCKET)
        scene.require(old in found, "the old name stays", expected=f"a purge of {old}", actual=found)
    scene.compare("the name", NEW_NAME, info.get("name"))
    wanted_text = ("updated desc", "a new thing")  # nats-pure.rb has its own
    if info.get("description") not in wanted_text:
        scene.compare("the description", wanted_text[0], info.get("description"))


def _put_during_watch(scene: ResponderScene) -> None:
    """Once the responder watches, put the second object."""
    _await_watch(scene, f"OBJ_{BUCKET}")
    _store(scene, SECOND, nuid="SECOND")


def _await_watch(scene: ResponderScene, stream: str) -> None:
    """Returns once a consumer is heard and has delivered all that is stored: the next put may replace it."""
    deadline = time.monotonic() + WATCHES_WITHIN_S
    while not any(
        (one.get("push_bound") or one["num_waiting"]) and not one["num_pending"]
        for one in scene.stage.api("CONSUMER.LIST", stream, body={"offset": 0})["consumers"]
    ):
        if scene.responder.exit_code is not None:
            raise VendorFailedError(f"the program ended with exit code {scene.responder.exit_code}")
        if time.monotonic() > deadline:
            raise VendorFailedError(f"nothing watches the stream within {WATCHES_WITHIN_S:g} s")
        scene.direct_session.pause(POLL_INTERVAL_S)


@_test("object-store", "watch-updates")
def _watch_updates(scene: ResponderScene) -> None:
    _bucket(scene)
    answer = scene.send("watch updates", lambda: _put_during_watch(scene), bucket=BUCKET, object=OBJECT)
    scene.compare("the digest", objects.digest_of(SECOND), answer.decode())


@_test("object-store", "watch")
def _watch(scene: ResponderScene) -> None:
    _bucket(scene)
    answer = scene.send("watch", lambda: _put_during_watch(scene), bucket=BUCKET, object=OBJECT)
    expected = f"{objects.digest_of(DATA)},{objects.digest_of(SECOND)}"
    with scene.judging("CLIENT-OBJ-022"):
        scene.require(
            answer.decode() == expected, "the watch reports other objects", expected=expected, actual=answer
        )
    scene.compare("the digests", expected, answer.decode())


@_test("object-store", "get-link")
def _get_link(scene: ResponderScene) -> None:
    _bucket(scene)
    options = {"link": {"bucket": BUCKET, "name": OBJECT}}
    objects.store(scene, name=LINK, bucket=BUCKET, nuid="LINK", digest="", options=options)
    answer = scene.send("get link", bucket=BUCKET, object=LINK)
    with scene.judging("CLIENT-OBJ-013"):
        _require_digest(scene, answer)
    scene.compare("the digest", hashlib.sha256(DATA).hexdigest(), answer.hex())


@_test("object-store", "put-link")
def _put_link(scene: ResponderScene) -> None:
    _bucket(scene)
    scene.send("put link", bucket=BUCKET, object=OBJECT, link_name=LINK)
    found = (_stored(scene, LINK).get("options") or {}).get("link")
    expected = {"bucket": BUCKET, "name": OBJECT}
    with scene.judging("CLIENT-OBJ-014"):
        scene.require(
            found == expected, "the link leads to something else", expected=str(expected), actual=found
        )
    scene.compare("the link", expected, found)


SERVICE: dict[str, Any] = {
    "name": services.NAME,
    "version": services.VERSION,
    "description": services.DESCRIPTION,
    "metadata": services.METADATA,
    "queue_group": "",
    "groups": [{"name": "g1"}, {"name": "g2", "queue_group": "group-queue"}],
    "endpoints": [
        {"name": "echo", "subject": "echo"},
        {"name": "grouped", "subject": "grouped", "group": "g1", "metadata": {"a": "b"}},
        {"name": "queued", "subject": "queued", "group": "g2"},
        {"name": "own", "subject": "own", "group": "g2", "queue_group": "own-queue"},
        {"name": "faulty", "subject": "faulty"},
    ],
}
GROUPS = {"echo": "q", "g1.grouped": "q", "g2.queued": "group-queue", "g2.own": "own-queue"}


@_test("service", "core")
def _service(scene: ResponderScene) -> None:
    # None of a queue group is left out: nats.go takes an empty one for the default, others for a group
    config = {name: value for name, value in SERVICE.items() if value != ""}
    scene.send("add service", config=config)
    with scene.judging("CLIENT-SERVICE-002"):
        found = services.verb(scene, "PING")
        kind = "io.nats.micro.v1.ping_response"
        services.expect_fields(
            scene, "a PING", found, type=kind, name=services.NAME, metadata=services.METADATA
        )
    with scene.judging("CLIENT-SERVICE-003"):
        info = services.verb(scene, "INFO")
        services.expect_fields(scene, "INFO", info, description=services.DESCRIPTION)
        grouped = services.of_endpoint(scene, info, "grouped")
        services.expect_fields(scene, "an endpoint", grouped, subject="g1.grouped", metadata={"a": "b"})
    for requirement, subjects in (
        ("CLIENT-SERVICE-006", ("echo", "g1.grouped")),
        ("CLIENT-SERVICE-007", ("g2.queued", "g2.own")),
    ):
        with scene.judging(requirement):
            for subject in subjects:
                services.expect_group(scene, subject, GROUPS[subject])
    answered = {
        subject: [payload_of(one).payload for one in services.ask(scene, subject, b"x")] for subject in GROUPS
    }
    with scene.judging("CLIENT-SERVICE-009"):
        found_error = [
            seen.operation.headers.get("Nats-Service-Error-Code")
            for seen in services.ask(scene, "faulty", b"x")
            if isinstance(seen.operation, HPub) and seen.operation.headers is not None
        ]
        scene.require(
            found_error == ["500"], "an error is answered in another way", expected="500", actual=found_error
        )
    with scene.judging("CLIENT-SERVICE-010"):
        faulty = services.stats(scene, "faulty", 1)
        services.expect_fields(scene, "an endpoint with an error", faulty, num_requests=1, num_errors=1)
    data = services.stats(scene, "echo", 1).get("data")
    own = [
        seen.operation.sid
        for seen in scene.broker.observations
        if isinstance(seen.operation, Sub) and not seen.operation.subject.startswith(("tests.", "_INBOX"))
    ]
    scene.send("stop service")
    with scene.judging("CLIENT-SERVICE-012"):
        scene.await_wire(lambda: set(own) <= services.ended(scene), services.ANSWERED_WITHIN_S)
        scene.require(
            set(own) <= services.ended(scene),
            "subscriptions of the service stay",
            expected=f"UNSUB of {sorted(own)}",
            actual=sorted(services.ended(scene)),
        )
    scene.compare("the answers", {subject: [b"x"] for subject in GROUPS}, answered)
    scene.compare("the data of the stats handler", {"endpoint": "echo"}, data)


@_test("kv", "default-bucket")
def _kv_bucket(scene: ResponderScene) -> None:
    scene.compare("the answer", b"", scene.send("create bucket", config={"bucket": kv.BUCKET}))
    config = scene.stage.stream_info(f"KV_{kv.BUCKET}")["config"]
    wanted = {
        "subjects": [f"{kv.PREFIX}>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }
    scene.compare("the stream", wanted, {name: config.get(name) for name in wanted})


@_test("kv", "put")
def _kv_put(scene: ResponderScene) -> None:
    kv.make_bucket(scene, other="x")
    answer = scene.send("put", bucket=kv.BUCKET, key=kv.KEY, value="value")
    with scene.judging("CLIENT-KV-001"):
        stored = payload_of(kv.last_written(scene)[0])
        found = (stored.subject, stored.payload, answer)
        expected = (kv.PREFIX + kv.KEY, b"value", b"2")
        scene.require(found == expected, "put stores something else", expected=str(expected), actual=found)
    scene.compare("the revision", b"2", answer)


@_test("kv", "get")
def _kv_get(scene: ResponderScene) -> None:
    kv.make_bucket(scene, **{kv.KEY: "value"})
    scene.compare("the value", b"value", scene.send("get", bucket=kv.BUCKET, key=kv.KEY))


@_test("kv", "create")
def _kv_create(scene: ResponderScene) -> None:
    kv.make_bucket(scene, **{kv.KEY: "value"})
    scene.stage.publish(kv.PREFIX + kv.KEY, b"", [("KV-Operation", "DEL")])
    answer = scene.send("create", bucket=kv.BUCKET, key=kv.KEY, value="other")
    with scene.judging("CLIENT-KV-005"):
        kv.expect_headers(scene, "create of a deleted key", Nats_Expected_Last_Subject_Sequence="2")
    scene.compare("the revision", b"3", answer)


@_test("kv", "update")
def _kv_update(scene: ResponderScene) -> None:
    kv.make_bucket(scene, **{kv.KEY: "value"})
    answer = scene.send("update", bucket=kv.BUCKET, key=kv.KEY, value="other", revision=1)
    with scene.judging("CLIENT-KV-006"):
        kv.expect_headers(scene, "an update", Nats_Expected_Last_Subject_Sequence="1")
    scene.compare("the revision", b"2", answer)


@_test("kv", "delete")
def _kv_delete(scene: ResponderScene) -> None:
    kv.make_bucket(scene, **{kv.KEY: "value"})
    answer = scene.send("delete", bucket=kv.BUCKET, key=kv.KEY)
    with scene.judging("CLIENT-KV-002"):
        kv.expect_headers(scene, "a delete", KV_Operation="DEL")
    scene.compare("the answer", b"", answer)


@_test("kv", "purge")
def _kv_purge(scene: ResponderScene) -> None:
    kv.make_bucket(scene, **{kv.KEY: "value"})
    answer = scene.send("purge", bucket=kv.BUCKET, key=kv.KEY)
    with scene.judging("CLIENT-KV-003"):
        kv.expect_headers(scene, "a purge", KV_Operation="PURGE", Nats_Rollup="sub")
    scene.compare("the answer", b"", answer)


@_test("kv", "watch")
def _kv_watch(scene: ResponderScene) -> None:
    kv.make_bucket(scene, a="1")

    def put_during_watch() -> None:
        _await_watch(scene, f"KV_{kv.BUCKET}")
        scene.stage.publish(f"{kv.PREFIX}a", b"2")

    answer = scene.send("watch", put_during_watch, bucket=kv.BUCKET, count=2)
    with scene.judging("CLIENT-KV-009"):
        scene.require(
            answer == b"a=1,a=2", "the watch reports something else", expected="a=1,a=2", actual=answer
        )
    scene.compare("the values", b"a=1,a=2", answer)
