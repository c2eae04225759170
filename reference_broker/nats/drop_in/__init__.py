"""What ``plumbline-nats-server`` adds to the reference broker: nats-server's command line, configuration
language, log lines and monitoring. No I/O here but in ``shell``.
"""
