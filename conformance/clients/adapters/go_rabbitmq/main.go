// An adapter of go-rabbitmq, publishers and consumers around amqp091-go: see PROTOCOL.md for what it reads and writes.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	rabbitmq "github.com/wagslane/go-rabbitmq"
	"plumbline/adapter/gate"
)

const (
	module    = "github.com/wagslane/go-rabbitmq"
	reconnect = 200 * time.Millisecond
	never     = time.Hour

	// NotifyReturn registers its channel from a goroutine, and what comes back before that is lost: one return of a hundred.
	listening = 50 * time.Millisecond
	// The library confirms a publish while the handler of its return still runs. One that takes its time shows this in each
	// run, one that does not in one of eight.
	handling = 20 * time.Millisecond
)

// A channel of the protocol is a publisher. A consumer has a channel of its own. Whenever it starts it sets its prefetch limit,
// and declares and binds the queue that it consumes from: what does so here is a consumer too, closed once it has started.
// The library has no basic.get and no transactions, and does not report the reason of connection.blocked.
var features = []string{
	"tls", "declare", "publish", "publish.mandatory", "publish.async", "publish.message_id", "confirm", "consume",
	"ack", "ack.multiple", "nack", "reject", "qos", "bind", "reconnect", "reconnect.topology",
}

var errNoChannel = errors.New("there is no such channel")

type command struct {
	Do            string         `json:"do"`
	URL           string         `json:"url"`
	TLSCA         string         `json:"tls_ca"`
	Reconnect     bool           `json:"reconnect"`
	Channel       int            `json:"channel"`
	Queue         string         `json:"queue"`
	Durable       bool           `json:"durable"`
	Exclusive     bool           `json:"exclusive"`
	AutoDelete    bool           `json:"auto_delete"`
	Arguments     map[string]any `json:"arguments"`
	Exchange      string         `json:"exchange"`
	Type          string         `json:"type"`
	RoutingKey    string         `json:"routing_key"`
	Data          string         `json:"data"`
	Headers       map[string]any `json:"headers"`
	Mandatory     bool           `json:"mandatory"`
	Publish       int            `json:"publish"`
	Count         int            `json:"count"`
	MessageID     string         `json:"message_id"`
	Subscription  string         `json:"subscription"`
	NoAck         bool           `json:"no_ack"`
	Ref           int            `json:"ref"`
	Multiple      bool           `json:"multiple"`
	Requeue       *bool          `json:"requeue"`
	PrefetchCount int            `json:"prefetch_count"`
	Global        bool           `json:"global"`
}

func (c command) requeue() bool { return c.Requeue == nil || *c.Requeue }

// listener is a logger: the library reports the ends of connections, channels and consumers to loggers alone. The function
// gives the event that a line is, or nil.
type listener struct {
	happened func(format string) gate.Line
}

func (l listener) report(format string, values []any) {
	event := l.happened(format)
	if event == nil {
		return
	}
	for _, value := range values {
		if err, is := value.(error); is {
			for name, part := range describe(err) {
				event[name] = part
			}
		} else {
			event["text"] = fmt.Sprint(value)
		}
	}
	gate.Say(event)
}

func (l listener) Fatalf(format string, values ...any) { l.report(format, values) }
func (l listener) Errorf(format string, values ...any) { l.report(format, values) }
func (l listener) Warnf(format string, values ...any)  { l.report(format, values) }
func (l listener) Infof(format string, values ...any)  { l.report(format, values) }
func (l listener) Debugf(format string, values ...any) { l.report(format, values) }

// topology is what a consumer of a queue declares.
type topology struct {
	declared bool
	queue    command
	bindings []command
}

type adapter struct {
	connection *rabbitmq.Conn
	publishers map[int]*rabbitmq.Publisher
	prefetch   map[int]command
	exchanges  map[string]rabbitmq.ExchangeOptions
	queues     map[string]*topology
	consumers  map[string]*rabbitmq.Consumer
	messages   gate.Messages[rabbitmq.Delivery]
}

func describe(err error) gate.Line {
	described := gate.Describe(err)
	var closed *amqp.Error
	if errors.As(err, &closed) {
		described["text"], described["code"] = closed.Reason, closed.Code
	}
	return described
}

func table(given map[string]any) rabbitmq.Table {
	made := rabbitmq.Table{}
	for name, value := range given {
		if number, is := value.(float64); is && number == float64(int64(number)) {
			value = int64(number)
		}
		made[name] = value
	}
	return made
}

func (a *adapter) connect(asked command) error {
	a.publishers, a.prefetch = map[int]*rabbitmq.Publisher{}, map[int]command{}
	a.exchanges, a.queues = map[string]rabbitmq.ExchangeOptions{}, map[string]*topology{}
	a.consumers = map[string]*rabbitmq.Consumer{}
	config := rabbitmq.Config{}
	if asked.TLSCA != "" {
		certificates, err := os.ReadFile(asked.TLSCA)
		if err != nil {
			return err
		}
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(certificates)
		config.TLSClientConfig = &tls.Config{RootCAs: trusted}
	}
	interval := never
	if asked.Reconnect {
		interval = reconnect
	}
	connection, err := rabbitmq.NewConn(
		asked.URL,
		rabbitmq.WithConnectionOptionsConfig(config),
		rabbitmq.WithConnectionOptionsBaseReconnectInterval(interval),
		rabbitmq.WithConnectionOptionsLogger(listener{func(format string) gate.Line {
			switch {
			case strings.HasPrefix(format, "attempting to reconnect to amqp server"):
				return gate.Line{"event": "disconnected"}
			case strings.HasPrefix(format, "successfully reconnected"):
				return gate.Line{"event": "reconnected"}
			}
			return nil
		}}),
	)
	a.connection = connection
	return err
}

func (a *adapter) close() error {
	for _, consumer := range a.consumers {
		consumer.Close()
	}
	for _, publisher := range a.publishers {
		publisher.Close()
	}
	clear(a.consumers)
	clear(a.publishers)
	return a.connection.Close()
}

func (a *adapter) open(number int) error {
	publisher, err := rabbitmq.NewPublisher(
		a.connection,
		rabbitmq.WithPublisherOptionsLogger(listener{func(format string) gate.Line {
			if strings.HasPrefix(format, "attempting to reconnect to amqp server") {
				return gate.Line{"event": "channel-closed", "channel": number}
			}
			return nil
		}}),
	)
	if err != nil {
		return err
	}
	a.publishers[number] = publisher
	publisher.NotifyReturn(func(came rabbitmq.Return) {
		time.Sleep(handling)
		gate.Say(gate.Line{
			"event": "returned", "code": came.ReplyCode, "text": came.ReplyText, "routing_key": came.RoutingKey,
			"data": gate.Latin1(came.Body),
		})
	})
	time.Sleep(listening)
	return nil
}

func (a *adapter) publish(publisher *rabbitmq.Publisher, asked command) error {
	options := []func(*rabbitmq.PublishOptions){
		rabbitmq.WithPublishOptionsExchange(asked.Exchange),
		rabbitmq.WithPublishOptionsHeaders(table(asked.Headers)),
		rabbitmq.WithPublishOptionsMessageID(asked.MessageID),
	}
	if asked.Mandatory {
		options = append(options, rabbitmq.WithPublishOptionsMandatory)
	}
	for number := asked.Publish; number < asked.Publish+max(asked.Count, 1); number++ {
		data := asked.Data
		if asked.Count > 0 {
			data = fmt.Sprintf("%s-%d", data, number)
		}
		confirms, err := publisher.PublishWithDeferredConfirmWithContext(
			context.Background(), []byte(data), []string{asked.RoutingKey}, options...,
		)
		if err != nil {
			return err
		}
		for _, confirm := range confirms {
			if confirm != nil {
				go func() {
					ack := confirm.Wait()
					gate.Say(gate.Line{"event": "confirmed", "publish": number, "ack": ack})
				}()
			}
		}
	}
	return nil
}

// topologyOf is what is known of a queue. What its user has not declared, no consumer declares.
func (a *adapter) topologyOf(queue string) *topology {
	if a.queues[queue] == nil {
		a.queues[queue] = &topology{}
	}
	return a.queues[queue]
}

// options are those of a consumer that declares what its queue needs.
func (a *adapter) options(queue string) []func(*rabbitmq.ConsumerOptions) {
	known := a.topologyOf(queue)
	options := []func(*rabbitmq.ConsumerOptions){
		rabbitmq.WithConsumerOptionsQOSPrefetch(0), // 10 by default
		func(options *rabbitmq.ConsumerOptions) {
			options.QueueOptions.Declare = known.declared
			options.QueueOptions.Durable = known.queue.Durable
			options.QueueOptions.Exclusive = known.queue.Exclusive
			options.QueueOptions.AutoDelete = known.queue.AutoDelete
			options.QueueOptions.Args = table(known.queue.Arguments)
		},
	}
	for _, bound := range known.bindings {
		exchange, declared := a.exchanges[bound.Exchange]
		if !declared {
			exchange = rabbitmq.ExchangeOptions{Name: bound.Exchange}
		}
		exchange.Bindings = []rabbitmq.Binding{
			{RoutingKey: bound.RoutingKey, BindingOptions: rabbitmq.BindingOptions{Declare: true}},
		}
		options = append(options, rabbitmq.WithConsumerOptionsExchangeOptions(exchange))
	}
	return options
}

// run starts a consumer. It has started once the library has logged so, after basic.consume-ok.
func (a *adapter) run(
	name, queue string, handler rabbitmq.Handler, options ...func(*rabbitmq.ConsumerOptions),
) (*rabbitmq.Consumer, error) {
	started := make(chan struct{}, 1)
	options = append(options, rabbitmq.WithConsumerOptionsLogger(listener{func(format string) gate.Line {
		switch {
		case strings.HasPrefix(format, "Processing messages"):
			select {
			case started <- struct{}{}:
			default: // it has started again
			}
		case strings.HasPrefix(format, "attempting to reconnect to amqp server after cancel"):
			return gate.Line{"event": "ended", "subscription": name}
		case strings.HasPrefix(format, "attempting to reconnect to amqp server"):
			return gate.Line{"event": "error", "subscription": name}
		}
		return nil
	}}))
	consumer, err := rabbitmq.NewConsumer(a.connection, queue, options...)
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	go func() { failed <- consumer.Run(handler) }()
	select {
	case <-started:
		return consumer, nil
	case err := <-failed:
		consumer.Close()
		return nil, err
	}
}

// declare has a consumer declare a queue and its bindings: nothing else of the library does.
func (a *adapter) declare(queue string) error {
	leave := func(rabbitmq.Delivery) rabbitmq.Action { return rabbitmq.Manual }
	consumer, err := a.run("", queue, leave, a.options(queue)...)
	if err != nil {
		return err
	}
	consumer.Close()
	return nil
}

// exchange has a publisher declare an exchange.
func (a *adapter) exchange(asked command) error {
	exchange := rabbitmq.ExchangeOptions{
		Name: asked.Exchange, Kind: asked.Type, AutoDelete: asked.AutoDelete, Declare: true,
	}
	declaring := func(options *rabbitmq.PublisherOptions) { options.ExchangeOptions = exchange }
	quiet := rabbitmq.WithPublisherOptionsLogger(listener{func(string) gate.Line { return nil }})
	publisher, err := rabbitmq.NewPublisher(a.connection, declaring, quiet)
	if err != nil {
		return err
	}
	publisher.Close()
	a.exchanges[asked.Exchange] = exchange
	return nil
}

func (a *adapter) handed(message rabbitmq.Delivery) gate.Line {
	headers := map[string][]string{}
	for name, value := range message.Headers {
		headers[name] = []string{fmt.Sprint(value)}
	}
	return gate.Line{
		"ref": a.messages.Keep(message), "data": gate.Latin1(message.Body), "headers": headers,
		"exchange": message.Exchange, "routing_key": message.RoutingKey, "delivery_tag": message.DeliveryTag,
		"redelivered": message.Redelivered,
	}
}

func (a *adapter) consume(asked command) (err error) {
	name := asked.Subscription
	options := append(a.options(asked.Queue), rabbitmq.WithConsumerOptionsConsumerAutoAck(asked.NoAck))
	if limit, given := a.prefetch[asked.Channel]; given {
		options = append(options, rabbitmq.WithConsumerOptionsQOSPrefetch(limit.PrefetchCount))
		if limit.Global {
			options = append(options, rabbitmq.WithConsumerOptionsQOSGlobal)
		}
	}
	handler := func(message rabbitmq.Delivery) rabbitmq.Action {
		gate.Say(gate.Line{"event": "message", "subscription": name, "message": a.handed(message)})
		return rabbitmq.Manual
	}
	consumer, err := a.run(name, asked.Queue, handler, options...)
	if err == nil {
		a.consumers[name] = consumer
	}
	return err
}

func (a *adapter) answer(asked command) (gate.Line, error) {
	switch asked.Do {
	case "connect":
		return nil, a.connect(asked)
	case "close":
		return nil, a.close()
	case "channel":
		return nil, a.open(asked.Channel)
	case "declare":
		known := a.topologyOf(asked.Queue)
		known.declared, known.queue = true, asked
		return gate.Line{"queue": asked.Queue}, a.declare(asked.Queue)
	case "exchange":
		return nil, a.exchange(asked)
	case "bind":
		known := a.topologyOf(asked.Queue)
		known.bindings = append(known.bindings, asked)
		return nil, a.declare(asked.Queue)
	case "qos":
		a.prefetch[asked.Channel] = asked // an option of consumers
		return nil, nil
	case "consume":
		return nil, a.consume(asked)
	case "cancel":
		a.consumers[asked.Subscription].Close()
		delete(a.consumers, asked.Subscription)
		return nil, nil
	case "ack":
		return nil, a.messages.Get(asked.Ref).Ack(asked.Multiple)
	case "nack":
		return nil, a.messages.Get(asked.Ref).Nack(asked.Multiple, asked.requeue())
	case "reject":
		return nil, a.messages.Get(asked.Ref).Reject(asked.requeue())
	}
	publisher := a.publishers[asked.Channel]
	if publisher == nil {
		return nil, errNoChannel
	}
	switch asked.Do {
	case "confirm":
		// a handler switches confirms on; each publish has its own confirmation
		publisher.NotifyPublish(func(rabbitmq.Confirmation) {})
		return nil, nil
	case "publish":
		return nil, a.publish(publisher, asked)
	}
	return nil, gate.ErrUnknown
}

func main() {
	gate.Serve("amqp", "go-rabbitmq", gate.Release(module), features, (&adapter{}).answer, describe)
}
