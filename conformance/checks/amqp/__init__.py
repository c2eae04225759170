"""Checks of AMQP 0-9-1 brokers."""
