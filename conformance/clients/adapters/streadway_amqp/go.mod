module plumbline/adapter/streadway_amqp

go 1.26.0

require (
	github.com/streadway/amqp v1.1.0
	plumbline/adapter v0.0.0
)

replace plumbline/adapter => ../../skeletons/go
