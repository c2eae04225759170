"""Scenarios, one concern a file: ``nats_*`` speak NATS, ``amqp_*`` AMQP 0-9-1.

A scenario is a function with one argument, marked with ``@scenario("CLIENT-...", needs=[features])``:
it gives the client work, waits for what the wire or the client shows, and requires. ``Scene`` says what it
is given (``NatsScene`` beside it what NATS adds), ``Stand`` what can be done to the traffic: faults of the
proxy, a cut, bytes that no broker sent. Its requirement is in ``clients/requirements``, and its id in the
published set.
"""
