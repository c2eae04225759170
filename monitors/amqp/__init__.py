"""AMQP 0-9-1: operations of a connection to facts, and the rules that judge them."""
