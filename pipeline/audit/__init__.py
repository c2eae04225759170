"""The delivery audit: finds lost and duplicated messages in captures.

``captures`` reads, ``nats`` and ``amqp`` enter what a connection says in the ``ledger``, which says what
became of each message; ``reports`` tells it.
"""
