"""The management API of RabbitMQ: logins, paths, lists in pages. Pure.

Source: RabbitMQ, "Management HTTP API".
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from plumbline.reference_broker.amqp.access import User
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.amqp.drop_in.access_pages import AccessPages, Administration
from plumbline.reference_broker.amqp.drop_in.definitions import Definitions
from plumbline.reference_broker.amqp.drop_in.requests import (
    TAGS,
    ApiError,
    Handler,
    Reply,
    Request,
    bad_request,
    not_authorised,
    not_found,
    number_of,
)
from plumbline.reference_broker.amqp.drop_in.server_pages import Process, ServerPages
from plumbline.reference_broker.amqp.drop_in.topology_pages import TopologyPages
from plumbline.reference_broker.http import HttpRequest, answer

METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
PAGE_SIZE, MAX_PAGE_SIZE = 100, 500
REALM = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}
ABOUT = b"plumbline-rabbitmq: the management API is below /api; there is no user interface.\n"


class Management:
    """The API of one server. ``warn`` gets sentences for its log."""

    def __init__(
        self,
        broker: Broker,
        node: str,
        process: Process,
        started: int,
        *,
        new_salt: Callable[[], bytes],
        warn: Callable[[str], None],
    ) -> None:
        self.broker = broker
        access = AccessPages(broker, Administration(broker, new_salt), node)
        topology = TopologyPages(broker, node)
        self.definitions = Definitions(access, topology, warn)
        server = ServerPages(broker, node, process, started)
        self.routes: dict[tuple[str, ...], Mapping[str, Handler]] = {
            tuple(pattern.split("/")): handlers
            for part in (server, access, topology, self.definitions)
            for pattern, handlers in part.routes().items()
        }

    def answer(self, request: HttpRequest, peer: str, now: int) -> bytes:
        """The bytes of the answer to a whole request. What it changed is in the broker's outbox."""
        head_only = request.method == "HEAD"
        if request.status != 200:
            return answer(request.status, TEXT, b"")
        if request.path in ("/", "/api", "/api/"):
            return answer(200, TEXT, ABOUT, head_only=head_only)
        try:
            reply = self.reply(request, peer, now)
        except ApiError as error:
            reply = Reply(
                error.status,
                {"error": error.error, "reason": error.reason},
                REALM if error.status == 401 else {},
            )
        body = b"" if reply.content is None else msgspec.json.encode(reply.content)
        return answer(reply.status, JSON, body, head_only=head_only, headers=reply.headers)

    def reply(self, request: HttpRequest, peer: str, now: int) -> Reply:
        """Raises ``ApiError``."""
        parts = request.path.split("/")
        if parts[:2] != ["", "api"]:
            raise not_found()
        user = self.login(request.headers.get("authorization", ""), peer)
        handlers, names = self.find([part for part in parts[2:] if part])
        method = "GET" if request.method == "HEAD" else request.method
        if method not in handlers:
            raise ApiError(405, "Method Not Allowed", f"{request.path} has no {method}")
        asked = Request(method, names, request.query, request.headers, request.body, user, now)
        reply = handlers[method](asked)
        if isinstance(reply.content, list) and method == "GET":
            reply.content = listed(reply.content, request.query)
        return reply

    def find(self, parts: list[str]) -> tuple[Mapping[str, Handler], list[str]]:
        """The handlers of a path, and the parts of it that vary. Raises ``ApiError``."""
        decoded = [unquote(part, errors="surrogateescape") for part in parts]
        fitting = [
            pattern
            for pattern in self.routes
            if len(pattern) == len(parts)
            and all(one in (":", part) for one, part in zip(pattern, decoded, strict=True))
        ]
        if not fitting:
            raise not_found()
        best = min(fitting, key=lambda pattern: pattern.count(":"))
        names = [part for one, part in zip(best, decoded, strict=True) if one == ":"]
        return self.routes[best], names

    def login(self, header: str, peer: str) -> User:
        """The user of ``Authorization: Basic``. Raises ``ApiError``."""
        kind, _, value = header.partition(" ")
        try:
            text = base64.b64decode(value, validate=True).decode("utf-8", "surrogateescape")
        except binascii.Error:
            text = ""
        name, colon, password = text.partition(":")
        access = self.broker.access
        is_known = kind.lower() == "basic" and colon and access.admits(name, password)
        if not is_known or not access.may_come_from(name, peer):
            raise ApiError(401, "not_authorized", "Login failed")  # with another letter than other refusals
        user = access.users[name]
        if not any(tag in TAGS for tag in user.tags):
            raise not_authorised("Not management user")
        return user


def listed(items: list[Any], query: Mapping[str, str]) -> Any:
    """A list as ``sort``, ``columns``, ``name`` and ``page`` ask for it. Raises ``ApiError``."""
    total = len(items)
    if wanted := query.get("name"):
        items = [one for one in items if _is_named(one, wanted, is_regex=query.get("use_regex") == "true")]
    if column := query.get("sort"):
        is_reverse = query.get("sort_reverse") == "true"
        items = sorted(items, key=lambda one: str(_at(one, column)), reverse=is_reverse)
    filtered = len(items)
    paged: dict[str, Any] | None = None
    if "page" in query:
        page, size = _page_of(query)
        count = max(math.ceil(filtered / size), 1)
        if page > count:
            text = f"Page out of range, page: {page} page size: {size}, len: {filtered}"
            raise ApiError(400, "page_out_of_range", text)
        items = items[(page - 1) * size : page * size]
        paged = {
            "total_count": total,
            "filtered_count": filtered,
            "item_count": len(items),
            "page": page,
            "page_size": size,
            "page_count": count,
        }
    if columns := query.get("columns"):
        items = [_columns(one, columns.split(",")) for one in items]
    return items if paged is None else {"items": items, **paged}


def _page_of(query: Mapping[str, str]) -> tuple[int, int]:
    """Number and size. Raises ``ApiError``."""
    try:
        page, size = number_of(query, "page", 1), number_of(query, "page_size", PAGE_SIZE)
    except ApiError:
        raise bad_request("Pagination parameters are invalid") from None
    if page < 1 or not 0 < size <= MAX_PAGE_SIZE:
        given = size if "page_size" in query else "undefined"
        text = f"Invalid pagination parameters: page number {page}, page size {given}"
        raise ApiError(400, "invalid_pagination_parameters", text)
    return page, size


def _is_named(item: Any, wanted: str, *, is_regex: bool) -> bool:
    name = str(_at(item, "name") or "")
    if not is_regex:
        return wanted.lower() in name.lower()
    try:
        return re.search(wanted, name, re.IGNORECASE) is not None
    except (re.error, RecursionError, OverflowError) as error:
        raise bad_request(f"'{wanted}' is no regular expression: {error}") from None


def _at(item: Any, path: str) -> Any:
    """``a.b`` of an object; None if it is not there."""
    for name in path.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item


def _columns(item: Any, columns: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for column in columns:
        value = _at(item, column)
        if value is None:
            continue
        *above, name = column.split(".")
        place = found
        for one in above:
            place = place.setdefault(one, {})
            if not isinstance(place, dict):
                break
        else:
            place[name] = value
    return found
