"""A configuration file and the command line of nats-server together, as ``Settings``. Pure.

Source: docs.nats.io, "Server Configuration", "Flags".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.accounts import import_problem
from plumbline.reference_broker.nats.config import (
    Account,
    Authorization,
    Config,
    ConfigError,
    JetStreamOptions,
)
from plumbline.reference_broker.nats.drop_in.language import Value, plain
from plumbline.reference_broker.nats.drop_in.options import (
    EVERYWHERE,
    ONE_SERVER,
    TOP,
    Settings,
    TlsOptions,
    host_and_port,
)
from plumbline.reference_broker.nats.drop_in.reading import IGNORED, Address, read_block
from plumbline.reference_broker.nats.levels import parse_level

NATS_PORT = 4222
SHORTEST_LAME_DUCK_S = 30.0
_OF_CONFIG = frozenset(Config.__struct_fields__)
_OF_SETTINGS = frozenset(Settings.__struct_fields__)
_CLUSTER_FLAGS = ("routes", "cluster", "cluster_name")
# Those that are named here are written to a file or change what is listened on: it would be missed.
_MISSED = {"https", "https_port", "mqtt", "proxy_protocol", "syslog", "remote_syslog", "ocsp"}


def settings(fields: Mapping[str, Value], flags: Mapping[str, Any]) -> Settings:
    """What a configuration file and the command line say together; the command line counts more.

    Raises ``ConfigError``.
    """
    for name in _CLUSTER_FLAGS:
        if flags.get(name):
            raise ConfigError(f"--{name}: {ONE_SERVER}")
    found = host_and_port(read_block(fields, TOP))
    without_effect = tuple(name for name in found.pop(IGNORED, ()) if name.lower() in _MISSED)
    _enter_operator_mode(fields, found)
    _check(fields, found)
    monitor = found.pop("http", None)
    if "http_port" in found:
        monitor = Address(None, found.pop("http_port"))
    if "http_port" in flags:
        monitor = Address(monitor.host if monitor else None, flags["http_port"])
    if monitor is not None and monitor.port != 0:
        found["monitor"] = Address(monitor.host, max(monitor.port, 0))
    tls = _tls_of(flags, found.pop("tls", None))
    config = _config(found, flags)
    for flag, name in (
        ("debug", "debug"), ("log", "log_file"), ("pid", "pid_file"), ("ports_file_dir", "ports_file_dir"),
        ("logtime", "logtime"), ("logtime_utc", "logtime_utc"),
    ):  # fmt: skip
        if flag in flags:
            found[name] = flags[flag]
    websocket = found.get("websocket")
    if websocket is not None and "addr" in flags and websocket.host == EVERYWHERE:
        found["websocket"] = structs.replace(websocket, host=flags["addr"])
    return Settings(
        config=config,
        tls=tls,
        defects=tuple(flags.get("defect", ())),
        without_effect=without_effect,
        **{name: value for name, value in found.items() if name in _OF_SETTINGS},
    )


def _enter_operator_mode(fields: Mapping[str, Value], found: dict[str, Any]) -> None:
    """Accounts from JWTs, if the configuration has an operator. Raises ``ConfigError``."""
    signers = [
        value
        for key, value in fields.items()
        if TOP.get(key.lower(), ("",))[0] in ("operator", "trusted_keys")
    ]
    if not signers:
        return
    if found.get("accounts") or found.get("authorization", Authorization()).required:
        raise signers[0].error("an operator can not be used with accounts or users of the configuration")
    from plumbline.reference_broker.nats.drop_in.operators import settings_of

    try:
        found |= settings_of(found)
    except ValueError as error:
        raise signers[0].error(str(error)) from None


def _check(fields: Mapping[str, Value], found: Mapping[str, Any]) -> None:
    """What nats-server refuses although each value is of the right type. Raises ``ConfigError``."""
    by_name = {key.lower(): value for key, value in fields.items()}
    lame_duck = found.get("lame_duck_duration", SHORTEST_LAME_DUCK_S)
    if lame_duck < SHORTEST_LAME_DUCK_S:
        raise by_name["lame_duck_duration"].error(
            f"invalid lame_duck_duration of {plain(by_name['lame_duck_duration'])}, minimum is 30 seconds"
        )
    if problem := import_problem(found.get("accounts", ())):
        raise by_name["accounts"].error(problem)
    if not -1 <= found.get("port", 0) <= 65535:
        raise by_name.get("port", by_name.get("listen", Value("", "", 0, 0))).error("there is no such port")
    if "level" in found:
        try:
            parse_level(found["level"])
        except ValueError as error:
            raise by_name["level"].error(str(error)) from None


def _tls_of(flags: Mapping[str, Any], configured: TlsOptions | None) -> TlsOptions | None:
    """The flags of TLS before the block. Raises ``ConfigError``."""
    if flags.get("tls") is False:
        return None
    names = {"tlscert": "cert_file", "tlskey": "key_file", "tlscacert": "ca_file", "tlsverify": "verify"}
    given = {name: flags[flag] for flag, name in names.items() if flag in flags}
    if not given and "tls" not in flags:
        return configured
    tls = structs.replace(configured or TlsOptions(), **given)
    if not tls.cert_file:
        raise ConfigError("TLS Server certificate must be present and valid")
    if not tls.key_file:
        raise ConfigError("TLS Server private key must be present and valid")
    return tls


def _config(found: Mapping[str, Any], flags: Mapping[str, Any]) -> Config:
    """What the broker's core is configured with. Raises ``ConfigError``."""
    fields: dict[str, Any] = {"host": EVERYWHERE, "port": NATS_PORT}
    fields |= {name: value for name, value in found.items() if name in _OF_CONFIG and value is not None}
    for flag, name in (("addr", "host"), ("port", "port"), ("server_name", "server_name")):
        if flag in flags:
            fields[name] = flags[flag]
    if not -1 <= fields["port"] <= 65535:
        raise ConfigError(f"there is no port {fields['port']}")
    fields["port"] = NATS_PORT if fields["port"] == 0 else max(fields["port"], 0)
    level = flags.get("level", found.get("level"))
    if level is not None:
        try:
            fields["level"] = parse_level(level)
        except ValueError as error:
            raise ConfigError(str(error)) from None
    jetstream = found.get("jetstream")
    if flags.get("jetstream") and jetstream is None:
        jetstream = JetStreamOptions()
    store_dir = flags.get("store_dir", found.get("store_dir"))
    if jetstream is not None and store_dir and (jetstream.store_dir is None or "store_dir" in flags):
        jetstream = structs.replace(jetstream, store_dir=store_dir)
    fields["jetstream"] = jetstream
    fields["authorization"] = _logins(found, flags)
    return Config(**fields)


def _logins(found: Mapping[str, Any], flags: Mapping[str, Any]) -> Authorization:
    """Users of the block ``authorization`` or of the flags. Raises ``ConfigError``."""
    authorization: Authorization = found.get("authorization", Authorization())
    if "auth" in flags:
        authorization = structs.replace(
            authorization, token=flags["auth"], user=None, password=None, users=()
        )
    elif "user" in flags:
        authorization = structs.replace(
            authorization, user=flags["user"], password=flags.get("pass", ""), token=None, users=()
        )
    accounts: tuple[Account, ...] = found.get("accounts", ())
    if accounts and (authorization.user is not None or authorization.token is not None):
        raise ConfigError("Can not have a single user/pass or a token with accounts that have users")
    names = [user.nkey or user.user for user in authorization.users]
    names += [user.nkey or user.user for account in accounts for user in account.users]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f'Duplicate user "{name}" detected')
    no_auth_user = found.get("no_auth_user")
    if no_auth_user is not None and no_auth_user not in names:
        raise ConfigError(
            f'no_auth_user: "{no_auth_user}" not present as user or nkey in authorization block or account '
            "configuration"
        )
    return authorization
