"""Defects of what a consumer's configuration is taken for. What is right: ``consumer_config.check``.

Those of what is to be refused are in ``refusals`` and ``accepted.toml``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_success,
    body_of,
    refuse,
)
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request

CREATE = "consumer_create"
Config = dict[str, Any]


def alter_config(broker: Broker, change: Callable[[Config], object]) -> None:
    """``change`` alters the configuration in each request to create a consumer."""

    def alter(fields: Fields, request: Request) -> None:
        config = fields.get("config")
        if isinstance(config, dict):
            change(config)

    alter_body(broker, CREATE, alter)


def _as_given(requirement: str, option: str, least: int) -> None:
    """What is below ``least`` stays as it was given."""

    def alter(broker: Broker) -> None:
        def change(shown: Fields, request: Request) -> None:
            given = (body_of(request) or {}).get("config", {}).get(option, least)
            if given < least:
                shown["config"][option] = given

        alter_success(broker, CREATE, change)

    name = f"cons-{option.replace('_', '-')}-below-{least}-stays".replace("--", "-minus-")
    add(new(name, (requirement,), f"{option} below {least} is shown as it was given.", alter))


for _option in (
    ("JS-CONS-030", "max_waiting", 0),
    ("JS-CONS-033", "max_deliver", 1),
    ("JS-CONS-034", "max_deliver", -1),
    ("JS-CONS-038", "max_batch", 0),
):
    _as_given(*_option)


def is_pull(config: Config) -> bool:
    """Whether a request is for a pull consumer."""
    return not config.get("deliver_subject")


def _percent(config: Config) -> int:
    digits = config.get("sample_freq", "").removesuffix("%")
    return int(digits) if digits.isdigit() else 0


@defect("JS-CONS-032")
def cons_sample_freq_over_100_is_refused(broker: Broker) -> None:
    """A consumer is refused for sample_freq over 100."""
    error = errors.CONSUMER_INVALID_SAMPLING(reason="over 100")
    refuse(broker, CREATE, error, lambda request: _percent((body_of(request) or {}).get("config", {})) > 100)


@defect("JS-CONS-032")
def cons_sampling_is_capped(broker: Broker) -> None:
    """A sample_freq over 100 is taken for 100."""

    def change(config: Config) -> None:
        if _percent(config) > 100:
            config["sample_freq"] = "100"

    alter_config(broker, change)
