"""What ``plumbline-rabbitmq`` adds to the reference broker: the configuration of rabbitmq-server, its log
lines and its management API. No I/O here but in ``shell``.
"""
