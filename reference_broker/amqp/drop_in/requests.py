"""Requests to the management API, and how they are refused. Pure.

Source: RabbitMQ, "Management HTTP API".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.amqp.access import User
from plumbline.reference_broker.amqp.drop_in.settings import ADMINISTRATOR
from plumbline.wire.amqp import Decimal

MONITORS = (ADMINISTRATOR, "monitoring")
TAGS = (*MONITORS, "policymaker", "management")  # one of them is needed to log in


class ApiError(Exception):
    """A request that is refused: the status of HTTP, a text, and a reason: a text, or a list of texts."""

    def __init__(self, status: int, error: str, reason: Any) -> None:
        super().__init__(str(reason))
        self.status = status
        self.error = error
        self.reason = reason


def not_found() -> ApiError:
    """What the path names is not there."""
    return ApiError(404, "Object Not Found", "Not Found")


def missing(what: str) -> ApiError:
    """What the request names beside its path is not there."""
    return ApiError(404, "not_found", what)


def bad_request(reason: Any) -> ApiError:
    """The request cannot be carried out."""
    return ApiError(400, "bad_request", reason)


def not_authorised(reason: str) -> ApiError:
    """The user may not do this."""
    return ApiError(401, "not_authorised", reason)


class Request(Struct):
    """One request. ``names`` are the parts of its path that vary, decoded."""

    method: str
    names: list[str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: User
    now: int

    def fields(self) -> dict[str, Any]:
        """The object in the body; {} without one. Raises ``ApiError``."""
        if not self.body.strip():
            return {}
        try:
            found = msgspec.json.decode(self.body)
        except UNDECODABLE as error:
            raise bad_request(f"not_json: {error}") from None
        if not isinstance(found, dict):
            raise bad_request("not_json")
        return found

    @property
    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.user.tags

    @property
    def is_monitor(self) -> bool:
        return any(tag in MONITORS for tag in self.user.tags)

    def require_administrator(self) -> None:
        """Raises ``ApiError``."""
        if not self.is_administrator:
            raise not_authorised("Not administrator user")

    def require_monitor(self) -> None:
        """Raises ``ApiError``."""
        if not self.is_monitor:
            raise not_authorised("Not monitor user")


class Reply(Struct):
    """An answer without an error; ``content`` is written as JSON, None as nothing."""

    status: int = 200
    content: Any = None
    headers: dict[str, str] = {}


CREATED, DONE = 201, 204
Handler = Callable[[Request], Reply]
# Patterns of paths below /api, where ``:`` is one part; then a handler for each method.
Routes = Mapping[str, Mapping[str, Handler]]


def plain(value: Any) -> Any:
    """A value of a field table as JSON has it."""
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return int(value) if isinstance(value, int) else float(value)


def require(fields: Mapping[str, Any], *names: str) -> None:
    """Raises ``ApiError`` that names all that are missing."""
    if lacking := [f"{{key_missing,{name}}}" for name in names if name not in fields]:
        blank = ",\n " if len(lacking) > 3 else ","  # as Erlang breaks a long line
        raise bad_request(f"[{blank.join(lacking)}]")


def text_of(fields: Mapping[str, Any], name: str, usual: str | None = None) -> str:
    """A field that is a text. Raises ``ApiError``."""
    value = fields.get(name, usual)
    if not isinstance(value, str):
        raise bad_request(f"key_missing: {name}" if value is None else f"{name} is no text")
    return value


def switch_of(fields: Mapping[str, Any], name: str) -> bool:
    """A field that is true or false; some clients write it as a text. Raises ``ApiError``."""
    value = fields.get(name, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(["not_boolean", value])
    return value


def table_of(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A field that is an object. Raises ``ApiError``."""
    value = fields.get(name) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} is no object")
    return value


def number_of(fields: Mapping[str, Any], name: str, usual: int) -> int:
    """A field that is a number from 0 on. Raises ``ApiError``."""
    value = fields.get(name, usual)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_request(f"{name} is no number")
    return value
