"""Normalizes operations for comparing two recordings: removes names, ids and times of a run.

A value that is made up for a run (an inbox, a random id, a generated queue name) becomes its number in the
order of appearance, per connection: so a reply still goes to the inbox that was asked for, or does not. JSON
is compared by its fields, in whatever order. Sizes follow from the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from plumbline.captures.plain import parsed_json

# Fields whose values are the run's or the machine's.
PLACES = frozenset({
    "server_id", "server_name", "client_id", "client_ip", "host", "port", "connect_urls", "nonce", "cluster",
    "leader", "raft_group", "xkey", "version", "git_commit", "go", "lang", "created", "time", "ts",
    "last_active", "cluster_name", "platform",
})  # fmt: skip
IGNORED_FIELDS = frozenset({"number", "connection", "time", "size", "sender"})
IGNORED_OPERATIONS = frozenset(
    {"PING", "PONG", "heartbeat"}
)  # they come when time has passed, or somebody waited

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_NANOSECONDS = re.compile(r"(?<!\d)[12]\d{18}(?!\d)")
_MADE_UP = re.compile(
    r"_INBOX\.[^.\s]+(?:\.[^.\s*>]+)?"  # an inbox, with the token of one request
    r"|(?<![0-9A-Za-z])(?:[0-9A-Za-z]{22}|[A-Z2-7]{56})(?![0-9A-Za-z])"  # NUIDs and nkeys
    r"|(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])"  # UUIDs, as clients make tags of them
    r"|amq\.(?:ctag|gen)-[\w-]+"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


class Normalizer:
    """Normalises the operations of one connection, in their order."""

    def __init__(self) -> None:
        self._made_up: dict[str, str] = {}

    def fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that are compared."""
        return {
            name: self._value(name, value) for name, value in fields.items() if name not in IGNORED_FIELDS
        }

    def _value(self, name: str, value: Any) -> Any:
        if name in PLACES:
            return f"({name})"
        match value:
            case Mapping():
                return {str(key): self._value(str(key), held) for key, held in sorted(value.items(), key=str)}
            case list() | tuple():
                return [self._value(name, held) for held in value]
            case bytes():
                return self._text(value.decode("utf-8", "backslashreplace"))
            case str():
                parsed = _json(value) if name == "payload" else None
                return self._text(value) if parsed is None else self._value(name, parsed)
            case int() | float() | bool() | None:
                return value
        return self._text(str(value))

    def _text(self, text: str) -> str:
        text = _NANOSECONDS.sub("(ns)", _TIME.sub("(time)", text))
        return _MADE_UP.sub(lambda found: self._number(found[0]), text)

    def _number(self, name: str) -> str:
        """An inbox has a name of its own, and what follows it another."""
        if name.startswith("_INBOX."):
            _, inbox, *request = name.split(".")
            return ".".join(["_INBOX", self._known(inbox), *map(self._known, request)])
        return self._known(name)

    def _known(self, name: str) -> str:
        return self._made_up.setdefault(name, f"#{len(self._made_up) + 1}")


def _json(text: str) -> Any:
    """An object or array; None for anything else."""
    return parsed_json(text) if text[:1] in ("{", "[") else None
