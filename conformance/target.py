"""The server under test: its URL, what it says of itself, how quick it is.

``open_target`` is the liveness probe: it either gives a calibrated ``TargetAccess`` or raises one
clear sentence, within five seconds. Nothing here judges.
"""

from __future__ import annotations

import copy
import itertools
import socket
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from plumbline.conformance.amqp import probe as amqp_probe
from plumbline.conformance.nats import probe as nats_probe
from plumbline.conformance.nats.probe import CONNECT_DEFAULTS
from plumbline.conformance.urls import (
    AccessRefused,
    AmqpUrl,
    AnyUrl,
    BadUrl,
    Url,
    parse_url,
)
from plumbline.errors import TargetUnreachable
from plumbline.verdicts import Target
from plumbline.versions import numbers

__all__ = [
    "CONNECT_DEFAULTS",
    "CONNECT_TIMEOUT_S",
    "AccessRefused",
    "BadUrl",
    "TargetAccess",
    "Url",
    "open_target",
    "parse_level",
    "probe",
]

CONNECT_TIMEOUT_S = 2.0
ROUND_TRIPS = 9
BUSY_ROUND_TRIPS = 30
BUSY_PAUSE_S = 0.01
LEAST_SLACK_S = 0.05
MOST_SLACK_S = 2.0
SLACK_ROUND_TRIPS = 20


class TargetAccess:
    """How checks reach the target. One per process; hands out names that no other check uses."""

    def __init__(
        self,
        url: AnyUrl,
        target: Target,
        info: Mapping[str, Any],
        variants: Mapping[str, str] | None = None,
        run: str = "0",
        worker: str = "",
    ) -> None:
        self.url = url
        self.target = target
        self.info = dict(info)
        self.variants = dict(variants or {})
        self.run = run
        self.program: tuple[str, ...] = ()  # starts another server like it, where Plumbline knows how
        self.fresh = False  # whether every check gets such a server to itself (AMQP)
        self.ledger: Path | None = None  # notes what is made on a target that cannot list it
        self._worker = worker
        self._counter = itertools.count(1)

    @property
    def prefix(self) -> str:
        """What every object of this run starts with."""
        return f"PL{self.run}"

    @property
    def level(self) -> tuple[int, ...]:
        return parse_level(self.target.level)

    @property
    def slack_s(self) -> float:
        return self.target.slack_s

    def calibrated_again(self) -> TargetAccess:
        """The same target with the slack that it needs now, which is more if this machine has become busy.

        What is measured is how late we are when we wait for a moment and then for an answer, since that is
        what checks do.
        """
        try:
            _, late = probe(self.url, BUSY_ROUND_TRIPS, pause_s=BUSY_PAUSE_S)
        except (TargetUnreachable, AccessRefused):
            return self
        busy = copy.copy(self)
        slack = max(self.target.slack_s, _slack(late))
        busy.target = msgspec.structs.replace(self.target, slack_s=slack)
        return busy

    def next_token(self) -> str:
        """A name prefix for one check; unique on the target."""
        return f"{self.prefix}{self._worker}x{next(self._counter)}"

    def url_of(self, variant: str | None) -> AnyUrl | None:
        """Where a variant of the target listens; None if the run names none."""
        if variant is None:
            return self.url
        text = self.variants.get(variant)
        return parse_url(text) if text else None

    def is_alive(self, url: AnyUrl | None = None) -> bool:
        """Whether a fresh connection (to a variant's ``url``, say) is answered, without a restart between.

        A variant may refuse whom it does not know (NKeys) or has no room for: a refusal is an answer too.
        """
        if url is None or url == self.url:
            return not self.absence()
        try:
            probe(url)
        except AccessRefused:
            return True
        except TargetUnreachable:
            return False
        return True

    def absence(self) -> str:
        """Why the target that the run began with is no longer there, in a sentence; empty if it is."""
        try:
            info, _ = probe(self.url)
        except (TargetUnreachable, AccessRefused) as error:
            return str(error)
        if _identity(self.url, info) != _identity(self.url, self.info):
            return f"Another server process answers at {self.url.address}: it was restarted during the run."
        return ""


def parse_level(text: str) -> tuple[int, ...]:
    """``"v2.10.14-beta"`` -> ``(2, 10, 14)``: the numbers of a version. Raises ``ValueError``."""
    level = numbers(text)
    if len(level) < 2:
        raise ValueError(f"{text!r} is not a protocol level: write one such as 2.9")
    return level


def open_target(
    url: AnyUrl, *, level: str | None = None, variants: Mapping[str, str] | None = None, run: str = "0"
) -> TargetAccess:
    """Probe and calibrate. Raises ``TargetUnreachable`` or ``AccessRefused``, each with one sentence."""
    info, round_trips = probe(url, round_trips=ROUND_TRIPS)
    version = str(info.get("version", ""))
    features = _features(url, info)
    try:
        own = amqp_probe.level(version, features) if isinstance(url, AmqpUrl) else version
        chosen = ".".join(map(str, parse_level(level or own)))
    except ValueError:
        raise AccessRefused(
            f"{url} reports version {version!r}, from which no protocol level follows: add --level 2.9"
        ) from None
    target = Target(
        url=str(url),
        protocol=url.protocol,
        server_name=str(info.get("server_name", "")),
        version=version,
        level=chosen,
        features=features,
        rtt_s=statistics.median(round_trips),
        slack_s=_slack(round_trips),
        variants=tuple(sorted(variants or {})),
    )
    return TargetAccess(url, target, info, variants, run)


def _slack(round_trips: Sequence[float]) -> float:
    return min(MOST_SLACK_S, LEAST_SLACK_S + SLACK_ROUND_TRIPS * max(round_trips))


def _features(url: AnyUrl, info: Mapping[str, Any]) -> tuple[str, ...]:
    """What the target claims, by the protocol's own names."""
    if isinstance(url, AmqpUrl):
        return amqp_probe.features(info)
    return tuple(name for name in nats_probe.FEATURES if info.get(name))


def _identity(url: AnyUrl, info: Mapping[str, Any]) -> Any:
    return amqp_probe.identity(info) if isinstance(url, AmqpUrl) else nats_probe.identity(info)


def probe(url: AnyUrl, round_trips: int = 1, *, pause_s: float = 0.0) -> tuple[dict[str, Any], list[float]]:
    """What the target says of itself, and some round trips in seconds.

    With ``pause_s`` each is preceded by such a wait; how much longer that took counts as well.
    Raises ``TargetUnreachable`` or ``AccessRefused``.
    """
    try:
        link = socket.create_connection((url.host, url.port), CONNECT_TIMEOUT_S)
    except socket.gaierror as error:
        raise TargetUnreachable(f"{url.host} is not a known host ({error.strerror}).") from None
    except ConnectionRefusedError:
        raise TargetUnreachable(f"Nothing listens at {url.address} (connection refused).") from None
    except OSError as error:
        raise TargetUnreachable(f"{url.address} cannot be reached ({error}).") from None
    with link:
        try:
            if isinstance(url, AmqpUrl):
                return amqp_probe.probe(link, url, round_trips, pause_s)
            return nats_probe.probe(link, url, round_trips, pause_s)
        except OSError as error:
            raise TargetUnreachable(f"{url.address} broke the connection off ({error}).") from None
