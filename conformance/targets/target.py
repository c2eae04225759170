"""The server under test: its URL, the features it claims, its round trip.

``open_target`` is the liveness probe: it either gives a calibrated ``TargetAccess`` or raises one
clear sentence, within five seconds. Nothing here judges.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from plumbline.conformance.amqp import probe as amqp_probe
from plumbline.conformance.claims import Announcement, Claims, announcement
from plumbline.conformance.dimensions import Dimensions
from plumbline.conformance.limits import OBJECT_PREFIX
from plumbline.conformance.nats import probe as nats_probe
from plumbline.conformance.nats.grants import Grants
from plumbline.conformance.nats.probe import CONNECT_DEFAULTS
from plumbline.conformance.targets.links import CONNECT_TIMEOUT_S, open_link, tls_problem
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.urls import (
    AccessRefusedError,
    AmqpUrl,
    AnyUrl,
    NatsUrl,
    UrlError,
)
from plumbline.errors import TargetUnreachable
from plumbline.masking import Mask
from plumbline.verdicts import Target
from plumbline.versions import numbers
from plumbline.visible import one_line

__all__ = [
    "CONNECT_DEFAULTS",
    "CONNECT_TIMEOUT_S",
    "AccessRefusedError",
    "NatsUrl",
    "TargetAccess",
    "UrlError",
    "open_target",
    "parse_level",
    "probe",
]

ROUND_TRIPS = 9
BUSY_ROUND_TRIPS = 30
BUSY_PAUSE_S = 0.01
LEAST_SLACK_S = 0.05
MAX_SLACK_S = 2.0
SLACK_ROUND_TRIPS = 20


_tokens = itertools.count(1)  # of this process: a TargetAccess may be copied, a name must not come twice


class TargetAccess(Struct, frozen=True):
    """The target of a run, described once, by ``open_target``, and pickled whole for the run's workers.

    ``target``: what it says of itself and how quick it is. ``info``: the fields of its INFO, or its server
    properties. ``run`` and ``worker`` are in the names of all that is made on it. ``shared``: the folder that
    all processes of the run share; None if there is no run. ``grants``: what its login may do with JetStream.
    ``claims``: what its vendor claims, if there is a claims file. ``dimensions``: how its streams and queues
    are made.
    """

    running: RunningTarget
    target: Target
    info: dict[str, Any]
    run: str = "0"
    worker: str = ""
    shared: Path | None = None
    grants: Grants = Grants()
    claims: Claims | None = None
    dimensions: Dimensions = Dimensions()

    @property
    def url(self) -> AnyUrl:
        return self.running.url

    @property
    def mask(self) -> Mask:
        """Masks the secrets of all URLs of the run. What is reported of the target passes it."""
        return self.running.mask

    @property
    def prefix(self) -> str:
        """What every object of this run starts with."""
        return f"{OBJECT_PREFIX}{self.run}"

    @property
    def storage(self) -> str:
        """Of streams for which a check does not name one."""
        return self.dimensions.storage or self.grants.storage

    @property
    def announcement(self) -> Announcement:
        """What it announces of the things that a claims file can name."""
        return announcement(self.target, self.info, self.grants)

    @property
    def level(self) -> tuple[int, ...]:
        return parse_level(self.target.level)

    @property
    def slack_s(self) -> float:
        return self.target.slack_s

    @property
    def is_cluster(self) -> bool:
        """Whether the target is a NATS server that announces a cluster."""
        return bool(self.info.get("cluster"))

    def recalibrated(self) -> TargetAccess:
        """The same target with the slack that it needs now, which is more if this machine has become busy.

        What is measured is how late we are when we wait for a moment and then for an answer, since that is
        what checks do.
        """
        try:
            _, late = probe(self.url, BUSY_ROUND_TRIPS, pause_s=BUSY_PAUSE_S)
        except (TargetUnreachable, AccessRefusedError):
            return self
        return self.with_slack(max(self.slack_s, _slack(late)))

    def with_slack(self, seconds: float) -> TargetAccess:
        """The same target, with so much added to every time limit."""
        return replace(self, target=replace(self.target, slack_s=seconds))

    def next_token(self) -> str:
        """A name prefix for one check; unique on the target."""
        return f"{self.prefix}{self.worker}x{next(_tokens)}"

    def url_of(self, variant: str | None) -> AnyUrl | None:
        """Where a variant of the target listens; None if the run names none."""
        return self.url if variant is None else self.running.variants.get(variant)

    def is_alive(self, url: AnyUrl | None = None) -> bool:
        """Whether a fresh connection (to a variant's ``url``, say) is answered, without a restart between.

        A variant may refuse whom it does not know (NKeys) or has no room for: a refusal is an answer too.
        """
        if url is None or url == self.url:
            return not self.absence_reason()
        try:
            probe(url)
        except AccessRefusedError:
            return True
        except TargetUnreachable:
            return False
        return True

    def absence_reason(self) -> str:
        """Why the target that the run began with is no longer there, in a sentence; empty if it is."""
        try:
            info, _ = probe(self.url)
        except (TargetUnreachable, AccessRefusedError) as error:
            return str(error)
        if _identity(self.url, info) != _identity(self.url, self.info):
            return f"Another server process answers at {self.url.address}: it was restarted during the run."
        return ""


def parse_level(text: str) -> tuple[int, ...]:
    """``"v2.10.14-beta"`` -> ``(2, 10, 14)``: the numbers of a version. Raises ``ValueError``."""
    level = numbers(text)
    if len(level) < 2:
        raise ValueError(f"{text!r} is not a protocol level; write for example 2.9")
    return level


def open_target(
    running: RunningTarget | AnyUrl, *, level: str | None = None, run: str = "0", shared: Path | None = None
) -> TargetAccess:
    """Probe and calibrate. A URL alone is a target of which nothing else is known.

    ``level``: the protocol level to judge by; None: the one that is known of the target, or it reports.
    Raises ``TargetUnreachable`` or ``AccessRefusedError``, each with one sentence.
    """
    if not isinstance(running, RunningTarget):
        running = RunningTarget(running)
    url, mask = running.url, running.mask
    info, round_trips = probe(url, round_trips=ROUND_TRIPS)
    version = mask.text(str(info.get("version", "")))
    features = tuple(map(mask.text, _features(url, info)))
    try:
        own = amqp_probe.level(version, features) if isinstance(url, AmqpUrl) else version
        chosen = ".".join(map(str, parse_level(level or running.level or own)))
    except ValueError:
        raise AccessRefusedError(
            f"{url} reports version {one_line(version)!r}, which gives no protocol level: add --level, "
            "for example --level 2.9"
        ) from None
    target = Target(
        url=str(url),
        protocol=url.protocol,
        server_name=mask.text(str(info.get("server_name", ""))),
        version=version,
        level=chosen,
        features=features,
        rtt_s=statistics.median(round_trips),
        slack_s=_slack(round_trips),
        variants=tuple(sorted(running.variants)),
        arguments=running.arguments,
    )
    grants = _grants(url) if isinstance(url, NatsUrl) and info.get("jetstream") else Grants()
    return TargetAccess(running, target, dict(info), run=run, shared=shared, grants=grants)


def _grants(url: NatsUrl) -> Grants:
    """What the login may do with JetStream; nothing known if the target does not say it."""
    try:
        with open_link(url) as link:
            return nats_probe.ask_grants(link, url)
    except (OSError, TargetUnreachable):
        return Grants()


def _slack(round_trips: Sequence[float]) -> float:
    return min(MAX_SLACK_S, LEAST_SLACK_S + SLACK_ROUND_TRIPS * max(round_trips))


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
    Raises ``TargetUnreachable`` or ``AccessRefusedError``. Each is one line without secrets of ``url``,
    whatever the server sends.
    """
    try:
        return _probe(url, round_trips, pause_s)
    except (TargetUnreachable, AccessRefusedError) as error:
        raise type(error)(one_line(url.mask.text(str(error)))) from None


def _probe(url: AnyUrl, round_trips: int, pause_s: float) -> tuple[dict[str, Any], list[float]]:
    try:
        link = open_link(url)
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
        except ssl.SSLError as error:
            raise tls_problem(url, error) from None
        except OSError as error:
            raise TargetUnreachable(f"{url.address} closed the connection ({error}).") from None
