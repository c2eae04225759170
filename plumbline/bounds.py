"""Bounds on what input may cost: memory, time and numbers of entries, each with the result of exceeding it.

Servers, clients, captures and files are not trusted. A bound is a constant here, with its unit.
SECURITY.md lists them. Exceeding one is a verdict of the check or a clear error, never a traceback.
"""

from __future__ import annotations

# -- sessions with a server under test -----------------------------------------------------------

# Of one operation in a journal; the rest is left out, and the line says so.
JOURNAL_TEXT = 4 * 1024  # characters
JOURNAL_RAW = 4 * 1024  # bytes
# Of one journal the first and the last lines are kept; the others are counted.
JOURNAL_FIRST_LINES = 100
JOURNAL_LAST_LINES = 400
# Of a result's exchange the first and the last lines are kept; the others are counted.
WIRE_LINES = 400
WIRE_FIRST_LINES = 100
# Of all exchanges in the results of a run. Later results keep the texts of their last lines only.
WIRE_BYTES_OF_RUN = 12 * 1024 * 1024
WIRE_LINES_BEYOND = 20
WIRE_TEXT_BEYOND = 200  # characters
# Of one check, on all its connections. More is a failed check: the server floods. A control line of NATS
# counts twice, since its fields are kept besides.
ARRIVALS_OF_CHECK = 100_000  # operations
ARRIVED_BYTES_OF_CHECK = 28 * 1024 * 1024
# A run of checks or scenarios ends after this time, unless --max-time says otherwise. For a slow target it is
# longer by MAX_TIME_S for each second that is added to time limits, which is at most two.
MAX_TIME_S = 600.0
# Of that time so much, and at most a third, is kept for its end: the deletion, the last look, the reports.
ENDING_S = 45.0
# Within it, what is left on the target is deleted for so long. If more is left, the result says so.
SWEEP_S = 30.0
# After its budget explore finishes what it has begun for so long; then it ends without a verdict.
EXPLORE_ENDING_S = 20.0
STREAM_NAMES = 100_000  # of an account; with more, the same
# Of one operation, and of all unfinished ones on a connection. More is a failed check.
# The largest that checks send themselves has 8 MiB.
OPERATION_BYTES = 8 * 1024 * 1024 + 256 * 1024
# Checks in a row, in all processes of a run, for which one API was silent. Then it is asked ASK_AGAIN times
# more; silent again, it is asked no more, and what needs it is untestable.
UNANSWERED_CHECKS = 10
ASK_AGAIN = 2
# Questions in a row, in all processes of a run, that one server did not answer though every living one does:
# PING, channel.open. If the last was of a check that ran alone, what needs the server is inconclusive.
UNANSWERED_QUESTIONS = 10

# -- clusters ------------------------------------------------------------------------------------

# Deliveries of a run, and besides that for each message that was sent: with more, the run ends (exit 3).
CLUSTER_DELIVERIES = 200_000
CLUSTER_DELIVERIES_OF_MESSAGE = 20
# Sequences that a node states of its copy of a stream: with more, the copy is not read, and what needs it is
# untestable.
CLUSTER_COPY_SEQUENCES = 10_000_000
# Bytes of a message in the history, much more than the messages of a run have: the rest is left out.
CLUSTER_MESSAGE_BYTES = 200
# Rows of a history in files that are judged in one process; more are judged with Spark by default.
LOCAL_HISTORY_ROWS = 2_000_000
# Messages of such a history that may break a rule: further ones are not judged, and the result says so.
HISTORY_SUSPECTS = 200_000
# Texts that are kept of one kind: errors of a connection, confirms that answer nothing.
CLUSTER_REMARKS = 1_000
# Bytes that wait for a node that does not read: with more, the connection is closed.
CLUSTER_UNSENT_BYTES = 16 * 1024 * 1024

# -- replay to a server --------------------------------------------------------------------------

# Answers of the recording, one after another, that do not come: the replay ends (exit 3).
REPLAY_UNANSWERED = 10
# Operations and bytes that come besides ten times what the recording has: the replay ends (exit 3).
REPLAY_ARRIVALS = 100_000
REPLAY_ARRIVED_BYTES = 64 * 1024 * 1024

# Captures. Exceeding most of these becomes a remark ("lost", "undecodable"), and reading goes on.
# Of segments that wait for earlier ones, in one direction and of all connections: the gap is a loss.
CAPTURE_HELD_BYTES = 16 * 1024 * 1024
CAPTURE_HELD_TOTAL_BYTES = 64 * 1024 * 1024
# What each segment that waits counts in addition to its data.
CAPTURE_ENTRY_BYTES = 256
# Connections that are followed at the same time: one that is idle is given up.
CAPTURE_CONNECTIONS = 65_536
# Of a connection of no known protocol, and of all of them together: the connection is left alone.
CAPTURE_UNKNOWN_BYTES = 64 * 1024
CAPTURE_UNKNOWN_TOTAL_BYTES = 64 * 1024 * 1024
# Of each segment, in which a protocol is recognized.
CAPTURE_RECOGNITION_BYTES = 4 * 1024
# One operation, or one frame. A capture is not the place to refuse what a server was configured to take.
CAPTURE_OPERATION_BYTES = 64 * 1024 * 1024 + 1024
# Of unfinished operations of all connections together: the oldest one is undecodable.
CAPTURE_UNFINISHED_BYTES = 256 * 1024 * 1024
# Of unfinished contents in one direction of an AMQP connection, in bytes of memory: many small frames of one
# message take more than their bytes. The direction is not decoded any more.
CAPTURE_UNFINISHED_CONTENT_BYTES = 256 * 1024 * 1024
# Places of a stream from which it may be decodable, tried at the same time: the oldest one is dropped.
CAPTURE_START_CANDIDATES = 8
# Bytes decoded at such places for each byte of the stream: further places are passed over.
CAPTURE_START_WORK = 4
# Bytes after such a place within which it must give an operation.
CAPTURE_START_WINDOW_BYTES = 2 * 1024 * 1024
# Bytes of one block, and interfaces of one section: more is a damaged capture (CaptureError).
CAPTURE_BLOCK_BYTES = 64 * 1024 * 1024
CAPTURE_INTERFACES = 65_536
# Messages that the confirms of a recording can be for, in addition to those that it shows: a confirm of more
# messages is compared as one.
DIFF_CONFIRMS = 100_000
# Pairs of equal operations of two connections: with more, only their common beginning and end are the same.
DIFF_PAIRS = 20_000_000
# Connections of the second recording that each one of the first is compared with: it is taken for missing.
DIFF_CANDIDATES = 1_000
# Levels of JSON in a payload: what is deeper is compared and shown as text, or cut.
JSON_DEPTH = 100
# Comments of one packet: further ones are not read.
CAPTURE_PACKET_COMMENTS = 1_000
# Time of a packet in ns since 1970, up to 2262, as 64 bits hold it: one outside becomes the nearest.
CAPTURE_LAST_TIME_NS = 2**63 - 1
# Days (UTC) that the packets of one file are of: `judge` writes files for each day. What follows is not read.
CAPTURE_DAYS = 400

# Reference brokers and proxy

# Characters of the destination of a subject mapping; a stream with a longer one is refused (10156 or 10052).
# A destination may repeat a token of the subject, so this bounds what one publish becomes.
MAX_MAPPING_CHARACTERS = 1024

# Subject transforms of one mirror or source, of which each is compared with each other; a stream with more is
# refused (10145 or 10151).
MAX_TRANSFORMS = 200

# Subscriptions that the NATS broker takes out of its tables in one event; others are served before the next.
SUBSCRIPTIONS_AT_ONCE = 2000

# Bytes of unfinished contents that one AMQP client may have besides one message of ``max_message_size``; more
# closes its connection (501). A message above ``max_message_size`` by less closes the channel (406).
UNFINISHED_BESIDES_ONE_MESSAGE = 16 * 1024 * 1024

# The same before the login, where no content has a meaning: the connection is closed without a reply.
UNFINISHED_BEFORE_LOGIN = 256 * 1024

# Descriptors that a broker keeps for its files, its listener and connections that it is about to refuse; it
# accepts as many connections as the limit of the process leaves, and closes the others. Of these, 128 are
# files of the store, 64 are connections between accept and close.
RESERVED_DESCRIPTORS = 256

# Times in a fault, in seconds, and sizes and rates, in bytes and bytes per second. A fault with more is
# refused: exit 2, or status 400 of the control API.
MAX_FAULT_TIME_S = 24 * 3600
MAX_FAULT_SIZE = 10**15

# What faults of the proxy delay in one direction of a connection: bytes, and operations or segments that came
# by themselves. With more the source is not read until some have gone.
DELAYED_BYTES = 256 * 1024
DELAYED_ENTRIES = 10_000

# The control API: bytes of a body (400), seconds of one connection (closed), connections at once (closed).
MAX_CONTROL_BODY = 64 * 1024
MAX_CONTROL_CONNECTION_S = 60.0
MAX_CONTROL_CONNECTIONS = 64

# How many streams in a row a message of the NATS broker enters as a copy, and how many copies one publish
# makes. What is beyond is not copied.
MAX_COPY_DEPTH = 16
MAX_COPIES = 1000

# Digits of a counter's increment; a message with a longer one is refused (10171).
MAX_COUNTER_DIGITS = 4000

# Sequences that a mirror skips before the next message; a message behind a larger gap is not mirrored.
MAX_MIRROR_GAP = 1_000_000

# Bytes of captures, as they are read, that `plumbline judge` judges in its own process. More goes to Spark,
# unless `--engine local` is given.
LOCAL_JUDGE_BYTES = 200_000_000

# Flows (all that passes between two ends) that `plumbline judge` remembers in its own process after their
# connections have ended, about 20 KB each. Of more, the first are forgotten: a late packet of theirs begins a
# new connection.
LOCAL_CLOSED_FLOWS = 10_000

# Bytes of a file that a user or another file names, and that is read as a whole: configurations, claims,
# waivers, traces, keys; and of a result of a run. A larger one is refused (exit 2, or 1 as nats-server and
# RabbitMQ do).
TEXT_FILE_BYTES = 8 * 1024 * 1024
RESULT_FILE_BYTES = 64 * 1024 * 1024

# Configuration files of the program plumbline-nats-server: blocks and arrays inside each other, files that
# include each other. More is refused as a wrong configuration (exit 1).
CONFIGURATION_DEPTH = 100
CONFIGURATION_FILES = 20
# Bytes of the head of a request to its monitoring port, answered with 400, and seconds of one connection
# there, which is then closed.
MONITORING_REQUEST = 16 * 1024
MONITORING_CONNECTION_S = 10
# Bytes of the body of a request to the management API of the AMQP broker, answered with 413, and of its
# messages in one answer: further ones stay in the queue.
MANAGEMENT_BODY = 8 * 1024 * 1024
MANAGEMENT_MESSAGES = 64 * 1024 * 1024

# Accounts of the NATS broker: replies of exported services that are under way, of which the oldest is then
# forgotten, and accounts in a row that a message is imported through.
ACCOUNT_REPLIES = 100_000
ACCOUNT_HOPS = 8

# JWTs of the NATS broker: bytes of one, which is refused beyond, and how many users of JWTs are remembered
# before all of them are forgotten and verified again.
JWT_BYTES = 256 * 1024
ISSUED_USERS = 1_000
