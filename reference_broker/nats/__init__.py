"""The reference NATS server: ``core`` is the state machine, ``server`` its asyncio shell.

Only ``server`` opens sockets, reads a clock or starts a task; everything else takes ``now``,
integer nanoseconds since the Unix epoch, as an argument.
"""
