"""The words of the JetStream API that traces may use as keys, and what kind of value some of them take.

Source: docs.nats.io, "JetStream wire API Reference", and the configuration of nats-server up to 2.15.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Tokens of $JS.API and $JS.ACK subjects: a name like one of these would be rewritten inside them.
RESERVED = _words("""
    API ACK FC JS EVENT ADVISORY METRIC INFO STREAM CONSUMER CREATE UPDATE DELETE NAMES LIST PURGE
    MSG NEXT GET DIRECT DURABLE SNAPSHOT RESTORE PEER REMOVE LEADER STEPDOWN ACCOUNT PAUSE RESET
    UNPIN TERM TEMPLATE
""")
STREAM_CONFIG = _words("""
    description subjects retention max_consumers max_msgs max_bytes max_age max_msgs_per_subject
    max_msg_size discard discard_new_per_subject storage num_replicas no_ack duplicate_window
    placement mirror sources compression first_seq subject_transform republish sealed deny_delete
    deny_purge allow_rollup_hdrs allow_direct mirror_direct consumer_limits metadata allow_msg_ttl
    subject_delete_marker_ttl allow_msg_counter allow_atomic allow_batched allow_msg_schedules
    persist_mode
""")
CONSUMER_CONFIG = _words("""
    description deliver_policy opt_start_seq opt_start_time ack_policy ack_wait max_deliver backoff
    filter_subject filter_subjects replay_policy rate_limit_bps sample_freq max_waiting
    max_ack_pending flow_control idle_heartbeat headers_only max_batch max_expires max_bytes
    inactive_threshold num_replicas mem_storage deliver_subject deliver_group metadata pause_until
    priority_groups priority_policy priority_timeout
""")
STREAM_STATE = _words("messages bytes first_seq last_seq consumer_count num_subjects num_deleted")
CONSUMER_STATE = _words("""
    delivered delivered.consumer_seq delivered.stream_seq
    ack_floor ack_floor.consumer_seq ack_floor.stream_seq
    num_ack_pending num_redelivered num_waiting num_pending push_bound paused
""")

SHORT_FOR = {
    "ack": "ack_policy",
    "deliver": "deliver_policy",
    "replay": "replay_policy",
    "filter": "filter_subject",
}
NANOSECONDS = _words("""
    max_age duplicate_window subject_delete_marker_ttl ack_wait backoff idle_heartbeat max_expires
    inactive_threshold priority_timeout
""")
LISTS = _words("subjects filter_subjects backoff priority_groups")
SUBJECTS = _words("subjects filter_subject filter_subjects deliver_subject")
