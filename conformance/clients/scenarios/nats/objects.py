"""Object stores, what is put, got and deleted: ADR-20, "JetStream based Object Stores"."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from plumbline.conformance.clients.nats.scene import NatsScene, expect_error, expect_success, payload_of
from plumbline.conformance.clients.protocol import AdapterAnswer
from plumbline.conformance.clients.scenario import scenario
from plumbline.monitors import Observation
from plumbline.wire.nats import HPub, Pub
from plumbline.wire.nats.jetstream import api_subject

BUCKET = "IMAGES"
OBJECT = "my photo.jpg"
NUID = "FIRST"
DEFAULT_CHUNK = 128 * 1024
COMMAND_WITHIN_S = 5.0


def chunks_of(nuid: str = NUID, bucket: str = BUCKET) -> str:
    """The subject of the chunks of an object."""
    return f"$O.{bucket}.C.{nuid}"


def metadata_of(name: str = OBJECT, bucket: str = BUCKET) -> str:
    """The subject of the metadata of an object."""
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def digest_of(data: bytes) -> str:
    """As the metadata has it."""
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


def bucket(scene: NatsScene, name: str = BUCKET) -> None:
    """A bucket without objects."""
    subjects = [f"$O.{name}.C.>", f"$O.{name}.M.>"]
    scene.stage.stream(f"OBJ_{name}", subjects, discard="new", allow_rollup_hdrs=True, allow_direct=True)


def store(
    scene: NatsScene,
    *chunks: bytes,
    name: str = OBJECT,
    bucket: str = BUCKET,
    nuid: str = NUID,
    **other: Any,
) -> None:
    """An object of these chunks; ``other`` fields of its metadata."""
    for chunk in chunks:
        scene.stage.publish(chunks_of(nuid, bucket), chunk)
    data = b"".join(chunks)
    info = {
        "name": name,
        "bucket": bucket,
        "nuid": nuid,
        "size": len(data),
        "chunks": len(chunks),
        "digest": digest_of(data),
        "options": {"max_chunk_size": DEFAULT_CHUNK},
        **other,
    }
    scene.stage.publish(metadata_of(name, bucket), json.dumps(info).encode(), [("Nats-Rollup", "sub")])


def store_deleted(scene: NatsScene, name: str = OBJECT) -> None:
    """An object that was deleted."""
    store(scene, name=name, deleted=True, digest="")


def run(scene: NatsScene, command: str, **fields: Any) -> AdapterAnswer:
    """A command for the object; its answer may be an error."""
    wanted = {"bucket": BUCKET, "name": OBJECT, **fields}
    return scene.try_command(f"obj.{command}", within=COMMAND_WITHIN_S, **wanted)


def written(scene: NatsScene, subject: str) -> list[Observation]:
    """What the client under test published to it; the subject may end in ``.>``."""
    return [
        seen
        for seen in scene.sent_operations(Pub, HPub)
        if payload_of(seen).subject == subject
        or (subject.endswith(".>") and payload_of(seen).subject.startswith(subject[:-1]))
    ]


def metadata(scene: NatsScene, name: str = OBJECT) -> tuple[Observation, dict[str, Any]]:
    """The last metadata that the client under test published. Raises ``Failed`` if there is none."""
    found = written(scene, metadata_of(name))
    if not found:
        scene.fail("no metadata was published", expected=f"PUB {metadata_of(name)}", actual="nothing")
    try:
        return found[-1], json.loads(payload_of(found[-1]).payload)
    except ValueError as error:
        scene.fail("the metadata is no JSON", expected="JSON", actual=error, at=found[-1])


def expect_fields(scene: NatsScene, what: str, of: str = OBJECT, /, **expected: Any) -> None:
    """Evidence: the last metadata has these fields. One that is not there counts as 0, false or empty."""
    seen, info = metadata(scene, of)
    actual = {field: info.get(field, type(value)()) for field, value in expected.items()}
    scene.require(
        actual == expected, f"{what} has other metadata", expected=str(expected), actual=actual, at=seen
    )


def purges(scene: NatsScene) -> list[str]:
    """The filters of the purges that the client under test asked for."""
    return [
        str(json.loads(payload_of(seen).payload or b"{}").get("filter"))
        for seen in written(scene, api_subject("STREAM.PURGE", f"OBJ_{BUCKET}"))
    ]


def put(scene: NatsScene, data: bytes, **fields: Any) -> list[Observation]:
    """Put the object; its chunks."""
    bucket(scene)
    scene.connect()
    expect_success(scene, "put", run(scene, "put", data=data.decode(), **fields))
    return written(scene, f"$O.{BUCKET}.C.>")


@scenario("CLIENT-OBJ-001", needs=["obj"])
def put_publishes_the_bytes_and_then_the_metadata(scene: NatsScene) -> None:
    """The bytes on the subject of the chunks, then the metadata with Nats-Rollup: sub."""
    chunks = put(scene, b"one object")
    seen, _ = metadata(scene)
    headers = seen.operation.headers if isinstance(seen.operation, HPub) else None
    rollup = headers.get("Nats-Rollup") if headers is not None else None
    stored = b"".join(payload_of(chunk).payload for chunk in chunks)
    scene.require(
        stored == b"one object" and all(chunk.index < seen.index for chunk in chunks) and rollup == "sub",
        "an object is stored in another way",
        expected="its bytes, then the metadata with Nats-Rollup: sub",
        actual=f"chunks {[str(chunk.operation) for chunk in chunks]}, metadata with Nats-Rollup: {rollup}",
        at=seen,
    )


def expect_sizes(scene: NatsScene, chunks: list[Observation], expected: list[int]) -> None:
    """Evidence: how large the chunks are."""
    sizes = [len(payload_of(chunk).payload) for chunk in chunks]
    scene.require(sizes == expected, "other chunks were published", expected=str(expected), actual=sizes)


@scenario("CLIENT-OBJ-002", needs=["obj"])
def put_cuts_as_its_user_wants(scene: NatsScene) -> None:
    """Ten bytes in chunks of four are three chunks."""
    expect_sizes(scene, put(scene, b"0123456789", chunk_bytes=4), [4, 4, 2])


@scenario("CLIENT-OBJ-003", needs=["obj"])
def put_cuts_into_128_kib(scene: NatsScene) -> None:
    """Without a size a chunk has 128 KiB."""
    expect_sizes(scene, put(scene, b"x" * (DEFAULT_CHUNK + 1)), [DEFAULT_CHUNK, 1])


@scenario("CLIENT-OBJ-004", needs=["obj"])
def metadata_describes_the_object(scene: NatsScene) -> None:
    """Name, bucket, nuid, size, number of chunks and digest."""
    chunks = put(scene, b"0123456789", chunk_bytes=4)
    nuids = {payload_of(chunk).subject.rpartition(".")[2] for chunk in chunks}
    expect_fields(
        scene,
        "an object",
        name=OBJECT,
        bucket=BUCKET,
        nuid=",".join(nuids),
        size=10,
        chunks=len(chunks),
        digest=digest_of(b"0123456789"),
    )


@scenario("CLIENT-OBJ-005", needs=["obj"])
def the_time_is_not_stored(scene: NatsScene) -> None:
    """The time of the message is that of the object."""
    put(scene, b"one object")
    seen, info = metadata(scene)
    scene.require("mtime" not in info, "mtime is stored", expected="no mtime", actual=info, at=seen)


@scenario("CLIENT-OBJ-006", needs=["obj"])
def put_removes_the_chunks_before(scene: NatsScene) -> None:
    """An object that exists is put again: a new nuid, and the old chunks are purged after the metadata."""
    bucket(scene)
    store(scene, b"old bytes")
    scene.connect()
    expect_success(scene, "put", run(scene, "put", data="new bytes"))
    seen, info = metadata(scene)
    asked = written(scene, api_subject("STREAM.PURGE", f"OBJ_{BUCKET}"))
    scene.require(
        info.get("nuid") != NUID
        and chunks_of() in purges(scene)
        and all(one.index > seen.index for one in asked),
        "the chunks of the old object stay, or are removed too early",
        expected=f"another nuid, and after the metadata a purge of {chunks_of()}",
        actual=f"nuid {info.get('nuid')}, purges {purges(scene)}",
    )


def expect_data(scene: NatsScene, what: str, expected: str) -> None:
    """Evidence: get hands over these bytes."""
    answer = run(scene, "get")
    expect_success(scene, what, answer)
    data = answer.ok.message.data if answer.ok is not None and answer.ok.message is not None else None
    scene.require(data == expected, f"{what} hands over something else", expected=expected, actual=data)


@scenario("CLIENT-OBJ-007", needs=["obj"])
def get_hands_over_all_chunks(scene: NatsScene) -> None:
    """Three chunks, between those of other objects."""
    bucket(scene)
    store(scene, b"other", name="other", nuid="SECOND")
    store(scene, b"one ", b"object ", b"more")
    store(scene, b"third", name="third", nuid="THIRD")
    scene.connect()
    expect_data(scene, "get", "one object more")


@scenario("CLIENT-OBJ-008", needs=["obj"])
def get_compares_the_digest(scene: NatsScene) -> None:
    """The metadata has the digest of other bytes of the same size."""
    bucket(scene)
    store(scene, b"one object", digest=digest_of(b"one abject"))
    scene.connect()
    expect_error(scene, "get of bytes with another digest", run(scene, "get"))


@scenario("CLIENT-OBJ-009", needs=["obj"])
def get_of_a_deleted_object_is_an_error(scene: NatsScene) -> None:
    """As of one that never existed."""
    bucket(scene)
    store_deleted(scene)
    scene.connect()
    expect_error(scene, "get of a deleted object", run(scene, "get"))


@scenario("CLIENT-OBJ-010", needs=["obj"])
def a_deleted_object_has_no_information(scene: NatsScene) -> None:
    """The metadata with deleted true is no information for the user."""
    bucket(scene)
    store(scene, b"other", name="other", nuid="SECOND")
    store_deleted(scene)
    scene.connect()
    expect_success(scene, "the information of an object", run(scene, "info", name="other"))
    expect_error(scene, "the information of a deleted object", run(scene, "info"))


@scenario("CLIENT-OBJ-011", needs=["obj"])
def delete_marks_and_purges(scene: NatsScene) -> None:
    """Metadata with deleted true, and a purge of the chunks."""
    bucket(scene)
    store(scene, b"one object")
    scene.connect()
    expect_success(scene, "delete", run(scene, "delete"))
    expect_fields(scene, "a deleted object", deleted=True, size=0, chunks=0)
    asked = purges(scene)
    scene.require(
        asked == [chunks_of()], "the chunks stay", expected=f"a purge of {chunks_of()}", actual=asked
    )


@scenario("CLIENT-OBJ-012", needs=["obj"])
def delete_of_nothing_is_an_error(scene: NatsScene) -> None:
    """There was never such an object."""
    bucket(scene)
    scene.connect()
    expect_error(scene, "delete of an object that does not exist", run(scene, "delete"))


@scenario("CLIENT-OBJ-013", needs=["obj"])
def get_follows_a_link(scene: NatsScene) -> None:
    """To an object of another bucket."""
    bucket(scene)
    bucket(scene, "ORIGINALS")
    store(scene, b"the original", name="original", bucket="ORIGINALS")
    store(scene, digest="", options={"link": {"bucket": "ORIGINALS", "name": "original"}})
    scene.connect()
    expect_data(scene, "get of a link", "the original")


@scenario("CLIENT-OBJ-025", needs=["obj.create"])
def a_bucket_is_a_stream(scene: NatsScene) -> None:
    """Its name, subjects and configuration."""
    scene.connect()
    expect_success(scene, "create", scene.try_command("obj.create", within=COMMAND_WITHIN_S, bucket=BUCKET))
    config = scene.stage.stream_info(f"OBJ_{BUCKET}")["config"]
    found = [sorted(config["subjects"]), config["discard"], config["allow_rollup_hdrs"]]
    scene.require(
        found == [[f"$O.{BUCKET}.C.>", f"$O.{BUCKET}.M.>"], "new", True],
        "a bucket is another stream",
        expected="subjects of chunks and metadata, discard new, allow_rollup_hdrs",
        actual=found,
    )


@scenario("CLIENT-OBJ-026", needs=["obj"])
def an_object_of_no_bytes_has_no_chunks(scene: NatsScene) -> None:
    """It is put, and got again."""
    chunks = put(scene, b"")
    scene.require(not chunks, "an object of no bytes has chunks", expected="no chunk", actual=len(chunks))
    expect_fields(scene, "an object of no bytes", size=0, chunks=0)
    expect_data(scene, "get of no bytes", "")
