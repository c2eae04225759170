"""The reference broker for AMQP 0-9-1 as RabbitMQ speaks it: ``core`` is the state machine, ``server`` its
shell.

Only ``server`` opens sockets and files, reads a clock or starts a task; everything else takes ``now``,
integer nanoseconds since the Unix epoch, as an argument.
"""
