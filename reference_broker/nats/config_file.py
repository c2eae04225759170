"""nats-server's configuration, in its JSON form, to ``Config``: aliases, short forms, and clear errors.

Source: docs.nats.io, "Server Configuration"; keys are case-insensitive there, so they are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.auth import secret_problem
from plumbline.reference_broker.nats.config import Config, ConfigError, ResponsePermission
from plumbline.reference_broker.nats.levels import parse_level
from plumbline.reference_broker.nats.nkeys import public_key
from plumbline.untrusted import read_file
from plumbline.wire.units import SECOND, read_duration, read_number

_ALIASES = {
    "net": "host",
    "max_conn": "max_connections",
    "max_subs": "max_subscriptions",
    "username": "user",
    "pass": "password",
    "pub": "publish",
    "sub": "subscribe",
    "default_permission": "default_permissions",
    "permission": "permissions",
    "max_mem": "max_memory_store",
    "max_mem_store": "max_memory_store",
    "max_file": "max_file_store",
    "storedir": "store_dir",
}
_IGNORED = {
    "debug",
    "trace",
    "logtime",
    "logfile",
    "log_file",
    "pid_file",
    "ports_file_dir",
}  # not on the wire
ANY_PORT = -1  # nats-server's way to say "a free one"
_DURATIONS = {"ping_interval", "expires", "write_deadline", "timeout", "sync_interval"}
_SYNC_WORDS = ("always", "never")  # of sync_interval; the types refuse them elsewhere


def load(
    path: Path, *, defaults: Mapping[str, Any] | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Read a file, between keys that count less and keys that count more. Raises ``ConfigError``."""
    try:
        text = read_file(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        fields = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise ConfigError(f"{path}: write the configuration as JSON ({error})") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: write one JSON object")
    try:
        return convert(defaults or {}, fields, overrides or {})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def convert(*sources: Mapping[str, Any]) -> Config:
    """Configuration objects, later ones overruling, to ``Config``.

    Raises ``ConfigError``, which names the key.
    """
    known: dict[str, Any] = {}
    for fields in sources:
        keys = _expand_listen(_keys(fields))
        if keys.get("jetstream") is True and known.get("jetstream"):
            del keys["jetstream"]  # it is on already, with options
        known |= keys
    if known.get("port") == ANY_PORT:
        known["port"] = 0
    if isinstance(known.get("level"), str):
        try:
            known["level"] = parse_level(known["level"])
        except ValueError as error:
            raise ConfigError(str(error)) from None
    store_dir = known.pop("store_dir", None)
    known["jetstream"] = _jetstream(known.get("jetstream"), store_dir, known.pop("fsync", None))
    if isinstance(known.get("authorization"), Mapping):
        known["authorization"] = _authorization(known["authorization"])
    known |= _accounts_and_mappings(known)
    if known.get("operator"):
        known |= _of_operator(known)
    try:
        return msgspec.convert(known, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), known)) from None


def _keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One level of an object: keys in the spelling of ``Config``, durations in seconds."""
    known: dict[str, Any] = {}
    for key, value in fields.items():
        name = _ALIASES.get(key.lower(), key.lower())
        if name in _IGNORED:
            continue
        known[name] = _seconds(name, value) if name in _DURATIONS and value not in _SYNC_WORDS else value
    return known


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    duration = read_duration(value) if isinstance(value, str) else None
    if duration is None:
        raise ConfigError(f'{name} {value!r} is not a duration: write "500ms", "2s", "1m30s" or seconds')
    return duration / SECOND


def _expand_listen(known: dict[str, Any]) -> dict[str, Any]:
    """``listen: "host:port"`` means both."""
    listen = known.pop("listen", None)
    if listen is None:
        return known
    host, _, port = str(listen).rpartition(":")
    number = read_number(port)
    if number is None:
        raise ConfigError(f'listen {listen!r} is not an address: write "127.0.0.1:4222"')
    return {**known, "port": number, **({"host": host} if host else {})}


def _jetstream(value: Any, store_dir: Any, fsync: Any) -> Any:
    if isinstance(value, str):
        value = {"enabled": True, "enable": True, "disabled": False, "disable": False}.get(
            value.lower(), value
        )
    if value in (None, False):
        return None
    block = _keys(value) if isinstance(value, Mapping) else {} if value is True else value
    if isinstance(block, dict):
        if block.pop("enabled", block.pop("enable", True)) is False:
            return None
        if store_dir is not None:
            block.setdefault("store_dir", store_dir)
        if fsync in ("always", "never"):
            block["sync_interval"] = fsync
        elif fsync == "interval" and isinstance(block.get("sync_interval"), str):
            del block["sync_interval"]
    return block


def _accounts_and_mappings(known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of them that are there. Their forms are many: the drop-in reads all of them."""
    given = {name: known[name] for name in ("accounts", "mappings") if isinstance(known.get(name), Mapping)}
    if not given:
        return {}
    from plumbline.reference_broker.nats.drop_in.language import placed
    from plumbline.reference_broker.nats.drop_in.options import read_accounts

    return read_accounts(placed(given))


def _of_operator(known: dict[str, Any]) -> Mapping[str, Any]:
    """The accounts that the operator has signed, from JWTs in the configuration, which are taken out."""
    from plumbline.reference_broker.nats.drop_in.operators import settings_of

    if str(known.pop("resolver", "")).upper() != "MEMORY":
        raise ConfigError("an operator needs the resolver MEMORY with the accounts in resolver_preload")
    given = {
        "operator": [known.pop("operator")],
        "resolver_preload": known.pop("resolver_preload", {}),
        "system_account": known.get("system_account"),
    }
    try:
        return settings_of(given)
    except (*UNDECODABLE, TypeError, AttributeError) as error:  # of any type, in JSON
        raise ConfigError(f"operator: {error}") from None


def _authorization(block: Mapping[str, Any]) -> dict[str, Any]:
    known = _keys(block)
    if "permissions" in known:
        known["default_permissions"] = known.pop("permissions")
    if "default_permissions" in known:
        known["default_permissions"] = _permissions(known["default_permissions"])
    if isinstance(known.get("users"), list | tuple):
        known["users"] = [_user(user) if isinstance(user, Mapping) else user for user in known["users"]]
    _check_bcrypt(known.get("password"))
    _check_bcrypt(known.get("token"))
    return known


def _user(block: Mapping[str, Any]) -> dict[str, Any]:
    known = _keys(block)
    if "authorization" in known:  # an old name for it
        known["permissions"] = known.pop("authorization")
    if "permissions" in known:
        known["permissions"] = _permissions(known["permissions"])
    _check_bcrypt(known.get("password"))
    if known.get("nkey"):
        try:
            public_key(str(known["nkey"]))
        except ValueError as error:
            raise ConfigError(f"nkey {error}") from None
    elif not known.get("user"):
        raise ConfigError("a user has neither user nor nkey")
    return known


def _check_bcrypt(secret: Any) -> None:
    if isinstance(secret, str) and (problem := secret_problem(secret)):
        raise ConfigError(problem)


def _permissions(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        name: _responses(entry) if name == "allow_responses" else _permission(entry)
        for name, entry in _keys(value).items()
    }


def _responses(value: Any) -> Any:
    """``true`` is one response."""
    if not isinstance(value, Mapping):
        return ResponsePermission() if value is True else None if value is False else value
    return {{"max": "max_msgs"}.get(name, name): entry for name, entry in _keys(value).items()}


def _permission(value: Any) -> Any:
    """``"a"`` and ``["a", "b"]`` are short for ``{"allow": [...]}``."""
    if not isinstance(value, Mapping):
        value = {"allow": value}
    return {name: [entry] if isinstance(entry, str) else entry for name, entry in _keys(value).items()}


def _explain(message: str, known: Mapping[str, Any]) -> str:
    """The sentence of msgspec, and for an unknown key what could be meant."""
    for name in known:
        if name not in Config.__struct_fields__:
            return f"{name!r} is not a key of this broker; it knows {', '.join(Config.__struct_fields__)}"
    return message
