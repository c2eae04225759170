"""The delivery audit: finds lost and duplicated messages in captures.

``captures`` reads; ``nats`` and ``amqp`` enter what a connection says in a ``DeliveryAudit``. That finds what
became of each message; ``reports`` shows it.
"""
