"""NATS: operations of a connection to facts, and the rules that judge them."""
