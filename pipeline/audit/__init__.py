"""The delivery audit: finds lost and duplicated messages in captures.

``captures`` reads; ``nats`` and ``amqp`` enter what a connection says in a ``DeliveryAudit``. That finds
lost and duplicated messages; ``reports`` shows them.
"""
