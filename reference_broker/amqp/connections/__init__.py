"""Connections and channels of an AMQP broker: how they open, live and close."""
