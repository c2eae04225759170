"""Messages of an AMQP broker: from publishers to queues, to consumers, and how they are settled."""
