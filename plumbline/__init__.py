"""Plumbline: conformance of message brokers and client libraries, NATS / JetStream and AMQP 0-9-1.

Importing this package imports nothing else: each room (``plumbline.wire``, ``plumbline.conformance``, ...) is
imported by its own name. In the repository the rooms are folders of the top level, and this folder links to
them; in the wheel they are ordinary sub-packages.
"""
