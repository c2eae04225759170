module plumbline/adapter/go_rabbitmq

go 1.26.0

require (
	github.com/rabbitmq/amqp091-go v1.12.0
	github.com/wagslane/go-rabbitmq v0.16.1
	plumbline/adapter v0.0.0
)

replace plumbline/adapter => ../../skeletons/go
