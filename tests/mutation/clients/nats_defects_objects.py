"""Faults of object stores: CLIENT-OBJ."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from tests.mutation.clients.defect import defect, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_client import LibraryError
from tests.mutation.clients.nats_objects import CHUNK_BYTES, Objects, ObjectWatch


def _of(part: type, name: str, value: Callable[..., Any]) -> Callable[[Adapter], None]:
    """A method of every object store is another one."""
    return lambda adapter: replace(part, name, value)


def _nothing(*_: object) -> None:
    pass


def _described(**other: object) -> Callable[[Adapter], None]:
    whole = Objects.described
    return _of(Objects, "described", lambda part, *given: {**whole(part, *given), **other})


def _cut(size_of: Callable[[int], int]) -> Callable[[Adapter], None]:
    whole = Objects.cut
    return _of(Objects, "cut", lambda part, data, size: whole(part, data, size_of(size)))


def _also_deleted(part: Objects, name: str) -> dict[str, Any]:
    """The metadata, deleted or not. Raises ``LibraryError`` if there is none."""
    found = part.find(name)
    if found is None:
        raise LibraryError("no such object")
    return found


def _get_deleted(part: Objects, name: str) -> bytes:
    found = part.find(name)
    return b"" if found is not None and found.get("deleted") else _get(part, name)


def _delete_without_mark(part: Objects, name: str) -> None:
    part.purge(part.chunks_of(part.info(name)["nuid"]))


def _delete_nothing(part: Objects, name: str) -> None:
    if part.find(name) is not None:
        _delete(part, name)


def _require_nothing_before(part: Objects, name: str) -> None:
    found = part.find(name)
    if found is not None and not part.link_of(found):
        raise LibraryError("there is such an object")


def _report_ends(part: ObjectWatch, operation: Any) -> None:
    _report(part, operation)
    part.complete()


_get, _delete, _report, _config, _do = (
    Objects.get,
    Objects.delete,
    ObjectWatch.report,
    Objects.config,
    Objects.do,
)


def _without_seal(part: Objects, name: str, command: Mapping[str, Any]) -> dict[str, Any] | None:
    return None if name == "obj.seal" else _do(part, name, command)


def _an_empty_chunk(part: Objects, data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data) or 1, size)]


_FAULTS: tuple[tuple[str, str, str, Callable[[Adapter], None]], ...] = (
    (
        "stores-metadata-without-rollup",
        "CLIENT-OBJ-001",
        "metadata has no Nats-Rollup",
        _of(Objects, "rollup", lambda part: {}),
    ),
    (
        "cuts-as-it-likes",
        "CLIENT-OBJ-002",
        "the size that the user wants is not used",
        _cut(lambda size: size if size > 4 else 5),
    ),
    (
        "cuts-into-64-kib",
        "CLIENT-OBJ-003",
        "without a size chunks have 64 KiB",
        _cut(lambda size: min(size, CHUNK_BYTES // 2)),
    ),
    ("has-no-nuid", "CLIENT-OBJ-004", "the nuid of the metadata is another one", _described(nuid="x")),
    (
        "stores-the-time",
        "CLIENT-OBJ-005",
        "the metadata has mtime",
        _described(mtime=datetime.datetime.now(datetime.UTC).isoformat()),
    ),
    ("keeps-old-chunks", "CLIENT-OBJ-006", "the chunks before stay", _of(Objects, "replaced", _nothing)),
    (
        "gets-the-last-chunk",
        "CLIENT-OBJ-007",
        "of several chunks only the last one is handed over",
        _of(Objects, "joined", lambda part, chunks: chunks[-1]),
    ),
    ("compares-no-digest", "CLIENT-OBJ-008", "the digest is not compared", _of(Objects, "compare", _nothing)),
    (
        "gets-deleted-objects",
        "CLIENT-OBJ-009",
        "a deleted object is empty",
        _of(Objects, "get", _get_deleted),
    ),
    (
        "describes-deleted-objects",
        "CLIENT-OBJ-010",
        "deleted objects have information",
        _of(Objects, "existing", _also_deleted),
    ),
    (
        "deletes-without-a-mark",
        "CLIENT-OBJ-011",
        "the metadata of a deleted object stays",
        _of(Objects, "delete", _delete_without_mark),
    ),
    (
        "deletes-what-is-not-there",
        "CLIENT-OBJ-012",
        "delete of nothing succeeds",
        _of(Objects, "delete", _delete_nothing),
    ),
    (
        "follows-no-link",
        "CLIENT-OBJ-013",
        "a link is an object of no bytes",
        _of(Objects, "follow", lambda part, link: b""),
    ),
    (
        "links-to-the-bucket",
        "CLIENT-OBJ-014",
        "a link has no name",
        _of(Objects, "leading_to", lambda part, info: {"bucket": info["bucket"]}),
    ),
    (
        "links-to-links",
        "CLIENT-OBJ-015",
        "a link to a link is made",
        _of(Objects, "require_object", _nothing),
    ),
    (
        "links-over-objects",
        "CLIENT-OBJ-016",
        "a link takes the place of an object",
        _of(Objects, "require_no_object", _nothing),
    ),
    (
        "links-over-nothing-deleted",
        "CLIENT-OBJ-017",
        "the name of a deleted object is not free for a link",
        _of(Objects, "require_no_object", _require_nothing_before),
    ),
    (
        "updates-forget-the-digest",
        "CLIENT-OBJ-018",
        "an update stores no digest",
        _of(Objects, "updated", lambda part, info: {**info, "digest": ""}),
    ),
    ("renames-leave-both", "CLIENT-OBJ-019", "the old name stays", _of(Objects, "renamed", _nothing)),
    (
        "renames-over-objects",
        "CLIENT-OBJ-020",
        "an update takes the name of another object",
        _of(Objects, "require_free", _nothing),
    ),
    (
        "updates-deleted-objects",
        "CLIENT-OBJ-021",
        "deleted objects can be updated",
        _of(Objects, "updatable", _also_deleted),
    ),
    (
        "object-watch-ends-early",
        "CLIENT-OBJ-022",
        "the first object ends the initial data",
        _of(ObjectWatch, "report", _report_ends),
    ),
    (
        "lists-deleted-objects",
        "CLIENT-OBJ-023",
        "deleted objects are listed",
        _of(Objects, "is_listed", lambda part, info: True),
    ),
    ("seals-nothing", "CLIENT-OBJ-024", "seal does nothing", _of(Objects, "do", _without_seal)),
    (
        "buckets-without-rollup",
        "CLIENT-OBJ-025",
        "the stream of a bucket allows no rollup",
        _of(Objects, "config", lambda part: {**_config(part), "allow_rollup_hdrs": False}),
    ),
    (
        "puts-an-empty-chunk",
        "CLIENT-OBJ-026",
        "no bytes are one empty chunk",
        _of(Objects, "cut", _an_empty_chunk),
    ),
)


for _name, _requirement, _summary, _alter in _FAULTS:
    defect(_name, breaks=_requirement, summary=_summary)(_alter)
