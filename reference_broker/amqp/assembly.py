"""Puts a broker together: the core, what it keeps, and defects. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from plumbline.reference_broker.amqp.config import Config
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.write_queue import WriteQueue


def build(
    config: Config, random: Random, defects: Iterable[str] = (), *, write_queue: WriteQueue | None = None
) -> Broker:
    """A broker without connections; ``random`` is its only source of chance.

    What has to survive goes to the write queue, if there is one. Raises ``UnknownDefectError``;
    ``ValueError`` for a script of confirms that is none.
    """
    broker = Broker(config, random.randrange, write_queue)
    if config.confirms:
        from plumbline.reference_broker.amqp.messages.confirm_script import apply_script, read_script

        apply_script(broker, read_script(config.confirms))
    for name in defects:
        from plumbline.reference_broker.amqp.defects import apply

        apply(broker, name)
    return broker
