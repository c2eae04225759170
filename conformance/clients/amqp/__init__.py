"""Scenarios that speak AMQP 0-9-1."""
