"""The broker of a variant: one for each process of a run, which starts it when a check first needs it.

A start of RabbitMQ takes seconds, so all checks of a variant run in one process (``Check.group``), one after
the other. None of them sees another one's alarm, therefore.
"""

from __future__ import annotations

import atexit

from plumbline.conformance.outcomes import Unsupported
from plumbline.conformance.targets.own_server import OwnAmqpServer
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.variants import amqp_variants

_running: dict[tuple[tuple[str, ...], str], OwnAmqpServer] = {}  # by program and name of the variant


def variant_server(target: RunningTarget, name: str) -> OwnAmqpServer:
    """The broker of the variant, which runs. Raises ``Unsupported`` where Plumbline cannot start one, and
    ``Inconclusive`` if it does not come up."""
    if not target.takes_settings:
        raise Unsupported(
            f"the check needs a broker with the settings of the variant {name!r}: give --variant {name}=URL "
            f"('plumbline variants {name}' shows the settings), or have a RabbitMQ started by --server or "
            "--target"
        )
    key = target.program, name
    if key not in _running:
        close_variant_servers()  # of another target
        _running[key] = OwnAmqpServer(target.program, amqp_variants()[name].settings)
    server = _running[key]
    if not server.is_running:
        server.start()
    return server


def close_variant_servers() -> None:
    """End those of this process. Idempotent."""
    while _running:
        _running.popitem()[1].close()


atexit.register(close_variant_servers)
