"""Differences between server releases: one named rule each, chosen by level.

Nothing else in the package asks for the level. A rule's text says what holds when it is true. A level answers
as the release that ``levels.release_of`` names for it, with which it was compared.
"""

from __future__ import annotations

from msgspec import Struct

from plumbline.reference_broker.nats.levels import Level, api_level, release_of


class Rules(Struct):
    """The answers in which levels differ."""

    version: str
    api_level: int  # 0: the API knows no levels

    # Pull requests
    no_wait_ends_with_404: (
        bool  # a partly filled no_wait pull ends with 404, before with 408 and pending headers
    )
    no_wait_never_lingers: bool  # a no_wait pull that reaches the end of the stream always ends there
    no_409_for_heartbeat_pulls: bool  # beyond max_waiting a request with a heartbeat gets no 409
    batch_completed_status: bool  # a batch that fills before its max_bytes ends with 409 Batch Completed
    missing_consumer_gets_503: (
        bool  # a pull on a consumer or stream that is not there gets 503, before silence
    )

    # Acknowledgements
    term_takes_reason: bool  # "+TERM reason" terminates
    ack_none_gets_503: bool  # an ack on an ack-none consumer gets 503, before an empty reply
    future_ack_is_ignored: bool  # before, it moved the floor and was answered
    max_deliver_1_never_redelivered: bool  # with max_deliver 1 num_redelivered is 0
    purge_drops_all_pending: (
        bool  # a purge forgets all that is pending, and spares consumers with a filter or not
    )
    max_deliver_checked_at_ack_wait: (
        bool  # max_deliver is noticed when ack_wait passes, before only with the next pull
    )

    # Consumers
    floor_starts_at_position: bool  # a consumer that starts at N shows ack_floor 0/N-1, before 0/0
    start_beyond_end_waits: bool  # opt_start_seq beyond the end is waited for, before the next message
    skipped_counts_as_delivered: bool  # delivered.stream_seq shows what was skipped
    deliver_last_shows_skipped: bool  # what deliver_policy last without a filter skipped shows in delivered
    multiple_filters: bool  # filter_subjects is known
    filter_must_be_subset: bool
    pull_to_push_has_own_error: (
        bool  # a pull consumer that is to push is refused for that, before for max_waiting
    )
    durable_shows_name: bool
    create_action_field: bool  # "action" in a create request is known
    consumer_pause: bool  # CONSUMER.PAUSE is known
    consumer_reset: bool  # CONSUMER.RESET is known
    negative_means_default: bool  # max_waiting -1 and the like are read as unset, before refused or kept
    refuses_negative_ack_wait: bool
    backoff_with_unlimited_deliver: bool  # backoff with max_deliver -1
    priority_groups: bool
    priority_groups_need_policy: bool  # without one they are refused, before accepted
    flow_control_acks: bool  # ack_policy flow_control is known
    prioritized_clients: bool  # priority_policy prioritized is known, and an odd priority is refused
    bad_name_is_config_error: bool  # a bad consumer name is a configuration error 10052, before 10103
    workqueue_ack_text: bool
    workqueue_checks_start_first: bool  # its deliver_policy is refused before its filter

    # Streams
    info_has_timestamp: bool  # "ts" in stream and consumer info
    info_names_leader: bool  # "cluster" in STREAM.INFO, also of a server by itself
    assets_have_version_metadata: bool  # metadata _nats.ver, _nats.level, _nats.req.level
    metadata: bool
    extended_stream_config: bool  # compression, consumer_limits, first_seq ...
    message_ttls: bool
    strict_json: bool  # unknown keys of a request are refused
    json_errors_have_detail: bool
    empty_body_is_an_object: bool
    name_error_names_separators: bool  # text of the refusal of a bad stream name
    overlap_error_names_duplicates: bool
    capture_all_requires_no_ack: bool
    retention_is_editable: bool
    discard_new_update_removes_nothing: bool  # an update that lowers a limit removes nothing
    interest_drops_without_consumers: (
        bool  # a stream that turns to interest without a consumer loses its messages
    )
    max_consumers_is_editable: bool
    disabled_direct_get_gets_503: bool
    direct_gets_in_batches: bool  # batch and multi_last of DIRECT.GET
    gets_without_headers: bool  # no_hdr of STREAM.MSG.GET and DIRECT.GET
    account_info_has_reservations: bool
    source_header_has_subjects: (
        bool  # Nats-Stream-Source has filter and subject, before stream and sequence alone
    )

    # Publishing
    puback_has_space: bool
    size_checked_first: bool  # a message that is too large is refused for that, before for its headers
    duplicates_checked_first: bool  # the duplicate check precedes the expected-sequence checks
    max_bytes_counts_overhead: bool  # discard new compares max_bytes with whole records, before with payloads
    bad_rollup_gets_error: bool
    atomic_batches: bool  # ADR-50
    source_header_is_refused: bool  # Nats-Stream-Source in a message of a client
    counters: bool  # ADR-49
    schedules: bool  # ADR-51
    schedules_repeat: bool  # crontab and intervals, before only @at
    memory_snapshots: bool  # STREAM.SNAPSHOT of a stream in memory
    batches_end_with_marker: bool  # Nats-Batch-Commit: eob commits a batch, and its message is not stored

    @classmethod
    def of(cls, level: Level) -> Rules:
        v2_10, v2_11, v2_12, v2_14, v2_15 = (level >= (2, minor) for minor in (10, 11, 12, 14, 15))
        return cls(
            version=release_of(level),
            api_level=api_level(level),
            no_wait_ends_with_404=v2_11,
            no_wait_never_lingers=v2_11,
            no_409_for_heartbeat_pulls=v2_11,
            batch_completed_status=v2_10,
            missing_consumer_gets_503=v2_10,
            term_takes_reason=v2_10,  # 2.10.4
            ack_none_gets_503=v2_10,
            future_ack_is_ignored=v2_10,
            max_deliver_1_never_redelivered=v2_11,
            purge_drops_all_pending=not v2_10,
            max_deliver_checked_at_ack_wait=v2_10,
            floor_starts_at_position=v2_14,
            start_beyond_end_waits=v2_11,
            skipped_counts_as_delivered=not v2_10,
            deliver_last_shows_skipped=v2_11 or not v2_10,
            multiple_filters=v2_10,
            filter_must_be_subset=not v2_10,
            pull_to_push_has_own_error=v2_10,
            durable_shows_name=v2_12,
            create_action_field=v2_10,
            consumer_pause=v2_11,
            consumer_reset=v2_14,
            negative_means_default=v2_12,
            refuses_negative_ack_wait=v2_12,
            backoff_with_unlimited_deliver=v2_10,
            priority_groups=v2_11,
            priority_groups_need_policy=v2_12,
            flow_control_acks=v2_14,
            bad_name_is_config_error=v2_12,
            prioritized_clients=v2_12,
            workqueue_ack_text=v2_11,
            workqueue_checks_start_first=v2_12,  # 2.12.15 and 2.14.2; not yet 2.14.0
            info_has_timestamp=v2_10,
            info_names_leader=v2_10,
            assets_have_version_metadata=v2_11,
            metadata=v2_10,
            extended_stream_config=v2_10,
            message_ttls=v2_11,
            strict_json=v2_12,
            json_errors_have_detail=v2_11,
            empty_body_is_an_object=v2_11,
            name_error_names_separators=v2_12,
            overlap_error_names_duplicates=v2_12,
            capture_all_requires_no_ack=v2_10,  # 2.10.17
            retention_is_editable=v2_10,
            discard_new_update_removes_nothing=v2_10,  # 2.10.29; not yet 2.10.0
            interest_drops_without_consumers=v2_14,
            max_consumers_is_editable=v2_12,
            disabled_direct_get_gets_503=v2_10,
            direct_gets_in_batches=v2_11,
            gets_without_headers=v2_12,
            account_info_has_reservations=v2_10,
            source_header_has_subjects=v2_10,
            puback_has_space=not v2_12,
            size_checked_first=v2_14,  # 2.14.9; observed 2.9.10 and 2.15.2
            duplicates_checked_first=not v2_12,
            max_bytes_counts_overhead=v2_10,  # 2.10.5
            bad_rollup_gets_error=v2_11,
            atomic_batches=v2_12,
            source_header_is_refused=v2_15,
            counters=v2_12,
            schedules=v2_12,
            schedules_repeat=v2_14,
            memory_snapshots=level >= (2, 15),
            batches_end_with_marker=v2_14,
        )
