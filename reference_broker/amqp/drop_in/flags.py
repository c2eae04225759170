"""The command line of ``plumbline-rabbitmq``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plumbline.reference_broker.amqp.config import ConfigError

LEVEL = "3.10"  # the RabbitMQ whose behaviour this is
USAGE = f"""
Usage: plumbline-rabbitmq [options]

    -c, --config <file>           Configuration file, as rabbitmq.conf
    -p, --port <port>             Port for clients (default: 5672; -1: a free one)
        --management-port <port>  Port of the management API (default: 10000 above that for clients)
        --level <version>         Behave like this RabbitMQ; there is {LEVEL} only
        --defect <name>           Enable a deliberate fault; repeatable
    -h, --help                    Show this message
    -v, --version                 Show version

Environment:
    RABBITMQ_CONFIG_FILE, RABBITMQ_NODE_PORT, RABBITMQ_NODE_IP_ADDRESS, RABBITMQ_NODENAME, RABBITMQ_PID_FILE,
    RABBITMQ_DEFAULT_USER, RABBITMQ_DEFAULT_PASS, RABBITMQ_DEFAULT_VHOST
"""
SWITCHES = {"-h": "help", "--help": "help", "-v": "version", "--version": "version"}
TEXTS = {
    "-c": "config", "--config": "config", "-p": "port", "--port": "port",
    "--management-port": "management-port", "--level": "level", "--defect": "defect",
}  # fmt: skip


def read_flags(arguments: Sequence[str]) -> dict[str, Any]:
    """What is given, by name; ``defect`` is a list. Raises ``ConfigError``."""
    given: dict[str, Any] = {}
    left = list(arguments)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name in SWITCHES and not equals:
            given[SWITCHES[name]] = True
            continue
        if name not in TEXTS:
            raise ConfigError(f"there is no option {name}")
        if not equals:
            if not left:
                raise ConfigError(f"{name} needs a value")
            value = left.pop(0)
        if name == "--defect":
            given.setdefault("defect", []).append(value)
        else:
            given[TEXTS[name]] = value
    if given.get("level", LEVEL) != LEVEL:
        raise ConfigError(f"--level {given['level']}: this broker behaves like RabbitMQ {LEVEL} only")
    return given
