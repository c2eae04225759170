module plumbline/adapter/amqp091_go

go 1.26.0

require (
	github.com/rabbitmq/amqp091-go v1.16.0
	plumbline/adapter v0.0.0
)

replace plumbline/adapter => ../../skeletons/go
