// An adapter of streadway/amqp, from which amqp091-go comes: see PROTOCOL.md for what it reads and writes.
package main

import (
	"errors"
	"fmt"
	"sync"

	"github.com/streadway/amqp"
	"plumbline/adapter/gate"
)

const module = "github.com/streadway/amqp"

// The library does not connect again by itself.
var features = []string{
	"declare", "publish", "publish.mandatory", "publish.async", "publish.message_id", "confirm", "consume", "get",
	"ack", "ack.multiple", "nack", "reject", "qos", "tx", "bind", "blocked",
}

var errNoChannel = errors.New("there is no such channel")

type command struct {
	Do            string         `json:"do"`
	URL           string         `json:"url"`
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

type consumer struct {
	channel *amqp.Channel
	tag     string
}

// returns are the messages that came back on a channel. With confirms, whoever waits for one reads them: the library puts a
// return into the Go channel before it settles the confirm that follows.
type returns struct {
	came       chan amqp.Return
	confirming chan struct{} // closed when confirms are switched on
	once       sync.Once     // closes it
	reading    sync.Mutex
}

func (r *returns) report(came amqp.Return) {
	gate.Say(gate.Line{
		"event": "returned", "code": came.ReplyCode, "text": came.ReplyText, "routing_key": came.RoutingKey,
		"data": gate.Latin1(came.Body),
	})
}

// reportAll reports what has come, without waiting.
func (r *returns) reportAll() {
	r.reading.Lock()
	defer r.reading.Unlock()
	for {
		select {
		case came, open := <-r.came:
			if !open {
				return
			}
			r.report(came)
		default:
			return
		}
	}
}

// run reports each as it comes, until confirms are switched on.
func (r *returns) run() {
	for {
		select {
		case came, open := <-r.came:
			if !open {
				return
			}
			r.report(came)
		case <-r.confirming:
			return
		}
	}
}

// unsettled are the numbers of the publishes of a channel that wait for a confirm, by their delivery tags. The library reports
// confirms in the order of the tags, and ends its Go channel with the channel.
type unsettled struct {
	lock     sync.Mutex
	last     uint64
	publish  map[uint64]int
	returned *returns
}

func (u *unsettled) add(number int) (tag uint64) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.last++
	u.publish[u.last] = number
	return u.last
}

// unsent takes back the last one, which was not sent.
func (u *unsettled) unsent(tag uint64) {
	u.lock.Lock()
	defer u.lock.Unlock()
	delete(u.publish, tag)
	u.last--
}

func (u *unsettled) settle(tag uint64, ack bool) {
	u.lock.Lock()
	number, waits := u.publish[tag]
	delete(u.publish, tag)
	u.lock.Unlock()
	if waits {
		u.returned.reportAll()
		gate.Say(gate.Line{"event": "confirmed", "publish": number, "ack": ack})
	}
}

// run reports each confirm; what waits when the channel ends will never have one.
func (u *unsettled) run(confirmations <-chan amqp.Confirmation) {
	for came := range confirmations {
		u.settle(came.DeliveryTag, came.Ack)
	}
	u.lock.Lock()
	last := u.last
	u.lock.Unlock()
	for tag := uint64(1); tag <= last; tag++ {
		u.settle(tag, false)
	}
}

type adapter struct {
	connection *amqp.Connection
	channels   map[int]*amqp.Channel
	returned   map[*amqp.Channel]*returns
	unsettled  map[*amqp.Channel]*unsettled
	consumers  map[string]consumer
	messages   gate.Messages[amqp.Delivery]
}

func describe(err error) gate.Line {
	described := gate.Describe(err)
	var closed *amqp.Error
	if errors.As(err, &closed) {
		described["text"], described["code"] = closed.Reason, closed.Code
	}
	return described
}

// ended is the event of an end that amqp091-go reports.
func ended(name string, err *amqp.Error) gate.Line {
	event := describe(err)
	event["event"] = name
	return event
}

func table(given map[string]any) amqp.Table {
	made := amqp.Table{}
	for name, value := range given {
		if number, is := value.(float64); is && number == float64(int64(number)) {
			value = int64(number)
		}
		made[name] = value
	}
	return made
}

func (a *adapter) connect(asked command) (err error) {
	if a.connection, err = amqp.Dial(asked.URL); err != nil {
		return err
	}
	a.channels = map[int]*amqp.Channel{}
	closed := a.connection.NotifyClose(make(chan *amqp.Error, 1))
	blocked := a.connection.NotifyBlocked(make(chan amqp.Blocking, 2))
	go func() {
		for err := range closed {
			gate.Say(ended("disconnected", err))
		}
	}()
	go func() {
		for blocking := range blocked {
			if blocking.Active {
				gate.Say(gate.Line{"event": "blocked", "text": blocking.Reason})
			} else {
				gate.Event("unblocked", nil)
			}
		}
	}()
	return nil
}

func (a *adapter) open(number int) error {
	connection := a.connection
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	a.channels[number] = channel
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	returned := &returns{came: make(chan amqp.Return, 16), confirming: make(chan struct{})}
	channel.NotifyReturn(returned.came)
	a.returned[channel] = returned
	go returned.run()
	go func() {
		for err := range closed {
			if !connection.IsClosed() {
				event := ended("channel-closed", err)
				event["channel"] = number
				gate.Say(event)
			}
		}
	}()
	return nil
}

func (a *adapter) publish(channel *amqp.Channel, asked command) error {
	unsettled := a.unsettled[channel]
	for number := asked.Publish; number < asked.Publish+max(asked.Count, 1); number++ {
		data := asked.Data
		if asked.Count > 0 {
			data = fmt.Sprintf("%s-%d", data, number)
		}
		message := amqp.Publishing{Headers: table(asked.Headers), MessageId: asked.MessageID, Body: []byte(data)}
		var tag uint64
		if unsettled != nil {
			tag = unsettled.add(number)
		}
		if err := channel.Publish(asked.Exchange, asked.RoutingKey, asked.Mandatory, false, message); err != nil {
			if unsettled != nil {
				unsettled.unsent(tag)
			}
			return err
		}
	}
	return nil
}

func (a *adapter) handed(message amqp.Delivery) gate.Line {
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

func (a *adapter) consume(channel *amqp.Channel, asked command) error {
	name := asked.Subscription
	tag := "plumbline." + name
	cancelled := channel.NotifyCancel(make(chan string, 1))
	deliveries, err := channel.Consume(asked.Queue, tag, asked.NoAck, false, false, false, nil)
	if err != nil {
		return err
	}
	a.consumers[name] = consumer{channel, tag}
	go func() {
		for message := range deliveries {
			gate.Say(gate.Line{"event": "message", "subscription": name, "message": a.handed(message)})
		}
	}()
	go func() {
		for other := range cancelled {
			if other == tag {
				gate.Say(gate.Line{"event": "ended", "subscription": name, "text": "cancelled by the server"})
			}
		}
	}()
	return nil
}

func (a *adapter) answer(asked command) (gate.Line, error) {
	switch asked.Do {
	case "connect":
		return nil, a.connect(asked)
	case "close":
		return nil, a.connection.Close()
	case "channel":
		return nil, a.open(asked.Channel)
	case "cancel":
		cancelled := a.consumers[asked.Subscription]
		return nil, cancelled.channel.Cancel(cancelled.tag, false)
	case "ack":
		return nil, a.messages.Get(asked.Ref).Ack(asked.Multiple)
	case "nack":
		return nil, a.messages.Get(asked.Ref).Nack(asked.Multiple, asked.requeue())
	case "reject":
		return nil, a.messages.Get(asked.Ref).Reject(asked.requeue())
	}
	channel := a.channels[asked.Channel]
	if channel == nil {
		return nil, errNoChannel
	}
	return a.answerOn(channel, asked)
}

func (a *adapter) answerOn(channel *amqp.Channel, asked command) (gate.Line, error) {
	switch asked.Do {
	case "declare":
		queue, err := channel.QueueDeclare(
			asked.Queue, asked.Durable, asked.AutoDelete, asked.Exclusive, false, table(asked.Arguments),
		)
		return gate.Line{"queue": queue.Name}, err
	case "exchange":
		return nil, channel.ExchangeDeclare(asked.Exchange, asked.Type, false, asked.AutoDelete, false, false, nil)
	case "bind":
		return nil, channel.QueueBind(asked.Queue, asked.RoutingKey, asked.Exchange, false, nil)
	case "confirm":
		returned := a.returned[channel]
		returned.once.Do(func() { close(returned.confirming) })
		if err := channel.Confirm(false); err != nil || a.unsettled[channel] != nil {
			return nil, err
		}
		waiting := &unsettled{publish: map[uint64]int{}, returned: returned}
		a.unsettled[channel] = waiting
		go waiting.run(channel.NotifyPublish(make(chan amqp.Confirmation, 16)))
		return nil, nil
	case "publish":
		return nil, a.publish(channel, asked)
	case "consume":
		return nil, a.consume(channel, asked)
	case "get":
		message, found, err := channel.Get(asked.Queue, asked.NoAck)
		if err != nil || !found {
			return nil, err
		}
		return gate.Line{"message": a.handed(message)}, nil
	case "qos":
		return nil, channel.Qos(asked.PrefetchCount, 0, asked.Global)
	case "tx.select":
		return nil, channel.Tx()
	case "tx.commit":
		return nil, channel.TxCommit()
	case "tx.rollback":
		return nil, channel.TxRollback()
	}
	return nil, gate.ErrUnknown
}

func main() {
	a := &adapter{
		consumers: map[string]consumer{}, returned: map[*amqp.Channel]*returns{},
		unsettled: map[*amqp.Channel]*unsettled{},
	}
	gate.Serve("amqp", "streadway/amqp", gate.Release(module), features, a.answer, describe)
}
