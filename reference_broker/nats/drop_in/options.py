"""The blocks and keys of a configuration file of nats-server, and the ``Settings`` they make. Pure.

A key that is not here is unknown to nats-server, too. Keys without an effect in one process are accepted, and
``Settings.without_effect`` names them; what would be unsafe or impossible to leave out is refused.
Source: docs.nats.io, "Server Configuration".
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from plumbline.reference_broker.nats.accounts import import_problem
from plumbline.reference_broker.nats.config import (
    Account,
    AccountLimits,
    Authorization,
    Config,
    Destination,
    Export,
    Import,
    JetStreamOptions,
    Permission,
    Permissions,
    ResponsePermission,
    SubjectMapping,
    User,
)
from plumbline.reference_broker.nats.drop_in.language import Value, plain
from plumbline.reference_broker.nats.drop_in.reading import (
    IGNORED,
    Address,
    address,
    anything,
    boolean,
    duration,
    integer,
    items,
    read_block,
    seconds,
    secret,
    size,
    table,
    text,
    texts,
)
from plumbline.reference_broker.nats.mappings import mappings_problem
from plumbline.reference_broker.nats.nkeys import public_key
from plumbline.wire.units import read_number

EVERYWHERE = "0.0.0.0"
OPERATOR_KEYS = "operator operators roots root root_operators root_operator"


class TlsOptions(Struct, frozen=True):
    """A ``tls`` block. ``handshake_first``: TLS begins before INFO; ``auto``: if the client begins it."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str | None = None
    verify: bool = False
    handshake_first: bool | Literal["auto"] = False
    timeout: float = 2.0


class WebSocketOptions(Struct, frozen=True):
    """A ``websocket`` block."""

    host: str = EVERYWHERE
    port: int = 0
    no_tls: bool = False
    tls: TlsOptions | None = None
    compression: bool = False
    handshake_timeout: float = 2.0


class Settings(Struct, frozen=True, kw_only=True):
    """All that the program needs. Times are in seconds."""

    config: Config
    monitor: Address | None = None
    tls: TlsOptions | None = None
    allow_non_tls: bool = False
    websocket: WebSocketOptions | None = None
    debug: bool = False
    log_file: str | None = None
    logtime: bool = True
    logtime_utc: bool = False
    pid_file: str | None = None
    ports_file_dir: str | None = None
    lame_duck_duration: float = 120.0
    lame_duck_grace_period: float = 10.0
    defects: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    http_base_path: str = ""


# Readers of blocks


def _refused(what: str) -> Any:
    def refuse(value: Value) -> None:
        raise value.error(f"{what} not supported by this server")

    return refuse


def _permission(value: Value) -> Permission:
    """``"a"`` and ``["a", "b"]`` are short for ``{allow: [...]}``."""
    if not isinstance(value.value, dict):
        return Permission(allow=texts(value))
    return Permission(**read_block(value, table(("allow", texts), ("deny", texts))))


def _responses(value: Value) -> ResponsePermission | None:
    if isinstance(value.value, bool):
        return ResponsePermission() if value.value else None
    known = table(("max_msgs max max_messages max_responses", integer), ("expires expiration ttl", duration))
    given = {name: found for name, found in read_block(value, known).items() if found}  # 0 is the default
    return ResponsePermission(**given)


_PERMISSIONS = table(
    ("publish pub import", _permission),
    ("subscribe sub export", _permission),
    ("allow_responses publish_allow_responses", _responses),
)


def _permissions(value: Value) -> Permissions:
    return Permissions(**read_block(value, _PERMISSIONS))


def _nkey(value: Value) -> str:
    try:
        public_key(text(value))
    except ValueError as error:
        raise value.error(str(error)) from None
    return text(value)


_USER = table(
    ("user username", text),
    ("password pass", secret),
    ("nkey", _nkey),
    ("permissions permission authorization", _permissions),
    ("allowed_connection_types connection_types clients", _refused("a limit of connection types is")),
    (IGNORED + " proxy_required", anything),
)


def _user(value: Value) -> User:
    found = read_block(value, _USER, "a user")
    found.pop(IGNORED, None)
    if not found.get("user") and not found.get("nkey"):
        raise value.error("User entry requires a user")
    if found.get("nkey") and (found.get("user") or found.get("password")):
        raise value.error("Nkey users can not have usernames or passwords")
    return User(**found)


def _users(value: Value) -> tuple[User, ...]:
    found: tuple[User, ...] = items(value, _user)
    return found


_AUTHORIZATION = table(
    ("user username", text),
    ("password pass", secret),
    ("token", secret),
    ("timeout", seconds),
    ("users", _users),
    ("default_permissions default_permission permissions", _permissions),
    ("auth_callout auth_hook", _refused("an authorization callout is")),
    (IGNORED + " proxy_required", anything),
)


def _authorization(value: Value) -> Authorization:
    found = read_block(value, _AUTHORIZATION)
    found.pop(IGNORED, None)
    if "token" in found and "user" in found:
        raise value.error("Cannot have a user/pass and token")
    if "users" in found and ("user" in found or "token" in found):
        raise value.error("Can not have a single user/pass or a token and a users array")
    return Authorization(**found)


def _tls_certificates(value: Value) -> dict[str, str]:
    pairs: tuple[dict[str, str], ...] = items(
        value, lambda pair: read_block(pair, table(("cert_file", text), ("key_file", text)))
    )
    return pairs[0] if pairs else {}


def _handshake_first(value: Value) -> bool | str:
    if isinstance(value.value, bool):
        return value.value
    return {"true": True, "on": True, "false": False, "off": False}.get(text(value).lower(), "auto")


_TLS = table(
    ("cert_file", text),
    ("key_file", text),
    ("ca_file", text),
    ("verify", boolean),
    ("timeout", seconds),
    ("handshake_first first immediate", _handshake_first),
    ("certs certificates", _tls_certificates),
    ("verify_and_map", _refused("users of certificates (verify_and_map) are")),
    ("pinned_certs", _refused("pinned_certs is")),
    ("cert_store", _refused("cert_store is")),
    (
        f"{IGNORED} insecure cipher_suites curve_preferences connection_rate_limit min_version ocsp_peer "
        "verify_cert_and_check_known_urls allow_insecure_cipher_suites cert_match_by cert_match "
        "ca_certs_match cert_match_skip_invalid",
        anything,
    ),
)


def _tls(value: Value) -> TlsOptions:
    found = read_block(value, _TLS)
    found.pop(IGNORED, None)
    found.update(found.pop("certs", {}))
    if not found.get("cert_file"):
        raise value.error("missing 'cert_file' in TLS configuration")
    if not found.get("key_file"):
        raise value.error("missing 'key_file' in TLS configuration")
    return TlsOptions(**found)


_WEBSOCKET = table(
    ("listen", address),
    ("port", integer),
    ("host net", text),
    ("no_tls", boolean),
    ("tls", _tls),
    ("compression compress", boolean),
    ("handshake_timeout", duration),
    (
        f"{IGNORED} advertise same_origin allowed_origins allowed_origin allow_origins allow_origin origins "
        "origin jwt_cookie user_cookie pass_cookie token_cookie headers ping_interval no_auth_user",
        anything,
    ),
    ("authorization authentication", _refused("authorization of WebSocket alone is")),
)


def _websocket(value: Value) -> WebSocketOptions | None:
    found = host_and_port(read_block(value, _WEBSOCKET))
    found.pop(IGNORED, None)
    if "port" not in found or found["port"] == 0:
        return None
    if not found.get("no_tls") and "tls" not in found:
        raise value.error("websocket requires TLS configuration")
    return WebSocketOptions(**found | {"port": max(found["port"], 0)})


def host_and_port(found: dict[str, Any]) -> dict[str, Any]:
    """With ``host`` and ``port`` for ``listen``."""
    listen = found.pop("listen", None)
    if listen is not None:
        found["port"] = listen.port
        if listen.host:
            found["host"] = listen.host
    return found


def _switched(value: Value) -> bool | None:
    """What ``jetstream: enabled`` and ``jetstream: true`` say; None for a block."""
    if isinstance(value.value, bool):
        return value.value
    if isinstance(value.value, str):
        switches = {"enabled": True, "enable": True, "disabled": False, "disable": False}
        if value.value.lower() not in switches:
            raise value.error(f'expected "enabled" or "disabled", not {value.value!r}')
        return switches[value.value.lower()]
    return None


def _sync(value: Value) -> float | str:
    return "always" if value.value == "always" else duration(value)


_JETSTREAM = table(
    ("enabled enable", boolean),
    ("disabled disable", boolean),
    ("store_dir store storedir", text),
    ("sync_interval sync", _sync),
    ("max_memory_store max_mem_store max_mem", size),
    ("max_file_store max_file", size),
    ("domain", text),
    (
        f"{IGNORED} strict cipher extension_hint limits tpm unique_tag max_outstanding_catchup "
        "max_buffered_size max_buffered_msgs request_queue_limit info_queue_limit meta_compact "
        "meta_compact_size meta_compact_sync max_concurrent_io key ek encryption_key prev_key prev_ek "
        "prev_encryption_key",
        anything,
    ),
)


def _jetstream(value: Value) -> JetStreamOptions | None:
    switch = _switched(value)
    if switch is not None:
        return JetStreamOptions() if switch else None
    found = read_block(value, _JETSTREAM)
    found.pop(IGNORED, None)
    if not found.pop("enabled", True) or found.pop("disabled", False):
        return None
    return JetStreamOptions(**found)


_ACCOUNT_JETSTREAM = table(
    ("enabled enable", boolean),
    ("disabled disable", boolean),
    ("max_memory max_mem mem memory", size),
    ("max_storage max_store max_file max_disk store disk", size),
    ("max_streams streams", integer),
    ("max_consumers consumers", integer),
    ("max_bytes_required max_stream_bytes max_bytes", boolean),
    ("memory_max_stream_bytes mem_max_stream_bytes", size),
    ("storage_max_stream_bytes disk_max_stream_bytes store_max_stream_bytes", size),
    ("max_ack_pending", integer),
    (IGNORED + " cluster_traffic", anything),
)


def _account_jetstream(value: Value) -> AccountLimits | None:
    switch = _switched(value)
    if switch is not None:
        return AccountLimits() if switch else None
    found = read_block(value, _ACCOUNT_JETSTREAM)
    found.pop(IGNORED, None)
    if not found.pop("enabled", True) or found.pop("disabled", False):
        return None
    return AccountLimits(**found)


def _response_type(value: Value) -> Literal["singleton", "stream"]:
    """nats-server has a third one, ``chunked``, which ends like a stream."""
    name = text(value).lower()
    if name not in ("single", "singleton", "stream", "chunked", "chunk"):
        raise value.error(f"Unknown response type: {name!r}")
    return "singleton" if name.startswith("single") else "stream"


_EXPORT = table(
    ("stream", text),
    ("service", text),
    ("accounts", texts),
    ("response_type response", _response_type),
    (f"{IGNORED} threshold latency response_threshold response_time "
     "account_token_position allow_trace", anything),
)  # fmt: skip


def _export(value: Value) -> Export:
    found = read_block(value, _EXPORT)
    found.pop(IGNORED, None)
    if ("stream" in found) == ("service" in found):
        raise value.error("An export is of a stream or of a service")
    kind: Literal["stream", "service"] = "stream" if "stream" in found else "service"
    return Export(kind, found[kind], found.get("accounts"), found.get("response_type", "singleton"))


def _source(value: Value) -> dict[str, str]:
    found = read_block(value, table(("account", text), ("subject", text)))
    if len(found) < 2:
        raise value.error("An import names an account and a subject")
    return found


_IMPORT = table(
    ("stream", _source),
    ("service", _source),
    ("to", text),
    ("prefix", text),
    (IGNORED + " share allow_trace", anything),
)


def _import(value: Value) -> Import:
    found = read_block(value, _IMPORT)
    if ("stream" in found) == ("service" in found):
        raise value.error("An import is of a stream or of a service")
    kind: Literal["stream", "service"] = "stream" if "stream" in found else "service"
    source = found[kind]
    to = found.get("to") or (
        f"{found['prefix']}.{source['subject']}" if "prefix" in found else source["subject"]
    )
    return Import(kind=kind, account=source["account"], subject=source["subject"], to=to)


def _weight(value: Value) -> int:
    """``20%``, or a number."""
    written = value.value
    number = read_number(written.removesuffix("%").strip()) if isinstance(written, str) else written
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 100:
        raise value.error(f"invalid weight {plain(value)!r}: write a percentage up to 100")
    return number


_DESTINATION = table(
    ("subject dest destination", text),
    ("weight", _weight),
    (IGNORED + " cluster", anything),
)


def _destination(value: Value) -> Destination:
    found = read_block(value, _DESTINATION)
    found.pop(IGNORED, None)
    if len(found) < 2:
        raise value.error("A destination of a mapping has a subject and a weight")
    return Destination(**found)


def _mapping(source: str, value: Value) -> SubjectMapping:
    if isinstance(value.value, str):
        destinations: tuple[Destination, ...] = (Destination(value.value),)
    elif isinstance(value.value, list):
        destinations = items(value, _destination)
    else:
        destinations = (_destination(value),)
    if problem := mappings_problem(source, destinations):
        raise value.error(problem)
    return SubjectMapping(source, destinations)


def _mappings(value: Value) -> tuple[SubjectMapping, ...]:
    if not isinstance(value.value, dict):
        raise value.error("expected a map of subjects")
    return tuple(_mapping(source, found) for source, found in value.value.items())


_LIMITS = table(
    ("max_connections max_conn", integer),
    ("max_subscriptions max_subs", integer),
    ("max_payload max_pay", size),
    (IGNORED + " max_leafnodes max_leafs", integer),
)

_ACCOUNT = table(
    ("nkey", text),
    ("users", _users),
    ("jetstream", _account_jetstream),
    ("exports", lambda value: items(value, _export)),
    ("imports", lambda value: items(value, _import)),
    ("default_permissions", _permissions),
    ("mappings maps", _mappings),
    ("limits", lambda value: read_block(value, _LIMITS)),
    (IGNORED + " msg_trace trace_dest", anything),
)


def _accounts(value: Value) -> tuple[Account, ...]:
    if isinstance(value.value, list):
        names: tuple[str, ...] = items(value, text)
        return tuple(Account(name=name) for name in names)
    if not isinstance(value.value, dict):
        raise value.error("expected a map of accounts")
    return tuple(_account(name, block) for name, block in value.value.items())


def read_accounts(value: Value) -> dict[str, Any]:
    """Accounts and mappings of a block that has nothing else. Raises ``ConfigError``."""
    found = read_block(value, table(("accounts", _accounts), ("mappings", _mappings)))
    if problem := import_problem(found.get("accounts", ())):
        raise value.error(problem)
    return found


def _account(name: str, value: Value) -> Account:
    found = read_block(value, _ACCOUNT)
    for unused in (IGNORED, "nkey", "limits"):
        found.pop(unused, None)
    return Account(name=name, **found)


ONE_SERVER = "this is one server: clusters, gateways and leaf nodes are not supported"


def _of_a_cluster(value: Value) -> None:
    raise value.error(ONE_SERVER)


def _leaf_nodes(value: Value) -> None:
    """A listener for leaf nodes may be configured: nothing connects to it in a test of one server."""
    if isinstance(value.value, dict) and "remotes" in value.value:
        raise value.error(ONE_SERVER)


def _server_name(value: Value) -> str:
    if " " in text(value):
        raise value.error("server name cannot contain spaces")
    return text(value)


def _resolver(value: Value) -> str:
    """Of the resolvers of accounts only the one in memory is here."""
    name = value.value
    if isinstance(name, dict) and "type" in name:
        name = name["type"].value
    if not isinstance(name, str) or name.upper() not in ("MEM", "MEMORY"):
        raise value.error("of the resolvers of accounts, this server only has MEMORY")
    return name


def _preloaded(value: Value) -> dict[str, str]:
    if not isinstance(value.value, dict):
        raise value.error("preload should be a map of account_public_key:account_jwt")
    return {key: text(token) for key, token in value.value.items()}


TOP = table(
    ("listen", address),
    ("port", integer),
    ("host net", text),
    ("server_name", _server_name),
    ("max_payload", size),
    ("max_connections max_conn", integer),
    ("max_control_line", size),
    ("max_pending", size),
    ("max_subscriptions max_subs", integer),
    ("ping_interval", duration),
    ("ping_max", integer),
    ("write_deadline", duration),
    ("authorization", _authorization),
    ("accounts", _accounts),
    ("no_auth_user", text),
    ("system_account system", text),
    ("no_system_account no_system no_sys_acc", boolean),
    ("jetstream", _jetstream),
    ("store_dir storedir", text),
    ("default_js_domain", anything),
    ("no_header_support", boolean),
    ("tls", _tls),
    ("allow_non_tls", boolean),
    ("websocket ws", _websocket),
    ("http", address),
    ("http_port monitor_port", integer),
    ("http_base_path", text),
    ("debug", boolean),
    ("logtime", boolean),
    ("logtime_utc", boolean),
    ("log_file logfile", text),
    ("pid_file pidfile", text),
    ("ports_file_dir", text),
    ("lame_duck_duration", duration),
    ("lame_duck_grace_period", duration),
    ("level", text),
    ("cluster gateway", _of_a_cluster),
    ("leafnodes leaf", _leaf_nodes),
    ("mqtt", _refused("MQTT is")),
    (OPERATOR_KEYS, texts),
    ("trusted_keys trusted", texts),
    ("resolver account_resolver accounts_resolver", _resolver),
    ("resolver_preload", _preloaded),
    ("mappings maps", _mappings),
    (
        f"{IGNORED} client_advertise trace trace_verbose trace_headers disable_sublist_cache "
        "no_sublist_cache default_sentinel https https_port logfile_size_limit log_size_limit "
        "logfile_max_num log_max_num syslog remote_syslog prof_port prof_block_rate proxy_protocol "
        "max_traced_msg_len max_sub_tokens max_subscription_tokens ocsp write_timeout resolver_tls "
        "resolver_pinned_accounts connect_error_reports reconnect_error_reports "
        "server_tags server_metadata feature_flags ocsp_cache no_fast_producer_stall max_closed_clients "
        "proxies",
        anything,
    ),
)
