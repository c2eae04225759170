"""Every error a JetStream reply can carry: code, stable ``err_code`` and text. One table, nothing else.

``err_code`` is what clients may rely on (ADR-7); texts are those of the servers.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class JetStreamError(Exception):
    """An error on its way into a reply."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description

    def reply(self) -> dict[str, Any]:
        """The ``error`` object (ADR-1). As in nats-server, U+FFFD stands for a byte that is no UTF-8."""
        text = self.description.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return {"code": self.code, "err_code": self.err_code, "description": text}


class ErrorCode(Struct, frozen=True):
    """One row of the table; calling it makes the error, with the row's placeholders filled in."""

    code: int
    err_code: int
    text: str

    def __call__(self, **values: object) -> JetStreamError:
        return JetStreamError(self.code, self.err_code, self.text.format(**values))


BAD_REQUEST = ErrorCode(400, 10003, "bad request")
INVALID_JSON = ErrorCode(400, 10025, "invalid JSON{detail}")
NOT_EMPTY_REQUEST = ErrorCode(400, 10038, "expected an empty request payload")
REQUIRED_API_LEVEL = ErrorCode(412, 10185, "JetStream minimum api level required")

STREAM_NOT_FOUND = ErrorCode(404, 10059, "stream not found")
STREAM_MISMATCH = ErrorCode(400, 10056, "stream name in subject does not match request")
STREAM_NAME_IN_USE = ErrorCode(400, 10058, "stream name already in use with a different configuration")
STREAM_SUBJECT_OVERLAP = ErrorCode(400, 10065, "subjects overlap with an existing stream")
STREAM_INVALID_CONFIG = ErrorCode(500, 10052, "{reason}")
STREAM_TRANSFORM_INVALID = ErrorCode(400, 10156, "stream transform: {reason}")
STREAM_TRANSFORM_INVALID_SOURCE = ErrorCode(400, 10155, "stream transform source: {reason}")
STREAM_NAME_HAS_PATH_SEPARATORS = ErrorCode(400, 10128, "Stream name can not contain path separators")
STREAM_REPLICAS_NOT_SUPPORTED = ErrorCode(500, 10074, "replicas > 1 not supported in non-clustered mode")
REPLICAS_NEGATIVE = ErrorCode(400, 10133, "replicas count cannot be negative")
MIRROR_WITH_SUBJECTS = ErrorCode(400, 10034, "stream mirrors can not contain subjects")
MIRROR_MULTIPLE_FILTERS = ErrorCode(
    400, 10150, "mirror with multiple subject transforms cannot also have a single subject filter"
)
MIRROR_INVALID_FILTER = ErrorCode(400, 10151, "mirror transform source: {reason}")
MIRROR_OVERLAPPING_FILTERS = ErrorCode(400, 10152, "mirror subject filters can not overlap")
MIRROR_INVALID_TRANSFORM = ErrorCode(400, 10154, "mirror transform: {reason}")
SOURCE_DUPLICATE = ErrorCode(400, 10140, "duplicate source configuration detected")
SOURCE_MULTIPLE_FILTERS = ErrorCode(
    400, 10144, "source with multiple subject transforms cannot also have a single subject filter"
)
SOURCE_INVALID_FILTER = ErrorCode(400, 10145, "source transform source: {reason}")
SOURCE_INVALID_TRANSFORM = ErrorCode(400, 10146, "source transform: {reason}")
SOURCE_OVERLAPPING_FILTERS = ErrorCode(400, 10147, "source filters can not overlap")
STREAM_SEALED = ErrorCode(400, 10109, "invalid operation on sealed stream")
STREAM_PURGE_FAILED = ErrorCode(500, 10110, "stream purge not permitted")
MESSAGE_DELETE_FAILED = ErrorCode(500, 10057, "message delete not permitted")
STORE_REFUSED = ErrorCode(500, 10057, "{reason}")
RESTORE_FAILED = ErrorCode(500, 10062, "restore failed: {reason}")
STREAM_NAME_EXISTS_RESTORE_FAILED = ErrorCode(400, 10130, "stream name already in use, cannot restore")
SNAPSHOT_DELIVER_SUBJECT_INVALID = ErrorCode(400, 10015, "deliver subject not valid")
SNAPSHOT_FAILED = ErrorCode(500, 10064, "snapshot failed: {reason}")
NO_MESSAGE_FOUND = ErrorCode(404, 10037, "no message found")
SEQUENCE_NOT_FOUND = ErrorCode(400, 10043, "sequence {seq} not found")

STREAM_LIMIT_REACHED = ErrorCode(400, 10027, "maximum number of streams reached")
ACCOUNT_NEEDS_MAX_BYTES = ErrorCode(400, 10113, "account requires a stream config to have max bytes set")
STREAM_MAX_BYTES_ABOVE_LIMIT = ErrorCode(
    400, 10122, "stream max bytes exceeds account limit max stream bytes"
)
INSUFFICIENT_STORAGE = ErrorCode(500, 10047, "insufficient storage resources available")
INSUFFICIENT_MEMORY = ErrorCode(500, 10028, "insufficient memory resources available")
STORE_FAILED = ErrorCode(503, 10077, "{reason}")
WRONG_LAST_SEQUENCE = ErrorCode(400, 10071, "wrong last sequence: {seq}")
WRONG_LAST_SEQUENCE_IN_BATCH = ErrorCode(400, 10164, "wrong last sequence")
WRONG_LAST_MSG_ID = ErrorCode(400, 10070, "wrong last msg ID: {msg_id}")
EXPECTED_STREAM_MISMATCH = ErrorCode(400, 10060, "expected stream does not match")
MESSAGE_TOO_LARGE = ErrorCode(400, 10054, "message size exceeds maximum allowed")
HEADER_TOO_LARGE = ErrorCode(400, 10097, "header size exceeds maximum allowed of 64k")
ROLLUP_FAILED = ErrorCode(500, 10111, "{reason}")
MESSAGE_TTL_DISABLED = ErrorCode(400, 10166, "per-message TTL is disabled")
SOURCE_HEADER_REFUSED = ErrorCode(400, 10227, "message stream source header is not allowed")
MESSAGE_TTL_INVALID = ErrorCode(400, 10165, "invalid per-message TTL")

COUNTERS_DISABLED = ErrorCode(400, 10168, "message counters is disabled")
COUNTER_INCREMENT_MISSING = ErrorCode(400, 10169, "message counter increment is missing")
COUNTER_HAS_PAYLOAD = ErrorCode(400, 10170, "message counter has payload")
COUNTER_INCREMENT_INVALID = ErrorCode(400, 10171, "message counter increment is invalid")
COUNTER_BROKEN = ErrorCode(400, 10172, "message counter is broken")
MIRROR_WITH_COUNTERS = ErrorCode(400, 10173, "stream mirrors can not also calculate counters")

SCHEDULES_DISABLED = ErrorCode(400, 10188, "message schedules is disabled")
SCHEDULE_PATTERN_INVALID = ErrorCode(400, 10189, "message schedules pattern is invalid")
SCHEDULE_TARGET_INVALID = ErrorCode(400, 10190, "message schedules target is invalid")
SCHEDULE_TTL_INVALID = ErrorCode(400, 10191, "message schedules invalid per-message TTL")
SCHEDULE_ROLLUP_INVALID = ErrorCode(400, 10192, "message schedules invalid rollup")
SCHEDULE_SOURCE_INVALID = ErrorCode(400, 10203, "message schedules source is invalid")
SCHEDULER_INVALID = ErrorCode(400, 10212, "message schedules invalid scheduler")
SCHEDULE_TIME_ZONE_INVALID = ErrorCode(400, 10223, "message schedules time zone is invalid")
MIRROR_WITH_BATCHES = ErrorCode(400, 10198, "stream mirrors can not also use atomic publishing")
MIRROR_WITH_SCHEDULES = ErrorCode(400, 10186, "stream mirrors can not also schedule messages")
SOURCE_WITH_SCHEDULES = ErrorCode(400, 10187, "stream source can not also schedule messages")

BATCHES_DISABLED = ErrorCode(400, 10174, "atomic publish is disabled")
BATCH_SEQUENCE_MISSING = ErrorCode(400, 10175, "atomic publish sequence is missing")
BATCH_INCOMPLETE = ErrorCode(400, 10176, "atomic publish batch is incomplete")
BATCH_HEADER_UNSUPPORTED = ErrorCode(400, 10177, "atomic publish unsupported header used: {header}")
BATCH_ID_INVALID = ErrorCode(400, 10179, "atomic publish batch ID is invalid")
BATCH_TOO_LARGE = ErrorCode(400, 10199, "atomic publish batch is too large: {size}")
BATCH_COMMIT_INVALID = ErrorCode(400, 10200, "atomic publish batch commit is invalid")
BATCHES_TOO_MANY = ErrorCode(429, 10210, "atomic publish too many inflight")
BATCH_WITH_DUPLICATE = ErrorCode(400, 10201, "atomic publish batch contains duplicate message id")

CONSUMER_NOT_FOUND = ErrorCode(404, 10014, "consumer not found")
CONSUMER_CREATE_FAILED = ErrorCode(500, 10012, "{reason}")
CONSUMER_NAME_IN_USE = ErrorCode(400, 10013, "consumer name already in use")
CONSUMER_ALREADY_EXISTS = ErrorCode(400, 10148, "consumer already exists")
CONSUMER_DOES_NOT_EXIST = ErrorCode(400, 10149, "consumer does not exist")
CONSUMER_MAX_ACK_PENDING_ABOVE_LIMIT = ErrorCode(
    400, 10121, "consumer max ack pending exceeds system limit of {limit}"
)
CONSUMER_INVALID_RESET = ErrorCode(400, 10204, "invalid reset: {reason}")
CONSUMER_LIMIT_REACHED = ErrorCode(400, 10026, "maximum consumers limit reached")
CONSUMER_DURABLE_NOT_IN_SUBJECT = ErrorCode(
    400, 10016, "consumer expected to be durable but no durable name set in subject"
)
CONSUMER_DURABLE_NOT_MATCHING_SUBJECT = ErrorCode(
    400, 10017, "consumer name in subject does not match durable name in request"
)
CONSUMER_DURABLE_NOT_SET = ErrorCode(
    400, 10018, "consumer expected to be durable but a durable name was not set"
)
CONSUMER_EPHEMERAL_WITH_DURABLE = ErrorCode(
    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
)
CONSUMER_NAME_HAS_PATH_SEPARATORS = ErrorCode(400, 10127, "Consumer name can not contain path separators")
CONSUMER_NAME_TOO_LONG = ErrorCode(400, 10102, "consumer name is too long, maximum allowed is 255")
CONSUMER_BAD_DURABLE_NAME = ErrorCode(400, 10103, "durable name can not contain '.', '*', '>'")
CONSUMER_DURABLE_AND_NAME_DIFFER = ErrorCode(
    400, 10132, "Consumer Durable and Name have to be equal if both are provided"
)
CONSUMER_DESCRIPTION_TOO_LONG = ErrorCode(
    400, 10107, "consumer description is too long, maximum allowed is 4096"
)
CONSUMER_FILTER_NOT_MATCHING_SUBJECT = ErrorCode(
    400, 10131, "Consumer create request did not match filtered subject from create subject"
)
CONSUMER_FILTER_NOT_SUBSET = ErrorCode(
    400, 10093, "consumer filter subject is not a valid subset of the interest subjects"
)
CONSUMER_DUPLICATE_FILTERS = ErrorCode(
    400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified"
)
CONSUMER_MULTIPLE_FILTERS_IN_SUBJECT = ErrorCode(
    400, 10137, "consumer with multiple subject filters cannot use subject based API"
)
CONSUMER_OVERLAPPING_FILTERS = ErrorCode(400, 10138, "consumer subject filters cannot overlap")
CONSUMER_EMPTY_FILTER = ErrorCode(400, 10139, "consumer filter in FilterSubjects cannot be empty")
CONSUMER_INVALID_POLICY = ErrorCode(400, 10094, "{reason}")
CONSUMER_INVALID_SAMPLING = ErrorCode(400, 10095, "failed to parse consumer sampling configuration: {reason}")
CONSUMER_MAX_DELIVER_BACKOFF = ErrorCode(
    400, 10116, "max deliver is required to be > length of backoff values"
)
FLOW_ACKS_NEED_PUSH = ErrorCode(400, 10218, "flow control ack policy requires a push based consumer")
FLOW_ACKS_WITH_ACK_WAIT = ErrorCode(400, 10221, "flow control ack policy requires unset ack wait")
FLOW_ACKS_WITH_MAX_DELIVER = ErrorCode(400, 10222, "flow control ack policy requires unset max deliver")
CONSUMER_ACK_WAIT_NEGATIVE = ErrorCode(400, 10183, "consumer ack wait needs to be positive")
CONSUMER_BACKOFF_NEGATIVE = ErrorCode(400, 10184, "consumer backoff needs to be positive")
CONSUMER_REPLICAS_EXCEED_STREAM = ErrorCode(400, 10126, "consumer config replica count exceeds parent stream")
CONSUMER_PRIORITY_GROUPS_WITHOUT_POLICY = ErrorCode(
    400, 10196, "consumer can not have priority groups when policy is none"
)

PRIORITY_POLICY_WITHOUT_GROUP = ErrorCode(
    400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
)
PRIORITY_GROUP_UNKNOWN = ErrorCode(400, 10160, "Provided priority group does not exist for this consumer")
PRIORITY_GROUP_EMPTY = ErrorCode(400, 10161, "Group name cannot be an empty string")
PRIORITY_GROUP_INVALID = ErrorCode(
    400,
    10162,
    "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
)
PRIORITY_WITH_PUSH = ErrorCode(400, 10178, "priority groups can not be used with push consumers")
PRIORITY_TIMEOUT_WITHOUT_POLICY = ErrorCode(400, 10197, "PinnedTTL cannot be set when PriorityPolicy is none")

PULL_REQUIRES_ACK = ErrorCode(400, 10084, "{reason}")
PULL_WITH_RATE_LIMIT = ErrorCode(400, 10086, "consumer in pull mode can not have rate limit set")
PULL_MAX_WAITING_NEGATIVE = ErrorCode(400, 10087, "consumer max waiting needs to be positive")
PULL_WITH_HEARTBEAT = ErrorCode(400, 10088, "consumer idle heartbeat requires a push based consumer")
PULL_WITH_FLOW_CONTROL = ErrorCode(400, 10089, "consumer flow control requires a push based consumer")
PULL_MAX_BATCH_NEGATIVE = ErrorCode(400, 10114, "consumer max request batch needs to be > 0")
PULL_MAX_EXPIRES_TOO_SMALL = ErrorCode(400, 10115, "consumer max request expires needs to be >= 1ms")

PUSH_TO_WILDCARDS = ErrorCode(400, 10079, "consumer deliver subject has wildcards")
PUSH_INVALID_DELIVER_SUBJECT = ErrorCode(400, 10112, "invalid push consumer deliver subject")
PUSH_WITH_MAX_WAITING = ErrorCode(400, 10080, "consumer in push mode can not set max waiting")
PUSH_CYCLE = ErrorCode(400, 10081, "consumer deliver subject forms a cycle")
PUSH_MAX_ACK_PENDING_NEEDS_ACKS = ErrorCode(400, 10082, "consumer requires ack policy for max ack pending")
PUSH_HEARTBEAT_TOO_SMALL = ErrorCode(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
PUSH_FLOW_CONTROL_NEEDS_HEARTBEAT = ErrorCode(400, 10108, "consumer with flow control also needs heartbeats")

WORKQUEUE_NEEDS_EXPLICIT_ACK = ErrorCode(400, 10098, "workqueue stream requires explicit ack")
WORKQUEUE_MULTIPLE_UNFILTERED = ErrorCode(
    400, 10099, "multiple non-filtered consumers not allowed on workqueue stream"
)
WORKQUEUE_FILTER_NOT_UNIQUE = ErrorCode(400, 10100, "filtered consumer not unique on workqueue stream")
WORKQUEUE_NEEDS_DELIVER_ALL = ErrorCode(400, 10101, "consumer must be deliver all on workqueue stream")
