"""Monitors: rules over traffic, each written once, run live, over a session, over captures. Import from here.

    watch = Watch()
    for violation in watch.observe(Observation(operation, sender, connection="3", index=17, at=now)): ...

``nats_reader`` and ``amqp_reader`` make facts of operations, the other ``nats_*`` and ``amqp_*`` judge them;
``monitor`` says what a monitor is.
"""

from __future__ import annotations

from plumbline.monitors.amqp.reader import AmqpReader
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats.reader import NatsReader
from plumbline.monitors.observation import Observation, Place, Side, Violation
from plumbline.monitors.watch import MONITORS, MonitorRunner

__all__ = [
    "MONITORS",
    "AmqpReader",
    "Monitor",
    "MonitorRunner",
    "MonitorScope",
    "NatsReader",
    "Observation",
    "Place",
    "Side",
    "Violation",
]
