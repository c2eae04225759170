// An adapter of nats.go, its JetStreamContext: see PROTOCOL.md for what it reads and writes.
package main

import (
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"plumbline/adapter/gate"
	"plumbline/adapter/nats_go/connection"
)

var features = []string{
	"tls", "publish", "publish.flush", "request", "subscribe", "unsubscribe.after", "js.create", "js.publish", "fetch",
	"push",
	"ack", "ack.nak", "ack.progress", "ack.term", "ack.sync", "reconnect", "reconnect.buffer", "ping", "lame-duck",
	"drain",
}

type adapter struct {
	connection    *nats.Conn
	js            nats.JetStreamContext
	messages      gate.Messages[*nats.Msg]
	subscriptions map[string]*nats.Subscription
	pulls         map[string]*nats.Subscription
}

func describe(err error) gate.Line {
	described := gate.Describe(err)
	for at := err; at != nil; at = errors.Unwrap(at) {
		// *nats.APIError, which releases before 1.17 have not
		if value := reflect.Indirect(reflect.ValueOf(at)); value.Kind() == reflect.Struct {
			if code := value.FieldByName("ErrorCode"); code.IsValid() && code.CanUint() {
				described["code"] = code.Uint()
			}
		}
	}
	return described
}

// delayed is what messages can do since 1.14.
type delayed interface {
	NakWithDelay(delay time.Duration, options ...nats.AckOpt) error
}

func (a *adapter) handed(msg *nats.Msg) gate.Line {
	return connection.Handed(a.messages.Keep(msg), msg.Subject, msg.Reply, msg.Data, msg.Header)
}

func (a *adapter) callback(name string) nats.MsgHandler {
	return func(msg *nats.Msg) { connection.HandedFor(name, a.handed(msg)) }
}

func (a *adapter) connect(asked connection.Command) (err error) {
	if a.connection, err = connection.Open(asked); err != nil {
		return err
	}
	a.pulls = map[string]*nats.Subscription{}
	a.js, err = a.connection.JetStream(nats.MaxWait(connection.APIWait))
	return err
}

func (a *adapter) create(asked connection.Command) error {
	if asked.Stream != nil {
		var stream nats.StreamConfig
		if err := json.Unmarshal(asked.Stream, &stream); err != nil {
			return err
		}
		if _, err := a.js.AddStream(&stream); err != nil {
			return err
		}
	}
	if asked.Consumer != nil {
		var of struct {
			Stream string `json:"stream_name"`
		}
		var consumer nats.ConsumerConfig
		if err := errors.Join(json.Unmarshal(asked.Consumer, &of), json.Unmarshal(asked.Consumer, &consumer)); err != nil {
			return err
		}
		_, err := a.js.AddConsumer(of.Stream, &consumer)
		return err
	}
	return nil
}

func (a *adapter) fetch(asked connection.Command) (gate.Line, error) {
	stream, consumer := asked.StreamName(), asked.ConsumerName()
	key := stream + " " + consumer
	if a.pulls[key] == nil {
		pull, err := a.js.PullSubscribe("", consumer, nats.Bind(stream, consumer))
		if err != nil {
			return nil, err
		}
		a.pulls[key] = pull
	}
	wait := nats.MaxWait(connection.Milliseconds(asked.ExpiresMs))
	got, err := a.pulls[key].Fetch(asked.Batch, wait)
	messages := []gate.Line{}
	for _, msg := range got {
		messages = append(messages, a.handed(msg))
	}
	return gate.Line{"messages": messages}, err
}

func (a *adapter) ack(asked connection.Command) error {
	msg := a.messages.Get(asked.Ref)
	switch asked.Kind {
	case "nak":
		if slow, can := any(msg).(delayed); can && asked.DelayMs > 0 {
			return slow.NakWithDelay(connection.Milliseconds(asked.DelayMs))
		}
		return msg.Nak()
	case "progress":
		return msg.InProgress()
	case "term":
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
	case "drain":
		return nil, a.connection.Drain()
	case "close":
		a.connection.Close()
		return nil, nil
	case "publish":
		err := a.connection.PublishMsg(asked.Message())
		if err == nil && asked.Flush {
			err = a.connection.Flush()
		}
		return nil, err
	case "request":
		msg, err := a.connection.RequestMsg(asked.Message(), asked.Timeout())
		if err != nil {
			return nil, err
		}
		return gate.Line{"message": a.handed(msg)}, nil
	case "subscribe":
		made, err := a.connection.QueueSubscribe(asked.Subject, asked.Queue, a.callback(asked.Subscription))
		a.subscriptions[asked.Subscription] = made
		return nil, err
	case "unsubscribe":
		if asked.After > 0 {
			return nil, a.subscriptions[asked.Subscription].AutoUnsubscribe(asked.After)
		}
		return nil, a.subscriptions[asked.Subscription].Unsubscribe()
	case "stop":
		return nil, a.subscriptions[asked.Subscription].Unsubscribe()
	case "js.create":
		return nil, a.create(asked)
	case "js.publish":
		options := []nats.PubOpt{nats.AckWait(asked.Timeout())}
		if asked.MsgID != "" {
			options = append(options, nats.MsgId(asked.MsgID))
		}
		stored, err := a.js.PublishMsg(asked.Message(), options...)
		if err != nil {
			return nil, err
		}
		return gate.Line{"stream": stored.Stream, "seq": stored.Sequence, "duplicate": stored.Duplicate}, nil
	case "js.subscribe":
		bound := nats.Bind(asked.StreamName(), asked.ConsumerName())
		made, err := a.js.Subscribe(asked.Subject, a.callback(asked.Subscription), bound, nats.ManualAck())
		a.subscriptions[asked.Subscription] = made
		return nil, err
	case "fetch":
		return a.fetch(asked)
	case "ack":
		return nil, a.ack(asked)
	case "ack.sync":
		return nil, a.messages.Get(asked.Ref).AckSync(nats.AckWait(asked.Timeout()))
	}
	return nil, gate.ErrUnknown
}

func main() {
	if _, can := any(&nats.Msg{}).(delayed); can {
		features = append(features, "ack.nak.delay")
	}
	a := &adapter{subscriptions: map[string]*nats.Subscription{}}
	gate.Serve("nats", "nats.go", gate.Release(connection.Module), features, a.answer, describe)
}
