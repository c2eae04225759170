"""A stream's configuration: fields, defaults, what is refused at creation, what an update may not change.

Source: docs.nats.io, "JetStream wire API Reference"; texts and order of the checks as servers answer.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import errors, subjects
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams import origins
from plumbline.reference_broker.nats.jetstream.streams.mapping import mapping_ends, mapping_problem
from plumbline.wire.units import MILLISECOND, MINUTE, SECOND

MAX_NAME = 255
MAX_DESCRIPTION = 4096
MAX_REPLICAS = 5
DEFAULT_DUPLICATE_WINDOW = 2 * MINUTE
SHORTEST_AGE = 100 * MILLISECOND

Storage = Literal["file", "memory"]
Retention = Literal["limits", "interest", "workqueue"]
Discard = Literal["old", "new"]


class MappingFields(Struct):
    """What is read of ``subject_transform`` and ``republish``."""

    src: str | None = None
    dest: str | None = None
    headers_only: bool | None = None


class OriginFields(Struct):
    """What is read of ``mirror`` and each of ``sources``."""

    name: str | None = None
    filter_subject: str | None = None
    opt_start_seq: int | None = None
    subject_transforms: list[MappingFields] | None = None
    external: dict[str, Any] | None = None


class StreamConfig(Struct, kw_only=True):
    """As in the API; durations in nanoseconds, -1 for unlimited."""

    name: str = ""
    description: str = ""
    subjects: list[str] = []
    retention: Retention = "limits"
    max_consumers: int = 0
    max_msgs: int = 0
    max_bytes: int = 0
    max_age: int = 0
    max_msgs_per_subject: int = 0
    max_msg_size: int = 0
    discard: Discard = "old"
    storage: Storage = "file"
    num_replicas: int = 0
    no_ack: bool = False
    duplicate_window: int = 0
    placement: dict[str, Any] | None = None
    mirror: dict[str, Any] | None = None
    sources: list[dict[str, Any]] | None = None
    compression: str = "none"
    first_seq: int = 0
    subject_transform: dict[str, Any] | None = None
    republish: dict[str, Any] | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: dict[str, Any] = {}
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    allow_batched: bool = False
    persist_mode: str = ""
    metadata: dict[str, str] = {}
    template_owner: str = ""
    pedantic: bool = False

    @property
    def patterns(self) -> list[bytes]:
        return [subject.encode() for subject in self.subjects]

    def required_levels(self) -> list[int]:
        """The API levels that its features need (ADR-44, "API Level")."""
        of_2_12 = self.allow_msg_counter or self.allow_atomic or self.allow_msg_schedules
        levels = {
            1: self.allow_msg_ttl or self.subject_delete_marker_ttl > 0,
            2: of_2_12 or self.persist_mode == "async",
            4: self.allow_batched,
        }
        return [level for level, used in levels.items() if used]

    def echo(self, rules: Rules) -> dict[str, Any]:
        """As a reply shows it: some fields always, the others when set."""
        fields = msgspec.structs.asdict(self)
        hidden = (
            {"pedantic", "metadata"} if rules.extended_stream_config else {"pedantic", "metadata", *_EXTENDED}
        )
        hidden |= set() if rules.message_ttls else {"allow_msg_ttl"}
        always = {*_ALWAYS, *_EXTENDED_ALWAYS}
        shown_fields = {
            name: value for name, value in fields.items() if name not in hidden and (value or name in always)
        }
        metadata = dict(self.metadata) if rules.metadata else {}
        if rules.assets_have_version_metadata:
            metadata |= version_metadata(rules, self.required_levels())
        return shown_fields | ({"metadata": metadata} if metadata else {})


_ALWAYS = (
    "name", "retention", "max_consumers", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject",
    "max_msg_size", "discard", "storage", "num_replicas", "allow_direct", "mirror_direct", "sealed",
    "deny_delete", "deny_purge", "allow_rollup_hdrs",
)  # fmt: skip
# Fields of 2.10 and later; of these some are always shown.
_EXTENDED_ALWAYS = ("compression", "consumer_limits", "allow_msg_ttl")
_EXTENDED = (*_EXTENDED_ALWAYS, "first_seq", "subject_transform")


def version_metadata(rules: Rules, required_levels: list[int]) -> dict[str, str]:
    """What servers of 2.11 and later add to the metadata of every asset (ADR-44).

    What a level does not know, it does not require.
    """
    required = max((level for level in required_levels if level <= rules.api_level), default=0)
    return {"_nats.level": str(rules.api_level), "_nats.req.level": str(required), "_nats.ver": rules.version}


def with_defaults(config: StreamConfig) -> StreamConfig:
    """Fill in what a request left out."""
    window = config.duplicate_window
    if window == 0 and config.mirror is None:
        window = DEFAULT_DUPLICATE_WINDOW
        if 0 < config.max_age < window:
            window = config.max_age
    return msgspec.structs.replace(
        config,
        subjects=config.subjects or ([] if config.mirror is not None or config.sources else [config.name]),
        max_consumers=_or_unlimited(config.max_consumers),
        max_msgs=_or_unlimited(config.max_msgs),
        max_bytes=_or_unlimited(config.max_bytes),
        max_msgs_per_subject=_or_unlimited(config.max_msgs_per_subject),
        max_msg_size=_or_unlimited(config.max_msg_size),
        num_replicas=config.num_replicas or 1,
        duplicate_window=window,
        pedantic=False,
        **(_ROLLUPS if config.subject_delete_marker_ttl or config.allow_msg_schedules else {}),
        allow_msg_ttl=config.allow_msg_ttl or config.subject_delete_marker_ttl > 0,
    )


_ROLLUPS = {"allow_rollup_hdrs": True, "deny_purge": False}  # markers and schedules take the place of others


def _or_unlimited(limit: int) -> int:
    return limit if limit > 0 else -1


def check(config: StreamConfig, rules: Rules) -> StreamConfig:
    """The configuration with its defaults. Raises ``JetStreamError`` for one that no server takes."""
    _check_shapes(config, rules)
    _check_name(config, rules)
    if config.num_replicas > MAX_REPLICAS:
        raise _invalid(f"maximum replicas is {MAX_REPLICAS}")
    if config.num_replicas < 0:
        raise errors.REPLICAS_NEGATIVE()
    if not rules.message_ttls:
        config = msgspec.structs.replace(config, subject_delete_marker_ttl=0)
    if not rules.extended_stream_config:  # a key that a server does not know says nothing to it
        config = _without_extensions(config)
    _check_ages(config)
    _check_combinations(config)
    if rules.counters:
        _check_counters(config)
    if rules.atomic_batches:
        _check_batches(config)
    if rules.schedules:
        _check_schedules(config)
    complete = with_defaults(config)
    _check_windows(complete)
    if config.mirror is not None and config.subjects:
        raise errors.MIRROR_WITH_SUBJECTS()
    if config.mirror is not None and config.subject_delete_marker_ttl:
        raise _invalid("subject delete markers forbidden on mirrors")
    _check_subjects(complete, rules)
    _check_mappings(complete, rules)
    return complete


def _without_extensions(config: StreamConfig) -> StreamConfig:
    """What a level before 2.10 reads of it."""

    def known(origin: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in origin.items() if name != "subject_transforms"}

    return msgspec.structs.replace(
        config,
        first_seq=0,
        mirror=None if config.mirror is None else known(config.mirror),
        sources=None if config.sources is None else [known(source) for source in config.sources],
    )


def check_update(old: StreamConfig, new: StreamConfig, rules: Rules) -> StreamConfig:
    """The configuration to change to. Raises ``JetStreamError`` for a change that servers refuse."""
    unchangeable = [
        (
            new.max_consumers != old.max_consumers and not rules.max_consumers_is_editable,
            "change MaxConsumers",
        ),
        (new.storage != old.storage, "change storage type"),
        (new.retention != old.retention and not rules.retention_is_editable, "change retention policy"),
        (
            new.retention != old.retention and "workqueue" in (new.retention, old.retention),
            "change retention policy to/from workqueue",
        ),
        (old.sealed and not new.sealed, "unseal a sealed stream"),
        (old.deny_delete and not new.deny_delete, "cancel deny message deletes"),
        (old.deny_purge and not new.deny_purge, "cancel deny purge"),
        (
            new.allow_msg_counter != old.allow_msg_counter and rules.counters,
            "change message counter setting",
        ),
    ]
    for refused, what in unchangeable:
        if refused:
            raise _invalid(f"stream configuration update can not {what}")
    if old.allow_msg_ttl and not new.allow_msg_ttl and rules.message_ttls:
        raise _invalid("message TTL status can not be disabled")
    if old.allow_msg_schedules and not new.allow_msg_schedules and rules.schedules:
        raise _invalid("message schedules can not be disabled")
    if new.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if new.sealed:
        return msgspec.structs.replace(
            new, max_age=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
        )
    return new


def _invalid(reason: str) -> errors.JetStreamError:
    return errors.STREAM_INVALID_CONFIG(reason=reason)


def _check_shapes(config: StreamConfig, rules: Rules) -> None:
    """The objects that an echo repeats as they were written have the types that are read of them."""
    all_origins = [config.mirror, *(config.sources or ())]
    shapes: list[tuple[Any, type[Struct]]] = [
        (each, OriginFields) for each in all_origins if each is not None
    ]
    shapes += [
        (each, MappingFields) for each in (config.subject_transform, config.republish) if each is not None
    ]
    for value, shape in shapes:
        try:
            msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise errors.INVALID_JSON(detail=f": {error}" if rules.json_errors_have_detail else "") from None


def _check_mappings(config: StreamConfig, rules: Rules) -> None:
    transform, republish = config.subject_transform or {}, config.republish or {}
    if rules.extended_stream_config:
        if config.mirror is not None:
            origins.check_mirror(config.mirror)
        origins.check_sources(config.sources or ())
        source, target = mapping_ends(transform)
        if source and not subjects.is_valid(source.encode()):
            raise errors.STREAM_TRANSFORM_INVALID_SOURCE(reason=f"invalid subject {source}")
        if problem := mapping_problem(source, target):
            raise errors.STREAM_TRANSFORM_INVALID(reason=problem)
    source, target = mapping_ends(republish)
    if (source and not subjects.is_valid(source.encode())) or mapping_problem(source, target):
        ends = f"from '{source[:100]}' to '{target[:100]}'"
        raise _invalid(f"stream configuration for republish with transform {ends} not valid")
    if target and any(subjects.collide(target.encode(), pattern) for pattern in config.patterns):
        raise _invalid("stream configuration for republish destination forms a cycle")


def _check_name(config: StreamConfig, rules: Rules) -> None:
    if not subjects.is_asset_name(config.name):
        refused = r"'.', '*', '>', '\', '/'" if rules.name_error_names_separators else "'.', '*', '>'"
        raise _invalid(f"stream name is required and can not contain {refused}")
    if len(config.name) > MAX_NAME:
        raise _invalid(f"stream name is too long, maximum allowed is {MAX_NAME}")
    if len(config.description) > MAX_DESCRIPTION:
        raise _invalid(f"stream description is too long, maximum allowed is {MAX_DESCRIPTION}")


def _check_ages(config: StreamConfig) -> None:
    if config.max_age < 0:
        raise _invalid("max age can not be negative")
    if 0 < config.max_age < SHORTEST_AGE:
        raise _invalid("max age needs to be >= 100ms")
    if config.subject_delete_marker_ttl < 0:
        raise _invalid("subject delete marker TTL must not be negative")
    if 0 < config.subject_delete_marker_ttl < SECOND:
        raise _invalid("subject delete marker TTL must be at least 1 second")
    if config.duplicate_window < 0:
        raise _invalid("duplicates window can not be negative")


def _check_windows(config: StreamConfig) -> None:
    if config.max_age and config.duplicate_window > config.max_age:
        raise _invalid("duplicates window can not be larger then max age")
    if 0 < config.duplicate_window < SHORTEST_AGE:
        raise _invalid("duplicates window needs to be >= 100ms")


def _check_combinations(config: StreamConfig) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise _invalid("roll-ups require the purge permission")
    if config.discard_new_per_subject and config.discard != "new":
        raise _invalid("discard new per subject requires discard new policy to be set")
    if config.discard_new_per_subject and config.max_msgs_per_subject <= 0:
        raise _invalid("discard new per subject requires max msgs per subject > 0")


def _check_counters(config: StreamConfig) -> None:
    """ADR-49, "Stream Configuration"."""
    if not config.allow_msg_counter:
        return
    if config.discard == "new":
        raise _invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise _invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise _invalid("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise _invalid("counter stream can only use limits retention")
    if config.mirror is not None:
        raise errors.MIRROR_WITH_COUNTERS()


def _check_batches(config: StreamConfig) -> None:
    if config.allow_atomic and config.mirror is not None:
        raise errors.MIRROR_WITH_BATCHES()


def _check_schedules(config: StreamConfig) -> None:
    """ADR-51, "Stream Configuration"."""
    if not config.allow_msg_schedules:
        return
    if config.discard == "new":
        raise _invalid("message scheduling cannot use discard new")
    if config.mirror is not None:
        raise errors.MIRROR_WITH_SCHEDULES()
    if config.sources:
        raise errors.SOURCE_WITH_SCHEDULES()


def _check_subjects(config: StreamConfig, rules: Rules) -> None:
    patterns = config.patterns
    for index, pattern in enumerate(patterns):
        if not subjects.is_valid(pattern):
            raise _invalid("invalid subject")
        if not rules.overlap_error_names_duplicates and pattern in patterns[:index]:
            raise _invalid("duplicate subjects detected")
        _check_reserved(pattern, config, rules)
        for other in patterns[index + 1 :]:
            if subjects.collide(pattern, other) and (
                rules.overlap_error_names_duplicates or pattern != other
            ):
                raise _invalid(f'subject "{pattern.decode()}" overlaps with "{other.decode()}"')


def _check_reserved(pattern: bytes, config: StreamConfig, rules: Rules) -> None:
    """A stream that acknowledges must not capture the API's own traffic."""
    if not rules.capture_all_requires_no_ack:
        if subjects.covers(b"$JS.API.>", pattern):
            raise _invalid("subjects overlap with jetstream api")
        return
    if config.no_ack:
        return
    if pattern == subjects.ANY_TAIL:
        raise _invalid("capturing all subjects requires no-ack to be true")
    reserved = any(subjects.collide(pattern, space) for space in (b"$JS.>", b"$JSC.>", b"$NRG.>"))
    if reserved and not subjects.covers(b"$JS.EVENT.>", pattern):
        raise _invalid("subjects that overlap with jetstream api require no-ack to be true")
    if subjects.collide(pattern, b"$SYS.>") and not subjects.covers(b"$SYS.ACCOUNT.>", pattern):
        raise _invalid("subjects that overlap with system api require no-ack to be true")
