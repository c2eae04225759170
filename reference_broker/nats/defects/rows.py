"""Defects that are rows of TOML: other fields in a request, an answer, an error, an event or INFO.

Every ``*.toml`` below this folder has a table for each defect; its key is the name of the defect::

    [stream-fresh-begins-at-one]
    breaks = ["JS-API-028"]
    summary = "A fresh stream has first_seq 1 in its state."
    kind = "answer"
    api = "stream_create"
    when = { "state.last_seq" = 0 }
    set = { "state.first_seq" = 1 }

A path, such as ``state.last_seq``, leads through objects; where an object on the way is missing, nothing is
changed. In conditions for answers and errors a path that begins with ``request`` is of the request's body.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, structs

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.config import Destination
from plumbline.reference_broker.nats.connection import NatsClientConnection
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import Defect, add, default_needs, replace
from plumbline.reference_broker.nats.defects.api_alterations import (
    alter_answer,
    alter_body,
    alter_direct_body,
    body_of,
    refuse,
)
from plumbline.reference_broker.nats.defects.methods import alter_service
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.service import JetStream
from plumbline.reference_broker.nats.mappings import Mappings
from plumbline.wire.nats.subjects import covers

Fields = dict[str, Any]


class Row(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """A defect, the conditions under which it shows, and what it does to the fields.

    Conditions, all of which have to hold: ``present`` and ``absent`` are paths; of ``when`` every field has
    the value (or one of a list), of ``unless`` none; numbers are ``above`` or ``below`` the given ones;
    ``contains`` has parts of texts. Then come, in this order, ``set``, ``default`` (for fields that are
    missing), ``add`` (to numbers) and ``remove`` (of fields that are there).
    """

    breaks: tuple[str, ...]
    summary: str
    needs: tuple[str, ...] | None = None
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    when: dict[str, Any] = {}
    unless: dict[str, Any] = {}
    above: dict[str, int] = {}
    below: dict[str, int] = {}
    contains: dict[str, str] = {}
    set: dict[str, Any] = {}
    default: dict[str, Any] = {}
    add: dict[str, int] = {}
    remove: tuple[str, ...] = ()

    def applies(self, fields: Mapping[str, Any]) -> bool:
        """Whether all conditions hold."""

        def value(path: str) -> Any:
            return _value(fields, path)

        def number(path: str) -> float:
            found = value(path)
            return found if isinstance(found, int) else float("nan")

        return (
            all(value(path) is not UNSET for path in self.present)
            and all(value(path) is UNSET for path in self.absent)
            and all(_is_one_of(value(path), wanted) for path, wanted in self.when.items())
            and not any(_is_one_of(value(path), unwanted) for path, unwanted in self.unless.items())
            and all(number(path) > limit for path, limit in self.above.items())
            and all(number(path) < limit for path, limit in self.below.items())
            and all(part in str(value(path)) for path, part in self.contains.items())
        )

    def change(self, fields: Fields) -> None:
        """Alter the fields, whatever the conditions."""
        for path, value in self.set.items():
            _put(fields, path, value)
        for path, value in self.default.items():
            if _value(fields, path) is UNSET:
                _put(fields, path, value)
        for path, more in self.add.items():
            if isinstance(number := _value(fields, path), int):
                _put(fields, path, number + more)
        for path in self.remove:
            parent, _, name = path.rpartition(".")
            if _value(fields, path) is not UNSET:
                del _value(fields, parent)[name]

    def alter(self, broker: Broker) -> None:
        """Give the broker this defect."""
        raise NotImplementedError


class OnRequest(Row, tag="request", kw_only=True, frozen=True):
    """In the body of a request, before it is read. ``api`` is the type of its answer: ``stream_create``."""

    api: str

    def alter(self, broker: Broker) -> None:
        def change(body: Fields, request: Request) -> None:
            if self.applies(body):
                self.change(body)

        alter_body(broker, self.api, change)


class OnDirectGet(Row, tag="direct get", kw_only=True, frozen=True):
    """In the body of a direct get, from a stream whose name matches ``stream`` (a glob)."""

    stream: str = "*"

    def alter(self, broker: Broker) -> None:
        def change(body: Fields, path: bytes) -> None:
            if fnmatchcase(path.decode().partition(".")[0], self.stream) and self.applies(body):
                self.change(body)

        alter_direct_body(broker, change)


class OnAnswer(Row, tag="answer", kw_only=True, frozen=True):
    """In an answer that is no error, of requests about a stream whose name matches ``stream`` (a glob)."""

    api: str
    stream: str = "*"

    def alter(self, broker: Broker) -> None:
        def change(answer: Fields, request: Request) -> None:
            if "error" in answer or not _is_about(request, self.stream):
                return
            if self.applies(_with_request(answer, request)):
                self.change(answer)

        alter_answer(broker, self.api, change)


class OnError(Row, tag="error", kw_only=True, frozen=True):
    """In the error of an answer: ``code``, ``err_code`` and ``description``."""

    api: str
    stream: str = "*"

    def alter(self, broker: Broker) -> None:
        def change(answer: Fields, request: Request) -> None:
            error = answer.get("error")
            if error and _is_about(request, self.stream) and self.applies(_with_request(error, request)):
                self.change(error)

        alter_answer(broker, self.api, change)


class Refusal(Row, tag="refusal", kw_only=True, frozen=True):
    """A request is refused without being read: with ``error``, a name of ``errors``, and its ``reason``."""

    api: str
    error: str
    reason: str = ""

    def alter(self, broker: Broker) -> None:
        error: errors.ErrorCode = getattr(errors, self.error)

        def when(request: Request) -> bool:
            return self.applies(body_of(request) or {})

        refuse(broker, self.api, error(reason=self.reason), when)


class OnInfo(Row, tag="info", kw_only=True, frozen=True):
    """In every INFO."""

    def alter(self, broker: Broker) -> None:
        original = broker.identity.fields

        def fields(connection: NatsClientConnection) -> Fields:
            found = original(connection)
            if self.applies(found):
                self.change(found)
            return found

        replace(broker.identity, "fields", fields)


class OnEvent(Row, tag="event", kw_only=True, frozen=True):
    """In an event whose subject matches ``subject``; with ``drop`` it is not published at all."""

    subject: str
    drop: bool = False

    def alter(self, broker: Broker) -> None:
        pattern = self.subject.encode()

        def advise(service: JetStream, subject: str, kind: str, fields: Fields, now: int) -> None:
            if not covers(pattern, subject.encode()):
                JetStream.advise(service, subject, kind, fields, now)
            elif not self.drop:
                fields = dict(fields)
                self.change(fields)
                JetStream.advise(service, subject, kind, fields, now)

        alter_service(broker, advise=advise)


class OnDestination(Row, tag="destination", kw_only=True, frozen=True):
    """In the destinations of the subject mappings, as they are configured: ``subject`` and ``weight``."""

    def alter(self, broker: Broker) -> None:
        def changed(one: Destination) -> Destination:
            fields = structs.asdict(one)
            if self.applies(fields):
                self.change(fields)
            return Destination(**fields)

        if broker.mappings is not None:
            mappings = [
                structs.replace(one, destinations=tuple(map(changed, one.destinations)))
                for one in broker.config.mappings
            ]
            replace(broker.mappings, "find", Mappings(mappings, broker.choose).find)


AnyRow = OnRequest | OnDirectGet | OnAnswer | OnError | Refusal | OnInfo | OnEvent | OnDestination


def read(text: str) -> list[Defect]:
    """The defects of one file. Raises ``tomllib.TOMLDecodeError`` or ``msgspec.ValidationError``."""
    rows = msgspec.convert(tomllib.loads(text), dict[str, AnyRow])
    return [
        Defect(name, row.breaks, row.summary, row.alter, default_needs(row.breaks, row.needs))
        for name, row in rows.items()
    ]


def _value(fields: Mapping[str, Any], path: str) -> Any:
    """What is at the path, or ``UNSET``; the empty path leads to the fields themselves."""
    found: Any = fields
    for name in path.split(".") if path else ():
        if not isinstance(found, Mapping) or name not in found:
            return UNSET
        found = found[name]
    return found


def _put(fields: Fields, path: str, value: Any) -> None:
    parent, _, name = path.rpartition(".")
    found = _value(fields, parent)
    if found is not UNSET:
        cast(Fields, found)[name] = value


def _is_one_of(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, list) else value == wanted


def _is_about(request: Request, stream: str) -> bool:
    return fnmatchcase(request.names[0] if request.names else "", stream)


def _with_request(fields: Fields, request: Request) -> Fields:
    body = body_of(request)
    return fields if body is None else {**fields, "request": body}


def _register(files: Iterable[Path]) -> None:
    for file in files:
        try:
            defects = read(file.read_text("utf-8"))
        except UNDECODABLE as error:
            error.add_note(f"in {file}")
            raise
        for defect in defects:
            add(defect)


_register(sorted(Path(__file__).parent.rglob("*.toml")))
