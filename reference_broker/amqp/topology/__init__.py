"""Exchanges, queues and bindings of an AMQP broker, and the methods that declare and delete them."""
