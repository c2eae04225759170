"""Captures of NATS: how its streams are recognised, shown, redacted and written as a trace."""
