"""Puts a broker together: the core, the JetStream service if it is configured, and defects. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.write_queue import WriteQueue


def build(
    config: Config, random: Random, defects: Iterable[str] = (), *, write_queue: WriteQueue | None = None
) -> Broker:
    """A broker without connections; ``random`` is its only source of chance.

    With a ``write_queue`` streams in files enter there what is to be written; without, they are in memory.

    Raises ``UnknownDefectError`` or ``DefectNotApplicableError``.
    """
    broker = Broker(config, random.randrange)
    if config.jetstream is not None:
        from plumbline.reference_broker.nats.jetstream.service import JetStream, JetStreamConfig

        broker.service = JetStream(
            JetStreamConfig(
                level=config.level,
                domain=config.jetstream.domain,
                max_payload=config.max_payload,
                limits=config.jetstream.limits,
                write_queue=write_queue,
                random=random,
            ),
            broker,
        )
    if config.mappings:
        from plumbline.reference_broker.nats.mappings import install

        install(broker, config.mappings)
    for name in defects:
        from plumbline.reference_broker.nats.defects import apply

        apply(broker, name)
    return broker
