"""Where servers of different age differ: one named rule each, chosen by level, in this one place.

Nothing else in the package asks for the level. A rule's text says what holds when it is true. A level answers
as the release that ``levels.VERSIONS`` names for it, with which it was compared.
"""

from __future__ import annotations

from msgspec import Struct

from plumbline.reference_broker.nats.levels import VERSIONS, Level, api_level


class Rules(Struct):
    """The answers in which levels differ."""

    version: str
    api_level: int  # 0: the API knows no levels

    # Pull requests
    no_wait_ends_with_404: (
        bool  # a partly filled no_wait pull ends with 404, before with 408 and pending headers
    )
    no_wait_never_lingers: bool  # a no_wait pull that reaches the end of the stream always ends there
    full_queue_is_silent_to_heartbeats: bool  # beyond max_waiting a request with a heartbeat gets no 409
    batch_completed_is_told: bool  # a batch that fills before its max_bytes ends with 409 Batch Completed
    missing_consumer_has_no_responder: (
        bool  # a pull on a consumer or stream that is not there gets 503, before silence
    )

    # Acknowledgements
    term_takes_reason: bool  # "+TERM reason" terminates
    ack_none_has_no_responder: bool  # an ack on an ack-none consumer gets 503, before an empty reply
    ack_beyond_position_is_ignored: bool  # before, it moved the floor and was answered
    one_delivery_is_no_redelivery: bool  # with max_deliver 1 num_redelivered is 0
    purge_is_blunt: bool  # a purge forgets all that is pending, and spares consumers with a filter or not
    exhausted_at_ack_wait: bool  # max_deliver is noticed when ack_wait passes, before only with the next pull

    # Consumers
    floor_starts_at_position: bool  # a consumer that starts at N shows ack_floor 0/N-1, before 0/0
    start_beyond_end_is_kept: bool  # opt_start_seq beyond the end is waited for, before the next message
    position_counts_as_delivered: bool  # delivered.stream_seq shows what was skipped
    last_start_is_shown: bool  # what deliver_policy last without a filter skipped shows in delivered
    multiple_filters: bool  # filter_subjects is known
    filter_must_be_subset: bool
    push_change_is_named: bool  # a pull consumer that is to push is refused for that, before for max_waiting
    durable_shows_name: bool
    actions: bool  # "action" in a create request is known
    pauses: bool  # CONSUMER.PAUSE is known
    negatives_are_defaults: bool  # max_waiting -1 and the like are read as unset, before refused or kept
    negative_ack_wait_is_refused: bool
    backoff_may_be_unlimited: bool  # backoff with max_deliver -1
    priority_groups: bool
    priority_groups_need_policy: bool  # without one they are refused, before accepted
    flow_control_acks: bool  # ack_policy flow_control is known
    prioritized_clients: bool  # priority_policy prioritized is known, and an odd priority is refused
    names_are_config: bool  # a bad consumer name is a configuration error 10052, before 10103
    workqueue_ack_text: bool
    workqueue_start_comes_first: bool  # its deliver_policy is refused before its filter

    # Streams
    infos_are_stamped: bool  # "ts" in stream and consumer info
    assets_bear_versions: bool  # metadata _nats.ver, _nats.level, _nats.req.level
    metadata: bool
    extended_stream_config: bool  # compression, consumer_limits, first_seq ...
    message_ttls: bool
    strict_json: bool  # unknown keys of a request are refused
    json_errors_say_why: bool
    empty_body_is_an_object: bool
    names_refuse_separators: bool  # text of the refusal of a bad stream name
    overlap_names_duplicates: bool
    capture_all_needs_no_ack: bool
    retention_may_change: bool
    discard_new_keeps_what_is_there: bool  # an update that lowers a limit removes nothing
    interest_needs_consumers: bool  # a stream that turns to interest without a consumer loses its messages
    max_consumers_may_change: bool
    direct_get_off_has_no_responder: bool
    direct_gets_in_batches: bool  # batch and multi_last of DIRECT.GET
    account_shows_reservations: bool
    sources_name_subjects: bool  # Nats-Stream-Source has filter and subject, before stream and sequence alone

    # Publishing
    puback_has_blank: bool
    size_comes_first: bool  # a message that is too large is refused for that, before for its headers
    duplicates_come_first: bool  # the duplicate check precedes the expected-sequence checks
    record_overhead_counts: bool  # discard new compares max_bytes with whole records, before with payloads
    bad_rollup_is_answered: bool
    atomic_batches: bool  # ADR-50

    @classmethod
    def of(cls, level: Level) -> Rules:
        v2_10, v2_11, v2_12, v2_14 = (level >= (2, minor) for minor in (10, 11, 12, 14))
        return cls(
            version=VERSIONS.get(level, ".".join(map(str, level)) + ".0"),
            api_level=api_level(level),
            no_wait_ends_with_404=v2_11,
            no_wait_never_lingers=v2_11,
            full_queue_is_silent_to_heartbeats=v2_11,
            batch_completed_is_told=v2_10,
            missing_consumer_has_no_responder=v2_10,
            term_takes_reason=v2_10,  # 2.10.4
            ack_none_has_no_responder=v2_10,
            ack_beyond_position_is_ignored=v2_10,
            one_delivery_is_no_redelivery=v2_11,
            purge_is_blunt=not v2_10,
            exhausted_at_ack_wait=v2_10,
            floor_starts_at_position=v2_14,
            start_beyond_end_is_kept=v2_11,
            position_counts_as_delivered=not v2_10,
            last_start_is_shown=v2_11 or not v2_10,
            multiple_filters=v2_10,
            filter_must_be_subset=not v2_10,
            push_change_is_named=v2_10,
            durable_shows_name=v2_12,
            actions=v2_10,
            pauses=v2_11,
            negatives_are_defaults=v2_12,
            negative_ack_wait_is_refused=v2_12,
            backoff_may_be_unlimited=v2_10,
            priority_groups=v2_11,
            priority_groups_need_policy=v2_12,
            flow_control_acks=v2_14,
            names_are_config=v2_12,
            prioritized_clients=v2_12,
            workqueue_ack_text=v2_11,
            workqueue_start_comes_first=v2_12,  # 2.12.15 and 2.14.2; not yet 2.14.0
            infos_are_stamped=v2_10,
            assets_bear_versions=v2_11,
            metadata=v2_10,
            extended_stream_config=v2_10,
            message_ttls=v2_11,
            strict_json=v2_12,
            json_errors_say_why=v2_11,
            empty_body_is_an_object=v2_11,
            names_refuse_separators=v2_12,
            overlap_names_duplicates=v2_12,
            capture_all_needs_no_ack=v2_10,  # 2.10.17
            retention_may_change=v2_10,
            discard_new_keeps_what_is_there=v2_10,  # 2.10.29; not yet 2.10.0
            interest_needs_consumers=v2_14,
            max_consumers_may_change=v2_12,
            direct_get_off_has_no_responder=v2_10,
            direct_gets_in_batches=v2_11,
            account_shows_reservations=v2_10,
            sources_name_subjects=v2_10,
            puback_has_blank=not v2_12,
            size_comes_first=v2_14,  # 2.14.9; observed 2.9.10 and 2.15.2
            duplicates_come_first=not v2_12,
            record_overhead_counts=v2_10,  # 2.10.5
            bad_rollup_is_answered=v2_11,
            atomic_batches=v2_12,
        )
