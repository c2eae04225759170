"""Scenarios for client libraries of AMQP 0-9-1."""
