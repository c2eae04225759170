"""The language of rabbitmq.conf: ``key = value`` in lines, ``#`` before a comment. Pure.

Source: RabbitMQ, "Configuration" ("The Main Configuration File, rabbitmq.conf").
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from plumbline.reference_broker.amqp.config import ConfigError

_LINE = re.compile(r"""\s*([\w.$@:/-]+)\s*=\s*(?:'([^']*)'|([^#]*?))\s*(?:\#.*)?""")
_VARIABLE = re.compile(r"\$\((\w+)\)")


class Line(Struct, frozen=True):
    """A value and where it is: ``rabbitmq.conf:3``."""

    value: str
    place: str


def parse(text: str, name: str, environment: Mapping[str, str]) -> dict[str, Line]:
    """The last value of each key. ``$(NAME)`` is a variable of the environment. Raises ``ConfigError``."""
    found: dict[str, Line] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"{name}:{number}"
        parts = _LINE.fullmatch(line)
        if parts is None:
            word = line.split()[0]  # what follows may be a password
            raise ConfigError(f"{place}: write 'key = value' where {word!r} is")
        key, quoted, plain = parts.groups()

        def variable(match: re.Match[str], place: str = place) -> str:
            if match[1] not in environment:
                raise ConfigError(f"{place}: there is no variable {match[1]} in the environment")
            return environment[match[1]]

        found[key] = Line(_VARIABLE.sub(variable, plain) if quoted is None else quoted, place)
    return found
