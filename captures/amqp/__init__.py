"""Captures of AMQP 0-9-1: how its streams are recognised, shown, redacted and written as a trace."""
