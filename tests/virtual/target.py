"""The suite on reference brokers of this process: no sockets, and a clock that waiting moves.

So a check takes milliseconds, whatever it waits for, and always ends in the same way.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

from plumbline.conformance.amqp import session as amqp_session
from plumbline.conformance.amqp import variant_server
from plumbline.conformance.nats import session as nats_session
from plumbline.conformance.sessions import session
from plumbline.conformance.targets import target
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import AnyUrl, NatsUrl, parse_url
from plumbline.conformance.targets.variants import amqp_variants, main_server, variants
from plumbline.reference_broker.shell import Core
from plumbline.reference_broker.write_queue import Files, WriteQueue
from tests.virtual.servers import (
    HOST,
    CoreFactory,
    ServerCrashError,
    VirtualOwnServer,
    VirtualPump,
    VirtualServer,
    World,
)

RUN = "adeq"
SEED = 1
PROGRAM = ("the reference broker", "in this process")

# The modules of the brokers are imported when they are needed: a mutant may be one.


def nats_core(config: Mapping[str, Any], defects: Sequence[str] = ()) -> CoreFactory:
    """A NATS broker with this configuration, and with those of the defects that apply to it."""

    def make(write_queue: WriteQueue | None, files: Files | None, now: int, port: int) -> Core:
        from plumbline.reference_broker.nats.accounts import AccountsCore
        from plumbline.reference_broker.nats.assembly import build
        from plumbline.reference_broker.nats.config import Config
        from plumbline.reference_broker.nats.jetstream.service import JetStream

        whole = Config.of(**(dict(config) if files is None else {**config, "jetstream": {"store_dir": "."}}))
        chosen = _applicable(whole, defects)
        broker = build(whole, Random(SEED + port), chosen, write_queue=write_queue)
        broker.identity.port = port
        if files is not None and isinstance(broker.service, JetStream):
            broker.service.recover(files, now)
        return AccountsCore(broker, Random(SEED), chosen) if broker.config.accounts else broker

    return make


def _applicable(config: Any, defects: Sequence[str]) -> Sequence[str]:
    """The defects; none in a configuration without the JetStream that they need."""
    if not defects:
        return ()
    from plumbline.reference_broker.nats.assembly import build
    from plumbline.reference_broker.nats.defects import DefectNotApplicableError

    try:
        build(config, Random(SEED), defects)
    except DefectNotApplicableError:
        return ()
    return defects


def amqp_core(settings: Mapping[str, Any], defects: Sequence[str] = ()) -> CoreFactory:
    """An AMQP broker with these settings and defects."""

    def make(write_queue: WriteQueue | None, files: Files | None, now: int, port: int) -> Core:
        from plumbline.reference_broker.amqp.assembly import build
        from plumbline.reference_broker.amqp.config import Config

        stored = {} if files is None else {"data_dir": "."}
        config = Config.of(**settings, **stored)
        broker = build(config, Random(SEED + port), defects, write_queue=write_queue)
        if files is not None:
            broker.recover(files, now)
        return broker

    return make


_main, _variants, _amqp_variants = cache(main_server), cache(variants), cache(amqp_variants)


def warm_up() -> None:
    """Read once what every virtual target needs."""
    _main()
    _variants()
    _amqp_variants()


class VirtualTarget:
    """The servers of one protocol in their configurations, and the suite wired to them.

    ``access`` is what ``run_check`` takes. Use it inside ``installed()``. ``defects``: deliberate faults.
    """

    def __init__(self, protocol: str, defects: Sequence[str] = ()) -> None:
        importlib.import_module("plumbline.conformance.sessions.opening")  # whose clock is replaced, too
        self.protocol = protocol
        self.defects = defects
        self.world = World()
        self._access: TargetAccess | None = None

    @property
    def access(self) -> TargetAccess:
        """The target, which is started at first use. Raises ``ServerCrashError``, and as ``open_target``."""
        if self._access is None:
            try:
                self._access = open_target(self._running(), run=RUN)
            except Exception as error:
                if self.world.crash:
                    raise ServerCrashError(self.world.crash) from error
                raise
        return self._access

    def _running(self) -> RunningTarget:
        if self.protocol == "amqp":
            port = VirtualServer(self.world, amqp_core({}, self.defects)).port
            url = parse_url(f"amqp://guest:guest@{HOST}:{port}/%2f")
            return RunningTarget(url, program=PROGRAM, takes_settings=True)
        main = VirtualServer(self.world, nats_core(_main().config, self.defects)).port
        urls: dict[str, AnyUrl] = {}
        for name, variant in _variants().items():
            port = VirtualServer(self.world, nats_core(variant.config, self.defects)).port
            urls[name] = NatsUrl.parse(variant.url(f"{HOST}:{port}"))
        return RunningTarget(NatsUrl.parse(f"nats://{HOST}:{main}"), urls, program=PROGRAM)

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Within, sessions of checks connect to these servers, and their time is the time of this world."""
        world = self.world
        clock = SimpleNamespace(monotonic=world.monotonic, sleep=world.sleep, gmtime=time.gmtime)
        changes: list[tuple[Any, str, Any]] = [
            (session, "open_link", world.open_link),
            (target, "open_link", world.open_link),
            (session, "Pump", lambda: VirtualPump(world)),
            (nats_session, "OwnServer", self._own_nats),
            (amqp_session, "OwnAmqpServer", self._own_amqp),
            (variant_server, "OwnAmqpServer", self._own_amqp),
            (variant_server, "amqp_variants", _amqp_variants),
        ]
        for name, module in list(sys.modules.items()):
            if name.startswith("plumbline.conformance.") and getattr(module, "time", None) is time:
                changes.append((module, "time", clock))
        patches = [patch.object(owner, name, new) for owner, name, new in changes]
        for each in patches:
            each.start()
        try:
            yield self
        finally:
            variant_server.close_variant_servers()
            for each in patches:
                each.stop()

    def _own_nats(self, program: Sequence[str], config: Mapping[str, Any]) -> VirtualOwnServer:
        return VirtualOwnServer(self.world, nats_core(config, self.defects), "nats://")

    def _own_amqp(self, program: Sequence[str], config: Mapping[str, Any]) -> VirtualOwnServer:
        return VirtualOwnServer(self.world, amqp_core(config, self.defects), "amqp://guest:guest@")
