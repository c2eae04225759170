"""JetStream for the reference broker: streams, consumers and their API as a pure state machine.

``service.JetStream`` is what the broker core drives (``host.Service``). ``store`` keeps messages,
``stream`` holds the rules of publishing and retention, ``consumer`` those of delivery, ``ack`` the
counters, ``pull`` the waiting requests; ``*_api`` answer requests; ``rules`` says where servers of
different age differ, ``errors`` every error there is.
"""

from plumbline.reference_broker.nats.jetstream.service import JetStream, JetStreamConfig

__all__ = ["JetStream", "JetStreamConfig"]
