"""Loss and duplication over captures: what publishers sent against what receivers were given.

``captures`` reads, ``nats`` and ``amqp`` enter what a connection says in the ``ledger``, which says what
became of each message; ``reports`` tells it.
"""
