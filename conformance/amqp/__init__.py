"""Checks that speak AMQP 0-9-1: session, connections, handshake, stage and probe."""
