"""NATS in traces: the lines, their patterns and the stage."""
