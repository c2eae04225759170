"""Puts a broker together: the core, what it keeps, and defects. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from plumbline.reference_broker.amqp.config import Config
from plumbline.reference_broker.amqp.core import Broker
from plumbline.reference_broker.write_queue import WriteQueue


def build(
    config: Config, random: Random, defects: Iterable[str] = (), *, ledger: WriteQueue | None = None
) -> Broker:
    """A broker without connections; ``random`` is its only source of chance.

    With a ledger it enters there what has to survive. Raises ``UnknownDefectError``, ``ValueError`` for a
    script of confirms that is none.
    """
    broker = Broker(config, random.randrange, ledger)
    if config.confirms:
        from plumbline.reference_broker.amqp.messages.confirm_script import apply_script, read_script

        apply_script(broker, read_script(config.confirms))
    for name in defects:
        from plumbline.reference_broker.amqp.defects import apply

        apply(broker, name)
    return broker
