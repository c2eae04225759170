"""The command line of nats-server, as Go's package ``flag`` reads it: ``-p 1``, ``--p=1``, ``-js=false``.

Pure. Source: ``nats-server --help``; pkg.go.dev/flag, "Command line flag syntax".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plumbline.reference_broker.nats.config import ConfigError

USAGE = """
Usage: nats-server [options]

Server Options:
    -a, --addr, --net <host>         Bind to host address (default: 0.0.0.0)
    -p, --port <port>                Use port for clients (default: 4222; -1: a free one)
    -n, --name, --server_name <name> Server name (default: auto)
    -P, --pid <file>                 File to store PID
    -m, --http_port <port>           Use port for http monitoring
    -c, --config <file>              Configuration file
    -t                               Test configuration and exit
    -sl,--signal <signal>[=<pid>]    Send signal to a process (ldm, stop, quit, term, reopen, reload)
        --ports_file_dir <dir>       Creates a ports file in this directory (nats-server_<pid>.ports)

Logging Options:
    -l, --log <file>                 File to redirect log output
    -T, --logtime                    Timestamp log entries (default: true)
        --logtime_utc                Timestamps in UTC instead of local timezone (default: false)
    -D, --debug                      Enable debugging output
    -V, --trace                      Accepted; has no effect
    -DV                              As -D

JetStream Options:
    -js, --jetstream                 Enable JetStream functionality
    -sd, --store_dir <dir>           Set the storage directory

Authorization Options:
        --user <user>                User required for connections
        --pass <password>            Password required for connections
        --auth <token>               Authorization token required for connections

TLS Options:
        --tls                        Enable TLS, do not verify clients (default: false)
        --tlscert <file>             Server certificate file
        --tlskey <file>              Private key for server certificate
        --tlsverify                  Enable TLS, verify client certificates
        --tlscacert <file>           Client certificate CA for verification

Options of the reference broker:
        --level <version>            Behave like nats-server of this version
        --defect <name>              Enable a deliberate fault; repeatable

Common Options:
    -h, --help                       Show this message
    -v, --version                    Show version
"""

SWITCHES = {
    "h": "help", "help": "help", "v": "version", "version": "version", "t": "check",
    "D": "debug", "debug": "debug", "V": "trace", "trace": "trace", "VV": "trace",
    "DV": "debug", "DVV": "debug", "T": "logtime", "logtime": "logtime", "logtime_utc": "logtime_utc",
    "js": "jetstream", "jetstream": "jetstream", "tls": "tls", "tlsverify": "tlsverify",
    "s": "syslog", "syslog": "syslog", "no_advertise": "no_advertise",
}  # fmt: skip
TEXTS = {
    "a": "addr", "addr": "addr", "net": "addr",
    "n": "server_name", "name": "server_name", "server_name": "server_name",
    "c": "config", "config": "config", "P": "pid", "pid": "pid", "ports_file_dir": "ports_file_dir",
    "l": "log", "log": "log", "sl": "signal", "signal": "signal",
    "sd": "store_dir", "store_dir": "store_dir",
    "user": "user", "pass": "pass", "auth": "auth",
    "tlscert": "tlscert", "tlskey": "tlskey", "tlscacert": "tlscacert",
    "client_advertise": "client_advertise", "r": "remote_syslog", "remote_syslog": "remote_syslog",
    "routes": "routes", "cluster": "cluster", "cluster_listen": "cluster",
    "cluster_name": "cluster_name", "cluster_advertise": "cluster",
    "level": "level", "defect": "defect",
}  # fmt: skip
NUMBERS = {
    "p": "port", "port": "port", "m": "http_port", "http_port": "http_port",
    "ms": "https_port", "https_port": "https_port", "profile": "profile",
    "connect_retries": "connect_retries", "max_traced_msg_len": "max_traced_msg_len",
    "log_size_limit": "log_size_limit",
}  # fmt: skip
_YES = ("1", "t", "T", "true", "TRUE", "True")
_NO = ("0", "f", "F", "false", "FALSE", "False")


def read_flags(arguments: Sequence[str]) -> dict[str, Any]:
    """What is given, by the names of the tables above; ``defect`` is a list. Raises ``ConfigError``."""
    given: dict[str, Any] = {}
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if not argument.startswith("-") or argument == "-":
            raise ConfigError(f'unrecognized command: "{argument}"')
        if argument == "--":
            if left:
                raise ConfigError(f'unrecognized command: "{left[0]}"')
            break
        name, equals, value = argument.removeprefix("-").removeprefix("-").partition("=")
        if name in SWITCHES:
            given[SWITCHES[name]] = _switch(name, value) if equals else True
            continue
        if name not in TEXTS and name not in NUMBERS:
            raise ConfigError(f"flag provided but not defined: -{name}")
        if not equals:
            if not left:
                raise ConfigError(f"flag needs an argument: -{name}")
            value = left.pop(0)
        if name in NUMBERS:
            given[NUMBERS[name]] = _number(name, value)
        elif name == "defect":
            given.setdefault(name, []).append(value)
        else:
            given[TEXTS[name]] = value
    return given


def _switch(name: str, value: str) -> bool:
    if value not in _YES + _NO:
        raise ConfigError(f'invalid boolean value "{value}" for -{name}: parse error')
    return value in _YES


def _number(name: str, value: str) -> int:
    sign, digits = (-1, value[1:]) if value.startswith("-") else (1, value)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise ConfigError(f'invalid value "{value}" for flag -{name}: parse error')
    return sign * int(digits)
