"""toxiproxy's API for faults, for toxiproxy's clients and command line: one proxy, with the faults as toxics.

    GET    /proxies                              {"nats": {"name", "listen", "upstream", "enabled", "toxics"}}
    GET    /proxies/nats                         the same of one
    GET    /proxies/nats/toxics                  [{"name", "type", "stream", "toxicity", "attributes"}]
    POST   /proxies/nats/toxics                  {"type": "latency", "attributes": {"latency": 50}}
    GET    /proxies/nats/toxics/NAME
    POST   /proxies/nats/toxics/NAME             {"toxicity": .., "attributes": {..}}; PATCH, too
    DELETE /proxies/nats/toxics/NAME

Types are latency, bandwidth, slow_close, timeout, reset_peer, slicer and limit_data with their attributes, in
their units (milliseconds, kilobytes a second, bytes, microseconds); and ``fault``, whose attribute ``fault``
is one of our own lines: ``{"type": "fault", "attributes": {"fault": "drop +ACK every 10th"}}``. That one says
its own stream. What a toxic leaves to chance is drawn from the seed of the recording.
Source: Toxiproxy, README, "Toxics" and "HTTP API".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from plumbline.bounds import MAX_FAULT_SIZE
from plumbline.proxy.faults.language import Fault, parse_fault
from plumbline.wire.sender import BY_STREAM

OWN = "fault"
SOON = "1ms"  # where toxiproxy says 0 for at once


class Toxic(Struct, frozen=True):
    """As it is asked for. Raises ``ValueError`` and ``FaultError`` if it cannot be one."""

    name: str
    type: str
    stream: str = "downstream"
    toxicity: float = 1.0
    attributes: Mapping[str, Any] = {}

    @classmethod
    def of(cls, json_object: Mapping[str, Any]) -> Toxic:
        """A new one, of the JSON object that describes it."""
        kind, stream = (
            str(json_object.get("type", "")),
            str(json_object.get("stream") or "downstream").lower(),
        )
        if kind not in (*_TYPES, OWN):
            raise ValueError(f"invalid toxic type {kind!r}: known are {', '.join((*_TYPES, OWN))}")
        name = str(json_object.get("name") or f"{kind}_{stream}")
        return cls(name, kind, stream).changed(json_object)

    def changed(self, json_object: Mapping[str, Any]) -> Toxic:
        """The same with another toxicity and other attributes; those that are not named stay."""
        attributes = json_object.get("attributes") or {}
        toxicity = json_object.get("toxicity")
        if not isinstance(attributes, Mapping):
            raise ValueError("attributes are an object")
        if toxicity is not None and (not isinstance(toxicity, int | float) or not 0 <= toxicity <= 1):
            raise ValueError("toxicity is a number from 0 to 1")
        return replace(
            self,
            toxicity=self.toxicity if toxicity is None else float(toxicity),
            attributes={**_DEFAULTS.get(self.type, {}), **self.attributes, **attributes},
        )

    def fault(self) -> Fault:
        """What it does."""
        if self.stream not in BY_STREAM:
            raise ValueError(f"stream {self.stream!r}: expected upstream or downstream")
        if self.type == OWN:
            return parse_fault(str(self.attributes.get("fault", "")))
        chance = "" if self.toxicity == 1 else f" with {self.toxicity * 100:g}%"
        return parse_fault(f"{_TYPES[self.type](_Numbers(self.attributes))} on {self.stream}{chance}")

    def as_json(self) -> dict[str, Any]:
        """As toxiproxy shows it."""
        return {
            "name": self.name,
            "type": self.type,
            "stream": self.stream,
            "toxicity": self.toxicity,
            "attributes": dict(self.attributes),
        }


def of_fault(name: str, fault: Fault) -> Toxic:
    """A fault that was not asked for as a toxic."""
    stream = fault.direction.stream if fault.direction is not None else "downstream"
    return Toxic(name, OWN, stream, fault.share, {"fault": fault.text})


class _Numbers:
    """Attributes that have to be numbers."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    def __getitem__(self, name: str) -> float:
        value = self._attributes.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_FAULT_SIZE:
            raise ValueError(f"{name} is a number from 0 to {MAX_FAULT_SIZE}, not {str(value)[:100]}")
        return value


def _milliseconds(value: float, at_once: str = "0ms") -> str:
    return f"{value:f}ms" if value else at_once


_TYPES: dict[str, Callable[[_Numbers], str]] = {
    "latency": lambda given: f"latency {given['latency']:f}ms ±{given['jitter']:f}ms",
    "bandwidth": lambda given: f"bandwidth {given['rate'] * 1000:f}",
    "slow_close": lambda given: f"slow_close {_milliseconds(given['delay'])}",
    "timeout": lambda given: f"timeout {_milliseconds(given['timeout'])}",
    "reset_peer": lambda given: f"reset {_milliseconds(given['timeout'], SOON)}",
    "slicer": lambda given: f"slice {given['average_size']:f} every {given['delay'] / 1000:f}ms",
    "limit_data": lambda given: f"limit {given['bytes']:f}" if given["bytes"] else f"limit {SOON}",
}
_DEFAULTS: dict[str, dict[str, float]] = {
    "latency": {"latency": 0, "jitter": 0},
    "bandwidth": {"rate": 0},
    "slow_close": {"delay": 0},
    "timeout": {"timeout": 0},
    "reset_peer": {"timeout": 0},
    "slicer": {"average_size": 0, "size_variation": 0, "delay": 0},
    "limit_data": {"bytes": 0},
}
