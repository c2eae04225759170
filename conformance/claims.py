"""The claims file: what a vendor states about a product, in the sense of a PICS (ISO/IEC 9646-7).

It lists the profiles, options and limits that the product claims, its versions, its protocol level, and a
command that starts it again. A run compares it with what the server announces: INFO and the account
information of NATS, the server properties and connection.tune of AMQP. A contradiction makes the run red.
What the server announces and the file does not mention is no contradiction.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from plumbline.conformance.nats.grants import Grants
from plumbline.conformance.requirements.catalogue import PROFILES, protocol_level
from plumbline.conformance.waivers import toml_string
from plumbline.errors import PlumblineError
from plumbline.untrusted import BadInputError, parse_toml, read_file
from plumbline.verdicts import ClaimRow, ClaimsReport, RequirementResult, Target, tally
from plumbline.versions import holds, numbers

YES, NO = "yes", "no"
_YES_NO = {True: YES, False: NO, None: ""}

# The profiles that a server can claim, and by which option it announces one. "": by speaking the protocol at
# all; None: it does not announce it.
_ANNOUNCED_BY: Mapping[str, Mapping[str, str | None]] = {
    "nats": {
        "nats-core": "",
        "nats-core-config": None,
        "jetstream": "jetstream",
        "jetstream-push": "jetstream",
        "kv": "jetstream",
        "object-store": "jetstream",
    },
    "amqp": {
        "amqp-core": "",
        "rabbitmq-acks": None,
        "rabbitmq-confirms": "publisher_confirms",
        "rabbitmq-dlx": None,
        "rabbitmq-permissions": None,
        "rabbitmq-tls": None,
        "durability": None,
    },
}
# Fields of INFO that are true or false; capabilities of RabbitMQ's server properties.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "nats": ("headers", "jetstream", "auth_required", "tls_required", "tls_available"),
    "amqp": (
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    ),
}
# max_payload is in INFO, the others in the account information; those of AMQP are in connection.tune.
_LIMITS: Mapping[str, tuple[str, ...]] = {
    "nats": (
        "max_payload",
        "max_memory",
        "max_storage",
        "max_streams",
        "max_consumers",
        "max_ack_pending",
        "memory_max_stream_bytes",
        "storage_max_stream_bytes",
    ),
    "amqp": ("channel_max", "frame_max", "heartbeat"),
}
_SOURCE = {"nats": "INFO", "amqp": "connection.start"}
_LIMIT_SOURCE = {"nats": "the account information", "amqp": "connection.tune"}


class ClaimsError(PlumblineError, ValueError):
    """The claims file cannot be used; the text says where and what to write instead."""


class Claims(Struct, frozen=True, kw_only=True):
    """The keys of a claims file.

    ``versions``: a range, as in waivers. ``level``: the protocol level, as ``--level``. ``restart``: a
    command line with ``{port}`` and ``{store}`` that starts a server like the target, with its data in that
    folder. ``file``: its path; no key.
    """

    profiles: tuple[str, ...]
    product: str = ""
    versions: str = ""
    level: str = ""
    restart: str = ""
    options: dict[str, bool] = {}
    limits: dict[str, int] = {}
    file: str = ""

    def claims_option(self, name: str, protocol: str) -> bool:
        """Whether it claims this option, also by a profile that is announced by it."""
        announced_by = _ANNOUNCED_BY[protocol]
        return self.options.get(name, False) or any(
            announced_by[profile] == name for profile in self.profiles
        )


_KEYS = tuple(key for key in Claims.__struct_fields__ if key != "file")


def load_claims(path: Path, protocol: str) -> Claims:
    """Read a claims file for a server of this protocol. Raises ``ClaimsError``, all that is wrong at once."""
    try:
        data = read_file(path)
        table = parse_toml(data, dict[str, Any])
    except OSError as error:
        raise ClaimsError(f"{path}: {error.strerror}") from None
    except BadInputError as error:
        raise ClaimsError(f"{path}: {error}") from None
    problems = [*_unknown("key", table, _KEYS)]
    if not problems:
        try:
            claims = parse_toml(data, Claims)
        except BadInputError as error:
            raise ClaimsError(f'{path}: {error}; for example: profiles = ["{_first(protocol)}"]') from None
        problems = [*_problems(claims, protocol)]
    if problems:
        raise ClaimsError("\n".join(f"{path}: {problem}" for problem in problems))
    return replace(claims, file=str(path))


def _first(protocol: str) -> str:
    return next(iter(_ANNOUNCED_BY[protocol]))


def _problems(claims: Claims, protocol: str) -> Iterable[str]:
    yield from _unknown(f"profile of {protocol}", claims.profiles, _ANNOUNCED_BY[protocol])
    yield from _unknown(f"option of {protocol}", claims.options, _OPTIONS[protocol])
    yield from _unknown(f"limit of {protocol}", claims.limits, _LIMITS[protocol])
    if not claims.profiles:
        yield f"profiles is empty; known: {', '.join(_ANNOUNCED_BY[protocol])}"
    try:
        holds(claims.versions, "0")
    except ValueError as error:
        yield f"versions: {error}"
    try:
        if claims.level and len(protocol_level(claims.level)) < 2:
            yield f"level: {claims.level!r} is not a protocol level; write for example 2.10"
    except ValueError as error:
        yield f"level: {error}"
    if problem := _restart_problem(claims.restart):
        yield f"restart: {problem}"


def _restart_problem(command: str) -> str:
    if not command:
        return ""
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"it is no command line ({error})"
    if not any("{port}" in word for word in words) or not any("{store}" in word for word in words):
        return "write a command with {port} and {store}, for example: my-server --port {port} --data {store}"
    return ""


def _unknown(what: str, names: Iterable[str], known: Collection[str]) -> Iterable[str]:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
            hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(known)}"
            yield f"unknown {what} {name!r}; {hint}"


# -- what the server announces -------------------------------------------------------------------


class Announcement(Struct, frozen=True):
    """What a server announces. What it does not mention is not in here."""

    protocol: str
    version: str
    profiles: dict[str, bool]
    options: dict[str, bool]
    limits: dict[str, int]


def announcement(target: Target, info: Mapping[str, Any], grants: Grants) -> Announcement:
    """What the target announces of the things that a claims file can name."""
    protocol = target.protocol
    options = {name: name in target.features for name in _OPTIONS[protocol]}
    shown = {**grants.limits, **info} if protocol == "nats" else info
    limits = {name: shown[name] for name in _LIMITS[protocol] if type(shown.get(name)) is int}
    announced_by = _ANNOUNCED_BY[protocol]
    profiles = {
        profile: not option or options[option]
        for profile, option in announced_by.items()
        if option is not None
    }
    return Announcement(protocol, target.version, profiles, options, limits)


# -- comparison ----------------------------------------------------------------------------------


def compare(claims: Claims, announced: Announcement) -> ClaimsReport:
    """Claimed and announced, side by side; ``with_results`` adds what the run found."""
    rows = [
        *_profile_rows(claims, announced),
        *_option_rows(claims, announced),
        *_limit_rows(claims, announced),
    ]
    if claims.versions:
        rows.insert(0, _version_row(claims, announced))
    return ClaimsReport(claims.file, claims.product, tuple(rows))


def with_results(report: ClaimsReport, requirements: Collection[RequirementResult]) -> ClaimsReport:
    """The same with how many requirements of each profile were claimed, tested and passed."""
    rows = (
        replace(row, requirements=tally(found for found in requirements if found.profile == row.name))
        if row.kind == "profile"
        else row
        for row in report.rows
    )
    return replace(report, rows=tuple(rows))


def contradictions(report: ClaimsReport) -> list[str]:
    """One sentence for each."""
    return [row.contradiction for row in report.rows if row.contradiction]


def _version_row(claims: Claims, announced: Announcement) -> ClaimRow:
    is_claimed = bool(numbers(announced.version)) and holds(claims.versions, announced.version)
    wrong = (
        ""
        if is_claimed
        else f"the claims are about version {claims.versions}, and the server announces "
        f"{announced.version or 'no version'}"
    )
    return ClaimRow("version", "version", claims.versions, announced.version, contradiction=wrong)


def _profile_rows(claims: Claims, announced: Announcement) -> Iterable[ClaimRow]:
    for name in _ANNOUNCED_BY[announced.protocol]:
        shown = announced.profiles.get(name)
        claimed = name in claims.profiles
        option = _ANNOUNCED_BY[announced.protocol][name]
        wrong = (
            f"the profile {name} is claimed, and {_SOURCE[announced.protocol]} does not announce {option}"
            if claimed and shown is False
            else ""
        )
        yield ClaimRow("profile", name, YES if claimed else NO, _YES_NO[shown], contradiction=wrong)


def _option_rows(claims: Claims, announced: Announcement) -> Iterable[ClaimRow]:
    source = _SOURCE[announced.protocol]
    for name in _OPTIONS[announced.protocol]:
        claimed, shown = claims.options.get(name), announced.options[name]
        wrong = ""
        if claimed and not shown:
            wrong = f"the option {name} is claimed, and {source} does not announce it"
        if claimed is False and shown:
            wrong = f"the option {name} is claimed to be absent, and {source} announces it"
        if claimed is not None or shown:
            yield ClaimRow("option", name, _YES_NO[claimed], _YES_NO[shown], contradiction=wrong)


def _limit_rows(claims: Claims, announced: Announcement) -> Iterable[ClaimRow]:
    for name in _LIMITS[announced.protocol]:
        claimed, shown = claims.limits.get(name), announced.limits.get(name)
        source = "INFO" if name == "max_payload" else _LIMIT_SOURCE[announced.protocol]
        wrong = ""
        if claimed is not None and claimed != shown:
            found = f"announces {shown}" if shown is not None else "does not announce it"
            wrong = f"the limit {name} is claimed to be {claimed}, and {source} {found}"
        if claimed is not None or shown is not None:
            yield ClaimRow("limit", name, _text(claimed), _text(shown), contradiction=wrong)


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


# -- draft ---------------------------------------------------------------------------------------


def draft_claims(announced: Announcement) -> str:
    """A claims file with what the server announces; the rest is in comments, for the vendor to decide."""
    version = f"=={announced.version}" if numbers(announced.version) else ""
    lines = [
        "# What this product claims. Drafted from what the server announces: check every line.",
        'product = ""',
        f"versions = {toml_string(version)}",
        "# A command that starts a server like this one; the checks of restarts use it:",
        '# restart = "my-server --port {port} --data {store}"',
        "profiles = [",
        *(
            f"    {'' if announced.profiles.get(name) else '# '}{toml_string(name)},  # {PROFILES[name]}"
            for name in _ANNOUNCED_BY[announced.protocol]
        ),
        "]",
        "",
        "[options]",
        *(f"{_key(name)} = {str(value).lower()}" for name, value in announced.options.items()),
        "",
        "[limits]",
        *(f"{name} = {value}" for name, value in announced.limits.items()),
    ]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return toml_string(name) if "." in name else name
