"""AMQP 0-9-1 in traces: the lines, their values and the stage."""
