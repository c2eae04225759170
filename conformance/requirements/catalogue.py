"""The requirements: ``conformance/requirements/*.toml``, loaded, checked and selected.

One file is one group, or a part of it, in the order its rows are to be shown. This module knows what a
requirement may look like; it knows no check, no server and no verdict. ``Catalogue.load`` reports every
mistake of every file at once. Design page, "Requirements are data"; how to write one:
``requirements/README.md``.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from plumbline.conformance import known_failures
from plumbline.errors import UNDECODABLE, ExitCode, PlumblineError
from plumbline.verdicts import KnownFailure, Level
from plumbline.versions import numbers

REQUIREMENTS = Path(__file__).parent
SETS = "sets"  # the folder of published sets, beside the requirements
REQUIREMENT_SET = "2026.11"  # the published set a run is scored against unless it names another

PROFILES: Mapping[str, str] = {
    "nats-core": "the NATS client protocol, on a server as it comes",
    "nats-core-config": "the NATS client protocol, on a server configured for it (a variant)",
    "jetstream": "JetStream streams and pull consumers",
    "jetstream-push": "JetStream push consumers",
    "kv": "key-value buckets, which are streams with conventions",
    "object-store": "object store buckets, which are streams with conventions",
    "amqp-core": "AMQP 0-9-1: connections, channels, queues, exchanges, publishing, consuming",
    "rabbitmq-acks": "consumer acknowledgements, requeueing, prefetch",
    "rabbitmq-confirms": "publisher confirms and transactions",
    "rabbitmq-dlx": "dead letters, length limits, expiry, delivery limits",
    "rabbitmq-permissions": "users, permissions and virtual hosts, on a server configured for it (a variant)",
    "rabbitmq-tls": "listeners with TLS and client certificates, on a server configured for it (a variant)",
    "durability": "what survives a restart: for a target that may be disturbed",
    "client": "what only a client library can meet or break",
    "client-nats": "client libraries for NATS and JetStream (plumbline gate)",
    "client-amqp": "client libraries for AMQP 0-9-1 (plumbline gate)",
    "cluster-nats": "replicated streams while nodes and routes fail (plumbline cluster)",
    "cluster-amqp": "quorum queues while nodes and routes fail (plumbline cluster)",
}

ProtocolLevel = tuple[int, ...]


def protocol_level(text: str) -> ProtocolLevel:
    """``"2.10"`` -> ``(2, 10)``, so that 2.10 is later than 2.9. Raises ``ValueError`` for anything else."""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})*", text, re.ASCII):
        raise ValueError(f"{text!r} is not a protocol level; write numbers and dots, for example 2.10")
    return numbers(text)


class Requirement(Struct, frozen=True, kw_only=True):
    """One sentence that a server (or client) can meet or break.

    It holds from protocol level ``since`` on and before ``until``. ``documented`` is what the source
    claims where servers do otherwise, ``observed`` what which server does: both are information.
    ``known_failures`` are defects of real releases, which fail it. ``sample`` is an exchange, for a
    requirement that no trace verifies: else the trace is the sample (``coverage`` refuses both).
    ``excluded`` says why no wire test can decide it. ``where`` is the file and line it was read from.
    """

    id: str
    group: str
    level: Level
    statement: str
    source: str
    profile: str
    since: str = ""
    until: str = ""
    documented: str = ""
    observed: str = ""
    sample: str = ""
    excluded: str = ""
    known_failures: tuple[KnownFailure, ...] = ()
    where: str = ""

    def applies_at(self, level: ProtocolLevel) -> bool:
        """Whether a server of this protocol level is held to it."""
        return within_levels(level, since=self.since, until=self.until)


def within_levels(level: ProtocolLevel, *, since: str = "", until: str = "") -> bool:
    """``since`` <= ``level`` < ``until``, each bound only where given; 2.10.4 lies within 2.10."""
    if since and level < protocol_level(since):
        return False
    return not (until and level >= protocol_level(until))


class Group(Struct, frozen=True):
    """One file, or several: the prefix of their ids and what they are about."""

    id: str
    title: str
    requirements: tuple[Requirement, ...] = ()


class RequirementSet(Struct, frozen=True):
    """A published, frozen list of ids. What was added later is *not scored* against it."""

    name: str
    ids: frozenset[str]


class CatalogueError(PlumblineError):
    """The requirement files are wrong; ``problems`` names every place (file, table, what to write)."""

    exit_code = ExitCode.HARNESS_ERROR

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class UnknownRequirementError(PlumblineError, LookupError):
    """A pattern or id that matches nothing; ``near`` are ids and group patterns spelled alike."""

    def __init__(self, pattern: str, near: Sequence[str]) -> None:
        self.pattern = pattern
        self.near = tuple(near)
        hint = f"did you mean {', '.join(near)}?" if near else "see: plumbline list"
        super().__init__(f"no requirement matches {pattern!r}; {hint}")


class Catalogue(Struct, frozen=True):
    """Every requirement, grouped, in the order of the files."""

    groups: tuple[Group, ...]
    by_id: Mapping[str, Requirement]

    @classmethod
    def load(cls, folder: Path = REQUIREMENTS) -> Catalogue:
        """Raises ``CatalogueError`` with all that is wrong in all files. Reads those of the package once."""
        return _packaged() if folder == REQUIREMENTS else cls._from_files(folder)

    @classmethod
    def _from_files(cls, folder: Path) -> Catalogue:
        problems: list[str] = []
        paths = sorted(path for path in folder.rglob("*.toml") if path.parent.name != SETS)
        files = [group for path in paths if (group := _group(path, problems))]
        groups = _merged(files, problems)
        if not groups and not problems:
            problems.append(f"{folder}: no requirement files (*.toml) here")
        by_id: dict[str, Requirement] = {}
        for requirement in (row for group in groups for row in group.requirements):
            first = by_id.setdefault(requirement.id, requirement)
            if first is not requirement:
                problems.append(f"{requirement.where}: {requirement.id} is already defined at {first.where}")
        if problems:
            raise CatalogueError(problems)
        return cls(tuple(groups), by_id)

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """All of them, in order."""
        return tuple(self.by_id.values())

    def select(self, patterns: Iterable[str]) -> list[Requirement]:
        """Those whose id matches any pattern (``JS-PULL-*``), in order; no pattern selects all.

        Raises ``UnknownRequirementError`` for the first pattern that matches nothing.
        """
        selected_ids: set[str] = set()
        pattern_list = list(patterns)
        for pattern in pattern_list:
            matched = fnmatch.filter(self.by_id, pattern.upper())
            if not matched:
                raise UnknownRequirementError(pattern, self.near(pattern))
            selected_ids.update(matched)
        return [row for row in self.requirements if not pattern_list or row.id in selected_ids]

    def near(self, text: str) -> list[str]:
        """Ids and group patterns that are spelled like ``text``, the most alike first."""
        known = [f"{group.id}-*" for group in self.groups] + list(self.by_id)
        return difflib.get_close_matches(text.upper(), known, n=3, cutoff=0.6)

    def published(self, name: str = REQUIREMENT_SET, folder: Path = REQUIREMENTS) -> RequirementSet:
        """The published set of this name. Raises ``CatalogueError`` if there is none or it is wrong."""
        path = folder / SETS / f"{name}.toml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml"))) or "none"
            raise CatalogueError([f"no requirement set named {name!r}; there are: {known}"])
        problems: list[str] = []
        table = _read(path, problems) or {}
        ids = table.get("requirements")
        if not isinstance(ids, list) or not all(isinstance(row, str) for row in ids):
            problems.append(f"{path.name}: 'requirements' must be a list of ids")
            ids = []
        problems += [f"{path.name}: {row} is not a requirement" for row in ids if row not in self.by_id]
        if problems:
            raise CatalogueError(problems)
        return RequirementSet(name, frozenset(ids))


@cache
def _packaged() -> Catalogue:
    return Catalogue._from_files(REQUIREMENTS)


_TEXTS = frozenset(Requirement.__struct_fields__) - {"group", "where", "known_failures"}
_KNOWN = _TEXTS | {"known_failures"}
_REQUIRED = ("id", "level", "statement", "source", "profile")


def _read(path: Path, problems: list[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UNDECODABLE as error:
        problems.append(f"{path.name}: not TOML: {error}")
        return None


def _group(path: Path, problems: list[str]) -> Group | None:
    """One file. What is wrong is appended to ``problems``, and the rest is read all the same."""
    file = _read(path, problems)
    if file is None:
        return None
    heading = file.get("group")
    if not isinstance(heading, dict) or not all(isinstance(heading.get(key), str) for key in ("id", "title")):
        problems.append(f"{path.name}: begin with [group] and its id and title")
        return None
    problems += [f"{path.name}: unknown table [{key}]" for key in file if key not in ("group", "requirement")]
    lines = [
        number
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.strip() == "[[requirement]]"
    ]
    tables = file.get("requirement")
    if not isinstance(tables, list) or not tables:
        problems.append(f"{path.name}: no [[requirement]] tables")
        return None
    rows: list[Requirement] = []
    for index, table in enumerate(tables, 1):
        line = f":{lines[index - 1]}" if len(lines) == len(tables) else ""
        where = f"{path.name}{line}"
        wrong = _table_errors(table, heading["id"])
        name = table.get("id", "without id")
        problems += [f"{where}: requirement {index} ({name}): {what}" for what in wrong]
        if not wrong:
            texts = {key: value.strip() for key, value in table.items() if key in _TEXTS}
            texts["level"] = Level(texts["level"])
            failures = known_failures.read(table.get("known_failures", ()))
            rows.append(Requirement(group=heading["id"], where=where, known_failures=failures, **texts))
    return Group(heading["id"], heading["title"], tuple(rows))


def _merged(files: Sequence[Group], problems: list[str]) -> list[Group]:
    """Files of the same group as one, in the order of the files; they must agree on its title."""
    merged: dict[str, Group] = {}
    for part in files:
        known = merged.setdefault(part.id, part)
        if known is part:
            continue
        if part.title != known.title:
            problems.append(
                f"group {part.id} is called {known.title!r} in one file and {part.title!r} in another"
            )
        merged[part.id] = Group(known.id, known.title, known.requirements + part.requirements)
    return list(merged.values())


def _table_errors(table: Mapping[str, Any], group: str) -> list[str]:
    """What is wrong with one [[requirement]] table, each with what to write instead."""
    wrong = [f"unknown key '{key}'; known: {', '.join(sorted(_KNOWN))}" for key in table if key not in _KNOWN]
    wrong += [f"'{key}' is missing" for key in _REQUIRED if key not in table]
    wrong += [
        f"'{key}' must be text that is not empty"
        for key in table
        if key in _TEXTS and not (isinstance(table[key], str) and table[key].strip())
    ]
    if wrong:
        return wrong
    if not re.fullmatch(rf"{re.escape(group)}-\d{{3}}", table["id"], re.ASCII):
        wrong.append(f"the id must be {group}- and three digits")
    if table["level"] not in list(Level):
        wrong.append(f"level {table['level']!r}; write one of {', '.join(Level)}")
    if table["profile"] not in PROFILES:
        wrong.append(f"profile {table['profile']!r}; write one of {', '.join(PROFILES)}")
    if not table["statement"].strip().endswith("."):
        wrong.append("the statement must be a sentence that ends with a full stop")
    return wrong + _level_errors(table) + known_failures.table_errors(table.get("known_failures", []))


def _level_errors(table: Mapping[str, Any]) -> list[str]:
    wrong = []
    for key in ("since", "until"):
        try:
            protocol_level(table.get(key, "0"))
        except ValueError as error:
            wrong.append(f"{key} {error}")
    both = not wrong and "since" in table and "until" in table
    if both and protocol_level(table["since"]) >= protocol_level(table["until"]):
        wrong.append("'since' must be earlier than 'until'")
    return wrong
