// An adapter of nats.go, its package jetstream: see PROTOCOL.md for what it reads and writes. What is not JetStream is
// in the adapter of JetStreamContext.
package main

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"plumbline/adapter/gate"
	"plumbline/adapter/nats_go/connection"
)

var features = []string{
	"tls", "js.publish", "fetch", "fetch.no_wait", "fetch.heartbeat", "consume", "ack", "ack.nak", "ack.nak.delay",
	"ack.progress", "ack.term", "ack.term.reason", "ack.sync", "reconnect", "ordered", "kv", "kv.watch",
	"obj", "obj.create", "obj.link", "obj.list", "obj.seal", "obj.update", "obj.watch",
	"service", "service.no_queue", "service.reset",
}

type adapter struct {
	connection *nats.Conn
	js         jetstream.JetStream
	messages   gate.Messages[jetstream.Msg]
	consumers  map[string]jetstream.Consumer
	consuming  map[string]jetstream.ConsumeContext
	entries    gate.Messages[any] // of stores
	services   map[string]micro.Service
}

func describe(err error) gate.Line {
	described := gate.Describe(err)
	var refused jetstream.JetStreamError
	if errors.As(err, &refused) && refused.APIError() != nil {
		described["code"] = refused.APIError().ErrorCode
	}
	return described
}

func (a *adapter) handed(msg jetstream.Msg) gate.Line {
	return connection.Handed(a.messages.Keep(msg), msg.Subject(), msg.Reply(), msg.Data(), msg.Headers())
}

func (a *adapter) connect(asked connection.Command) (err error) {
	if a.connection, err = connection.Open(asked); err != nil {
		return err
	}
	a.consumers = map[string]jetstream.Consumer{}
	a.js, err = jetstream.New(a.connection)
	return err
}

func (a *adapter) consumer(asked connection.Command) (jetstream.Consumer, error) {
	key := asked.StreamName() + " " + asked.ConsumerName()
	if a.consumers[key] == nil {
		within, cancel := context.WithTimeout(context.Background(), connection.APIWait)
		defer cancel()
		found, err := a.js.Consumer(within, asked.StreamName(), asked.ConsumerName())
		if err != nil {
			return nil, err
		}
		a.consumers[key] = found
	}
	return a.consumers[key], nil
}

func (a *adapter) fetch(asked connection.Command) (gate.Line, error) {
	consumer, err := a.consumer(asked)
	if err != nil {
		return nil, err
	}
	var batch jetstream.MessageBatch
	if asked.NoWait {
		batch, err = consumer.FetchNoWait(asked.Batch)
	} else {
		options := []jetstream.FetchOpt{jetstream.FetchMaxWait(connection.Milliseconds(asked.ExpiresMs))}
		if asked.HeartbeatMs > 0 {
			options = append(options, jetstream.FetchHeartbeat(connection.Milliseconds(asked.HeartbeatMs)))
		}
		batch, err = consumer.Fetch(asked.Batch, options...)
	}
	if err != nil {
		return nil, err
	}
	messages := []gate.Line{}
	for msg := range batch.Messages() {
		messages = append(messages, a.handed(msg))
	}
	return gate.Line{"messages": messages}, batch.Error()
}

func (a *adapter) consume(asked connection.Command) error {
	consumer, err := a.consumer(asked)
	if err != nil {
		return err
	}
	return a.consumeFrom(consumer, asked)
}

func (a *adapter) consumeFrom(consumer jetstream.Consumer, asked connection.Command) error {
	name := asked.Subscription
	options := []jetstream.PullConsumeOpt{
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			event := describe(err)
			event["event"], event["subscription"] = "error", name
			gate.Say(event)
		}),
	}
	if asked.Batch > 0 {
		options = append(options, jetstream.PullMaxMessages(asked.Batch))
	}
	if asked.ExpiresMs > 0 {
		options = append(options, jetstream.PullExpiry(connection.Milliseconds(asked.ExpiresMs)))
	}
	if asked.HeartbeatMs > 0 {
		options = append(options, jetstream.PullHeartbeat(connection.Milliseconds(asked.HeartbeatMs)))
	}
	running, err := consumer.Consume(func(msg jetstream.Msg) {
		connection.HandedFor(name, a.handed(msg))
	}, options...)
	a.consuming[name] = running
	return err
}

func (a *adapter) publish(asked connection.Command) (gate.Line, error) {
	within, cancel := context.WithTimeout(context.Background(), asked.Timeout())
	defer cancel()
	options := []jetstream.PublishOpt{}
	if asked.MsgID != "" {
		options = append(options, jetstream.WithMsgID(asked.MsgID))
	}
	stored, err := a.js.PublishMsg(within, asked.Message(), options...)
	if err != nil {
		return nil, err
	}
	return gate.Line{"stream": stored.Stream, "seq": stored.Sequence, "duplicate": stored.Duplicate}, nil
}

func (a *adapter) ack(asked connection.Command) error {
	msg := a.messages.Get(asked.Ref)
	switch asked.Kind {
	case "nak":
		if asked.DelayMs > 0 {
			return msg.NakWithDelay(connection.Milliseconds(asked.DelayMs))
		}
		return msg.Nak()
	case "progress":
		return msg.InProgress()
	case "term":
		if asked.Reason != "" {
			return msg.TermWithReason(asked.Reason)
		}
		return msg.Term()
	}
	return msg.Ack()
}

func (a *adapter) answer(asked connection.Command) (gate.Line, error) {
	switch asked.Do {
	case "connect":
		return nil, a.connect(asked)
	case "flush":
		return nil, a.connection.Flush()
	case "close":
		a.connection.Close()
		return nil, nil
	case "js.publish":
		return a.publish(asked)
	case "fetch":
		return a.fetch(asked)
	case "consume":
		return nil, a.consume(asked)
	case "ordered":
		return nil, a.ordered(asked)
	case "stop":
		a.consuming[asked.Subscription].Stop()
		<-a.consuming[asked.Subscription].Closed()
		return nil, nil
	case "ack":
		return nil, a.ack(asked)
	case "ack.sync":
		within, cancel := context.WithTimeout(context.Background(), asked.Timeout())
		defer cancel()
		return nil, a.messages.Get(asked.Ref).DoubleAck(within)
	}
	switch {
	case strings.HasPrefix(asked.Do, "obj."):
		return a.answerObject(asked)
	case strings.HasPrefix(asked.Do, "service."):
		return nil, a.answerService(asked)
	}
	return a.answerStore(asked)
}

func main() {
	a := &adapter{consuming: map[string]jetstream.ConsumeContext{}, services: map[string]micro.Service{}}
	gate.Serve("nats", "nats.go/jetstream", gate.Release(connection.Module), features, a.answer, describe)
}
