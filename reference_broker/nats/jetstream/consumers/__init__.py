"""Consumers: configuration, delivery by pull and push, acknowledgements, redelivery."""
