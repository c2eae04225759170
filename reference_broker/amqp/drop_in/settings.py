"""The settings of ``plumbline-rabbitmq``, from rabbitmq.conf, the environment and the command line. Pure.

Source: RabbitMQ, "Configuration", "TLS Support", "Management Plugin", "Access Control".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from plumbline.reference_broker.amqp.config import (
    DEFAULT_USER,
    LOGINS,
    Config,
    ConfigError,
    Permission,
    TlsSettings,
)
from plumbline.reference_broker.amqp.drop_in.language import Line
from plumbline.reference_broker.amqp.topology.queues import CLASSIC, QUORUM

EVERYWHERE = "0.0.0.0"
AMQP_PORT, MANAGEMENT_ABOVE = 5672, 10_000
ANY = 0  # a free port
MAX_PORT = 65535
ADMINISTRATOR = "administrator"
NODE = "rabbit@localhost"
PRODUCT = "RabbitMQ"  # clients and their test suites look for this name

# Accepted; they change nothing that a client sees of this one server.
WITHOUT_EFFECT = (
    "log", "cluster_formation", "cluster_name", "cluster_partition_handling", "cluster_keepalive_interval",
    "vm_memory_high_watermark", "vm_memory_high_watermark_paging_ratio", "vm_memory_calculation_strategy",
    "disk_free_limit", "queue_index_embed_msgs_below", "collect_statistics", "collect_statistics_interval",
    "tcp_listen_options", "num_acceptors", "ssl_handshake_timeout", "reverse_dns_lookups", "proxy_protocol",
    "management", "management_agent", "prometheus", "total_memory_available_override_value", "distribution",
    "mirroring_sync_batch_size", "mnesia_table_loading_retry_timeout", "mnesia_table_loading_retry_limit",
    "background_gc_enabled", "background_gc_target_interval", "queue_master_locator", "raft", "motd_file",
    "delegate_count", "statistics", "deprecated_features", "quorum_queue", "classic_queue", "feature_flags",
)  # fmt: skip

Read = Callable[[str], str]


class Settings(Struct, frozen=True):
    """A whole server. A port of ``ANY`` is a free one, None is no listener."""

    config: Config  # its port is that of the listener without TLS
    plain: bool = True  # whether that listener is there
    tls_host: str = EVERYWHERE
    tls_port: int | None = None
    tls: TlsSettings | None = None
    management_host: str = EVERYWHERE
    management_port: int = ANY
    definitions: str = ""  # a file
    node: str = NODE
    pid_file: str = ""
    defects: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()


class Lines:
    """The lines of a configuration that are not read yet."""

    def __init__(self, lines: Mapping[str, Line]) -> None:
        self._lines = dict(lines)

    def text(self, key: str, usual: str = "") -> str:
        line = self._lines.pop(key, None)
        return usual if line is None else line.value

    def number(self, key: str, usual: int, *, least: int = 0, most: int = 2**53) -> int:
        """Raises ``ConfigError``."""
        line = self._lines.pop(key, None)
        return usual if line is None else _number(line.value, f"{line.place}: {key}", least, most)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """The first of ``choices`` if it is not given. Raises ``ConfigError``."""
        line = self._lines.pop(key, None)
        if line is None:
            return choices[0]
        if line.value not in choices:
            raise ConfigError(f"{line.place}: {key} is one of {', '.join(choices)}, not '{line.value}'")
        return line.value

    def switch(self, key: str, *, usual: bool) -> bool:
        """Raises ``ConfigError``."""
        return self.choice(key, ("true", "false") if usual else ("false", "true")) == "true"

    def below(self, prefix: str) -> dict[str, str]:
        """What begins with ``prefix`` and a dot, by the rest of its key."""
        keys = [key for key in self._lines if key.startswith(f"{prefix}.")]
        return {key.removeprefix(f"{prefix}."): self._lines.pop(key).value for key in keys}

    def listener(self, name: str) -> tuple[str, int] | None:
        """The listener ``name``, or the first of a list; host and port. Raises ``ConfigError``."""
        found = {}
        for key in [key for key in self._lines if key.startswith(f"{name}.")]:
            line = self._lines.pop(key)
            host, _, port = line.value.rpartition(":")
            found[key] = (host.strip("[]") or EVERYWHERE, port_of(port, f"{line.place}: {key}"))
        if len(found) > 1:
            raise ConfigError(f"{' and '.join(found)}: there is one listener of a kind")
        return next(iter(found.values()), None)

    def rest(self) -> tuple[str, ...]:
        """The keys without effect. Raises ``ConfigError`` for one that is none of RabbitMQ's."""
        for key, line in self._lines.items():
            if key.partition(".")[0] not in WITHOUT_EFFECT:
                raise ConfigError(f"{line.place}: this server has no setting '{key}'")
        return tuple(self._lines)


def port_of(text: str, what: str) -> int:
    """0 and -1 are a free port. Raises ``ConfigError``."""
    return ANY if text.strip() == "-1" else _number(text.strip(), what, 0, MAX_PORT)


def settings(lines: Mapping[str, Line], environment: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """Flags come before the environment, and the environment before the file. Raises ``ConfigError``."""
    left = Lines(lines)
    plain, secure = left.listener("listeners.tcp"), left.listener("listeners.ssl")
    is_plain = _is_plain(left.text("listeners.tcp"))
    host, port = plain or (EVERYWHERE, AMQP_PORT)
    host = environment.get("RABBITMQ_NODE_IP_ADDRESS") or host
    for text, what in (
        (environment.get("RABBITMQ_NODE_PORT"), "RABBITMQ_NODE_PORT"),
        (flags.get("port"), "--port"),
    ):
        if text:
            port = port_of(text, what)
    tls = _tls(left)
    if secure is None and not is_plain:
        raise ConfigError("listeners.tcp = none leaves no listener: give listeners.ssl.default, too")
    if secure is not None and tls is None:
        raise ConfigError("listeners.ssl needs ssl_options.certfile and ssl_options.keyfile")
    management_host, management_port = _management(left, port, flags)
    definitions = _definitions(left)
    config = _config(left, host, port, environment)
    if definitions:  # users and virtual hosts are there, and no other
        config = msgspec.structs.replace(config, users={}, tags={}, vhosts=(), permissions={})
    return Settings(
        config=config,
        plain=is_plain,
        tls_host=secure[0] if secure else EVERYWHERE,
        tls_port=secure[1] if secure else None,
        tls=tls,
        management_host=management_host,
        management_port=management_port,
        definitions=definitions,
        node=environment.get("RABBITMQ_NODENAME") or NODE,
        pid_file=environment.get("RABBITMQ_PID_FILE", ""),
        defects=tuple(flags.get("defect", ())),
        without_effect=left.rest(),
    )


def _is_plain(listeners: str) -> bool:
    """``listeners.tcp = none`` leaves the one with TLS."""
    if listeners not in ("", "none"):
        raise ConfigError(f"listeners.tcp is none or has a name: listeners.tcp.default = {listeners}")
    return not listeners


def _management(left: Lines, port: int, flags: Mapping[str, Any]) -> tuple[str, int]:
    own = port + MANAGEMENT_ABOVE
    usual = own if port != ANY and own <= MAX_PORT else ANY
    host, found = EVERYWHERE, usual
    for prefix in ("management.listener", "management.tcp"):
        host = left.text(f"{prefix}.ip", host)
        found = left.number(f"{prefix}.port", found, most=MAX_PORT)
    if flags.get("management-port"):
        found = port_of(flags["management-port"], "--management-port")
    return host, found


def _definitions(left: Lines) -> str:
    file = left.text("load_definitions") or left.text("management.load_definitions")
    if left.choice("definitions.import_backend", ("local_filesystem",)) == "local_filesystem":
        file = left.text("definitions.local.path", file)
    return file


def _tls(left: Lines) -> TlsSettings | None:
    """Raises ``ConfigError``."""
    verify = left.choice("ssl_options.verify", ("verify_none", "verify_peer")) == "verify_peer"
    required = left.switch("ssl_options.fail_if_no_peer_cert", usual=False)
    login_from = left.choice("ssl_cert_login_from", LOGINS)
    files = left.below("ssl_options")
    if not files.get("certfile") or not files.get("keyfile"):
        return None
    return TlsSettings(
        certfile=files["certfile"],
        keyfile=files["keyfile"],
        cacertfile=files.get("cacertfile", ""),
        password=files.get("password", ""),
        verify=verify,
        required=required,
        login_from=login_from,
    )


def _config(left: Lines, host: str, port: int, environment: Mapping[str, str]) -> Config:
    user = left.text("default_user", environment.get("RABBITMQ_DEFAULT_USER") or DEFAULT_USER)
    password = left.text("default_pass", environment.get("RABBITMQ_DEFAULT_PASS") or DEFAULT_USER)
    vhost = left.text("default_vhost", environment.get("RABBITMQ_DEFAULT_VHOST") or "/")
    rights = left.below("default_permissions")
    tags = left.below("default_user_tags") or {ADMINISTRATOR: "true"}
    local = left.below("loopback_users")
    usual = Config()
    return Config(
        product=PRODUCT,
        queue_types=(CLASSIC, QUORUM),
        host=host,
        port=port,
        users={user: password},
        tags={user: tuple(name for name, value in tags.items() if value == "true")},
        vhosts=(vhost,),
        permissions={user: {vhost: _permission(rights)}},
        loopback_users=_loopback(left.text("loopback_users"), local),
        auth_mechanisms=_mechanisms(left),
        channel_max=left.number("channel_max", usual.channel_max, most=65535),
        frame_max=left.number("frame_max", usual.frame_max, least=4096, most=2**31),
        heartbeat=left.number("heartbeat", usual.heartbeat, most=65535),
        handshake_timeout=left.number("handshake_timeout", round(1000 * usual.handshake_timeout)) / 1000,
        max_message_size=left.number("max_message_size", usual.max_message_size),
        consumer_timeout=left.number("consumer_timeout", round(1000 * usual.consumer_timeout)) / 1000,
    )


def _permission(rights: Mapping[str, str]) -> Permission:
    try:
        return msgspec.convert(rights, Permission)
    except msgspec.ValidationError as error:
        raise ConfigError(f"default_permissions: {error}") from None


def _loopback(none: str, local: Mapping[str, str]) -> tuple[str, ...]:
    """``loopback_users = none``, or a line for each user."""
    if none == "none":
        return ()
    return tuple(dict.fromkeys(name for name in (DEFAULT_USER, *local) if local.get(name, "true") == "true"))


def _mechanisms(left: Lines) -> tuple[str, ...]:
    """Raises ``ConfigError`` for one that this server has not."""
    found = [value for _, value in sorted(left.below("auth_mechanisms").items())]
    for one in found:
        if one not in ("PLAIN", "AMQPLAIN", "EXTERNAL"):
            raise ConfigError(f"auth_mechanisms: this server has no mechanism '{one}'")
    for backend in left.below("auth_backends").values():
        if backend not in ("internal", "rabbit_auth_backend_internal"):
            raise ConfigError(f"auth_backends: this server has no backend '{backend}'")
    return tuple(found) or Config().auth_mechanisms


def _number(text: str, what: str, least: int, most: int) -> int:
    """Also ``64MB`` and ``1GiB``. Raises ``ConfigError``."""
    parts = re.fullmatch(r"([0-9]{1,18})\s*([kKMGT]i?[bB]?|)", text, re.ASCII)
    if parts is None:
        raise ConfigError(f"{what} is a number, not '{text}'")
    unit = parts[2].lower().removesuffix("b")
    value = int(parts[1])
    if unit:
        value *= (1024 if unit.endswith("i") or len(parts[2]) == 1 else 1000) ** ("kmgt".index(unit[0]) + 1)
    if not least <= value <= most:
        raise ConfigError(f"{what} is a number from {least} to {most}, not {text}")
    return value
