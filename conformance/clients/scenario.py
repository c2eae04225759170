"""A scenario: a function, marked ``@scenario``, that gives the client under test work and judges the traffic.

They are in ``conformance/clients/scenarios/{nats,amqp}/``: the folder is the protocol that they speak.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct

from plumbline.conformance.check import Check, module_path

Function = TypeVar("Function", bound=Callable[[Any], None])

_SCENARIOS = "plumbline.conformance.clients.scenarios"
_ATTRIBUTE = "plumbline_scenario"


class ServerTls(StrEnum):
    """How a client reaches the broker. There is an authority to trust with all but ``AS_THE_RUN``."""

    AS_THE_RUN = ""  # by TLS with ``gate --tls``, in the clear without
    CLEAR = "clear"  # the server speaks no TLS
    TRUSTED = "trusted"  # the server's certificate is one to accept
    FOREIGN = "foreign"  # another authority issued it
    OTHER_NAME = "other name"  # it was issued for another server
    EXPIRED = "expired"


class BrokerSetup(Struct, frozen=True):
    """The broker that a scenario is played with: its configuration, its deliberate faults, and those of the
    proxy before it, each as it is written for ``plumbline broker`` and ``plumbline record --fault``; and
    whether the proxy wants TLS."""

    options: Mapping[str, Any] = {}
    defects: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    tls: ServerTls = ServerTls.AS_THE_RUN


class Scenario(Struct, frozen=True):
    """A check of a client. ``needs`` are the features without which it cannot be played."""

    check: Check
    protocol: str
    needs: tuple[str, ...]
    stage: BrokerSetup

    @property
    def id(self) -> str:
        return self.check.id


class _ScenarioOptions(Struct, frozen=True):
    requirements: tuple[str, ...]
    source: str
    needs: tuple[str, ...]
    stage: BrokerSetup


def scenario(
    *requirements: str,
    source: str = "",
    needs: Sequence[str] = (),
    defects: Sequence[str] = (),
    faults: Sequence[str] = (),
    tls: ServerTls = ServerTls.AS_THE_RUN,
    **options: Any,
) -> Callable[[Function], Function]:
    """Mark a function of one argument, ``scene``, as a scenario that verifies these requirements.

    The first line of its docstring is the title. ``needs`` are features of ``PROTOCOL.md``. ``defects`` and
    ``options`` are the reference broker's, ``faults`` and ``tls`` those of the proxy before it.
    """
    if not requirements:
        raise ValueError("a scenario verifies at least one requirement")

    def mark(function: Function) -> Function:
        stage = BrokerSetup(options, tuple(defects), tuple(faults), tls)
        setattr(function, _ATTRIBUTE, _ScenarioOptions(requirements, source, tuple(needs), stage))
        return function

    return mark


def scenario_of(function: Callable[[Any], None]) -> Scenario | None:
    """The scenario that a marked function is, or None."""
    marked: _ScenarioOptions | None = getattr(function, _ATTRIBUTE, None)
    if marked is None:
        return None
    protocol, module = function.__module__.split(".")[-2:]
    check = Check(
        id=f"{protocol}_{module}::{function.__name__}",
        title=(function.__doc__ or function.__name__).strip().splitlines()[0],
        requirements=marked.requirements,
        run=function,
        source=marked.source,
        where=f"{module_path(function)}:{function.__code__.co_firstlineno}",
    )
    return Scenario(check, protocol, marked.needs, marked.stage)


def all_scenarios(protocol: str = "") -> list[Scenario]:
    """Those that speak ``protocol`` (or any), in the order of their files."""
    package = importlib.import_module(_SCENARIOS)
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(package.__path__, f"{_SCENARIOS}.")
        if not module.ispkg
    ]
    found = [
        scenario_of(value)
        for module in modules
        for value in vars(module).values()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    ]
    return [one for one in found if one is not None and protocol in ("", one.protocol)]
