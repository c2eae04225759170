"""Defects of schedules, and of messages that end one, which are to be refused.

What is right: ``check_schedule`` and ``check_stop`` of ``streams.schedules``.
"""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect
from plumbline.reference_broker.nats.defects.methods import alter_streams, method_defect
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.reference_broker.nats.jetstream.streams.lifetimes import read_ttl
from plumbline.reference_broker.nats.jetstream.streams.publish import PublishHeaders
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream


def _accepts(broker: Broker, chosen: Callable[[str, PublishHeaders], bool]) -> None:
    """What is ``chosen``, by its subject and headers, is not refused for its schedule."""

    def check_schedule(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> None:
        if not chosen(subject.decode(), directives):
            Stream.check_schedule(self, subject, directives, now)

    alter_streams(broker, check_schedule=check_schedule)


@defect("JS-PUB-071")
def pub_message_may_end_its_own_subject(broker: Broker) -> None:
    """A message whose Nats-Scheduler is its own subject is stored."""
    _accepts(broker, lambda subject, sent: sent.scheduler == subject)


@defect("JS-PUB-071")
def pub_message_may_end_nothing(broker: Broker) -> None:
    """A message with Nats-Schedule-Next: purge and an empty Nats-Scheduler is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule_next == "purge" and not sent.scheduler)


@defect("JS-PUB-071")
def pub_message_may_end_wildcards(broker: Broker) -> None:
    """A message whose Nats-Scheduler has wildcards is stored."""
    _accepts(broker, lambda subject, sent: "*" in sent.scheduler)


@method_defect(Stream.check_schedule, "JS-PUB-071")
def pub_refused_end_is_one(self: Stream, subject: bytes, directives: PublishHeaders, now: int) -> None:
    """A message that may not end a schedule is refused, and the schedules of its stream are removed."""
    try:
        Stream.check_schedule(self, subject, directives, now)
    except JetStreamError as error:
        if error.err_code == errors.SCHEDULER_INVALID.err_code:
            self.purge(now)
        raise


@defect("JS-PUB-072")
def pub_schedule_takes_any_rollup(broker: Broker) -> None:
    """A schedule with another Nats-Schedule-Rollup than sub is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.rollup not in ("", "sub"))


@defect("JS-PUB-074")
def pub_schedule_takes_unknown_time_zones(broker: Broker) -> None:
    """A schedule in a time zone that is not known is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.zone == "Nowhere")


@defect("JS-PUB-074")
def pub_schedule_takes_empty_time_zones(broker: Broker) -> None:
    """A schedule with an empty time zone is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.zone == "")


@defect("JS-PUB-074")
def pub_schedule_takes_fixed_offsets(broker: Broker) -> None:
    """A schedule in a fixed offset from UTC is stored."""
    _accepts(broker, lambda subject, sent: (sent.schedule.zone or "").startswith(("+", "-")))


@defect("JS-PUB-074")
def pub_schedule_at_takes_time_zones(broker: Broker) -> None:
    """A schedule at a time with a time zone is stored."""
    _accepts(
        broker, lambda subject, sent: sent.schedule.pattern.startswith("@at") and bool(sent.schedule.zone)
    )


@defect("JS-PUB-074")
def pub_interval_takes_time_zones(broker: Broker) -> None:
    """A schedule with an interval and a time zone is stored."""
    _accepts(
        broker, lambda subject, sent: sent.schedule.pattern.startswith("@every") and bool(sent.schedule.zone)
    )


@defect("JS-PUB-082")
def pub_schedule_takes_any_ttl(broker: Broker) -> None:
    """A schedule whose Nats-Schedule-TTL is no duration is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.ttl != "" and read_ttl(sent.schedule.ttl) is None)


@defect("JS-PUB-082")
def pub_schedule_takes_a_ttl_of_milliseconds(broker: Broker) -> None:
    """A schedule whose Nats-Schedule-TTL is below a second is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.ttl.endswith("ms"))


@defect("JS-PUB-083")
def pub_schedule_takes_any_source(broker: Broker) -> None:
    """A schedule with any Nats-Schedule-Source is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.source != "")


@defect("JS-PUB-083")
def pub_schedule_takes_itself_as_source(broker: Broker) -> None:
    """A schedule whose Nats-Schedule-Source is its own subject is stored."""
    _accepts(broker, lambda subject, sent: sent.schedule.source == subject)


@defect("JS-PUB-083")
def pub_schedule_takes_its_target_as_source(broker: Broker) -> None:
    """A schedule whose Nats-Schedule-Source is its target is stored."""
    _accepts(broker, lambda subject, sent: "" != sent.schedule.source == sent.schedule.target)


@defect("JS-PUB-083")
def pub_schedule_takes_wildcards_as_source(broker: Broker) -> None:
    """A schedule whose Nats-Schedule-Source has a wildcard is stored."""
    _accepts(broker, lambda subject, sent: "*" in sent.schedule.source)


@defect("JS-PUB-084")
def pub_schedule_may_roll_all_up(broker: Broker) -> None:
    """A schedule with Nats-Rollup: all is stored."""
    _accepts(broker, lambda subject, sent: sent.rollup == "all" and sent.schedule.pattern != "")


@method_defect(Stream.check_schedule, "JS-PUB-084")
def pub_schedule_may_have_no_rollup(
    self: Stream, subject: bytes, directives: PublishHeaders, now: int
) -> None:
    """A schedule with Nats-Rollup: sub is refused as one with all is."""
    if directives.rollup and directives.schedule.pattern:
        raise errors.SCHEDULE_ROLLUP_INVALID()
    Stream.check_schedule(self, subject, directives, now)
