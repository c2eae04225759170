// An adapter of nats.go, its package jetstream: see PROTOCOL.md for what it reads and writes. What is not JetStream is
// in the adapter nats_go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var features = []string{
	"js.publish", "fetch", "fetch.no_wait", "fetch.heartbeat", "consume", "ack", "ack.nak", "ack.nak.delay",
	"ack.progress", "ack.term", "ack.term.reason", "ack.sync", "reconnect",
}

// apiWait is how long a lookup of a consumer may take; connectWait is for a busy machine.
const (
	apiWait     = 4 * time.Second
	connectWait = 8 * time.Second
)

type line map[string]any

type command struct {
	ID           int            `json:"id"`
	Do           string         `json:"do"`
	URL          string         `json:"url"`
	Reconnect    bool           `json:"reconnect"`
	WaitMs       int            `json:"reconnect_wait_ms"`
	Subject      string         `json:"subject"`
	Data         string         `json:"data"`
	Headers      map[string]any `json:"headers"`
	Subscription string         `json:"subscription"`
	TimeoutMs    int            `json:"timeout_ms"`
	MsgID        string         `json:"msg_id"`
	Stream       string         `json:"stream"`
	Consumer     string         `json:"consumer"`
	Batch        int            `json:"batch"`
	ExpiresMs    int            `json:"expires_ms"`
	HeartbeatMs  int            `json:"heartbeat_ms"`
	NoWait       bool           `json:"no_wait"`
	Ref          int            `json:"ref"`
	Kind         string         `json:"kind"`
	DelayMs      int            `json:"delay_ms"`
	Reason       string         `json:"reason"`
}

type adapter struct {
	lock       sync.Mutex // of what is written and of messages: callbacks come from goroutines
	connection *nats.Conn
	js         jetstream.JetStream
	messages   []jetstream.Msg
	consumers  map[string]jetstream.Consumer
	consuming  map[string]jetstream.ConsumeContext
}

func (a *adapter) say(told line) {
	text, _ := json.Marshal(told)
	a.lock.Lock()
	defer a.lock.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func trouble(err error) line {
	told := line{"text": err.Error(), "type": reflect.TypeOf(err).String()}
	var refused jetstream.JetStreamError
	if errors.As(err, &refused) && refused.APIError() != nil {
		told["code"] = refused.APIError().ErrorCode
	}
	return told
}

func (a *adapter) event(name string, err error) {
	told := line{"event": name}
	if err != nil {
		told["text"] = err.Error()
	}
	a.say(told)
}

// latin1 turns bytes into text with one character for each.
func latin1(data []byte) string {
	runes := make([]rune, len(data))
	for i, octet := range data {
		runes[i] = rune(octet)
	}
	return string(runes)
}

func (a *adapter) handed(msg jetstream.Msg) line {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.messages = append(a.messages, msg)
	headers := msg.Headers()
	if headers == nil {
		headers = nats.Header{}
	}
	return line{
		"ref": len(a.messages), "subject": msg.Subject(), "reply": msg.Reply(), "data": latin1(msg.Data()),
		"headers": headers,
	}
}

func (a *adapter) connect(asked command) error {
	options := []nats.Option{
		nats.Timeout(connectWait),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			a.say(line{"event": "error", "text": err.Error(), "type": "error"})
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { a.event("disconnected", err) }),
		nats.ReconnectHandler(func(*nats.Conn) { a.event("reconnected", nil) }),
		nats.ClosedHandler(func(c *nats.Conn) { a.event("closed", c.LastError()) }),
	}
	if asked.Reconnect {
		wait := time.Duration(asked.WaitMs) * time.Millisecond
		options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(wait), nats.ReconnectJitter(wait, wait))
	} else {
		options = append(options, nats.NoReconnect())
	}
	var err error
	if a.connection, err = nats.Connect(asked.URL, options...); err != nil {
		return err
	}
	a.consumers = map[string]jetstream.Consumer{}
	a.js, err = jetstream.New(a.connection)
	return err
}

func (a *adapter) consumer(asked command) (jetstream.Consumer, error) {
	key := asked.Stream + " " + asked.Consumer
	if a.consumers[key] == nil {
		within, cancel := context.WithTimeout(context.Background(), apiWait)
		defer cancel()
		found, err := a.js.Consumer(within, asked.Stream, asked.Consumer)
		if err != nil {
			return nil, err
		}
		a.consumers[key] = found
	}
	return a.consumers[key], nil
}

func (a *adapter) fetch(asked command) (line, error) {
	consumer, err := a.consumer(asked)
	if err != nil {
		return nil, err
	}
	var batch jetstream.MessageBatch
	if asked.NoWait {
		batch, err = consumer.FetchNoWait(asked.Batch)
	} else {
		options := []jetstream.FetchOpt{jetstream.FetchMaxWait(time.Duration(asked.ExpiresMs) * time.Millisecond)}
		if asked.HeartbeatMs > 0 {
			options = append(options, jetstream.FetchHeartbeat(time.Duration(asked.HeartbeatMs)*time.Millisecond))
		}
		batch, err = consumer.Fetch(asked.Batch, options...)
	}
	if err != nil {
		return nil, err
	}
	messages := []line{}
	for msg := range batch.Messages() {
		messages = append(messages, a.handed(msg))
	}
	return line{"messages": messages}, batch.Error()
}

func (a *adapter) consume(asked command) error {
	consumer, err := a.consumer(asked)
	if err != nil {
		return err
	}
	name := asked.Subscription
	options := []jetstream.PullConsumeOpt{
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			told := trouble(err)
			told["event"], told["subscription"] = "error", name
			a.say(told)
		}),
	}
	if asked.Batch > 0 {
		options = append(options, jetstream.PullMaxMessages(asked.Batch))
	}
	if asked.ExpiresMs > 0 {
		options = append(options, jetstream.PullExpiry(time.Duration(asked.ExpiresMs)*time.Millisecond))
	}
	if asked.HeartbeatMs > 0 {
		options = append(options, jetstream.PullHeartbeat(time.Duration(asked.HeartbeatMs)*time.Millisecond))
	}
	running, err := consumer.Consume(func(msg jetstream.Msg) {
		a.say(line{"event": "message", "subscription": name, "message": a.handed(msg)})
	}, options...)
	a.consuming[name] = running
	return err
}

func message(asked command) *nats.Msg {
	made := nats.NewMsg(asked.Subject)
	made.Data = []byte(asked.Data)
	for name, given := range asked.Headers {
		if one, single := given.(string); single {
			made.Header.Add(name, one)
		} else {
			for _, value := range given.([]any) {
				made.Header.Add(name, value.(string))
			}
		}
	}
	return made
}

func (a *adapter) publish(asked command, timeout time.Duration) (line, error) {
	within, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	options := []jetstream.PublishOpt{}
	if asked.MsgID != "" {
		options = append(options, jetstream.WithMsgID(asked.MsgID))
	}
	told, err := a.js.PublishMsg(within, message(asked), options...)
	if err != nil {
		return nil, err
	}
	return line{"stream": told.Stream, "seq": told.Sequence, "duplicate": told.Duplicate}, nil
}

func (a *adapter) ack(asked command) error {
	msg := a.messages[asked.Ref-1]
	switch asked.Kind {
	case "nak":
		if asked.DelayMs > 0 {
			return msg.NakWithDelay(time.Duration(asked.DelayMs) * time.Millisecond)
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

func (a *adapter) answer(asked command) (line, error) {
	timeout := time.Duration(asked.TimeoutMs) * time.Millisecond
	if timeout == 0 {
		timeout = time.Second
	}
	switch asked.Do {
	case "connect":
		return nil, a.connect(asked)
	case "flush":
		return nil, a.connection.Flush()
	case "close":
		a.connection.Close()
		return nil, nil
	case "js.publish":
		return a.publish(asked, timeout)
	case "fetch":
		return a.fetch(asked)
	case "consume":
		return nil, a.consume(asked)
	case "stop":
		a.consuming[asked.Subscription].Stop()
		<-a.consuming[asked.Subscription].Closed()
		return nil, nil
	case "ack":
		return nil, a.ack(asked)
	case "ack.sync":
		within, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return nil, a.messages[asked.Ref-1].DoubleAck(within)
	}
	return nil, errUnknown
}

var errUnknown = errors.New("unknown command")

// released is the release of nats.go that this program was built with.
func released() string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			if module.Path == "github.com/nats-io/nats.go" {
				return module.Version[1:]
			}
		}
	}
	return nats.Version
}

func main() {
	a := &adapter{consuming: map[string]jetstream.ConsumeContext{}}
	a.say(line{
		"hello": "plumbline.adapter/1", "protocol": "nats", "library": "nats.go/jetstream", "version": released(),
		"language": runtime.Version(), "features": features,
	})
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 2*1024*1024)
	for input.Scan() {
		var asked command
		if err := json.Unmarshal(input.Bytes(), &asked); err != nil {
			panic(err)
		}
		told, err := a.answer(asked)
		answer := line{"id": asked.ID}
		if err == errUnknown {
			answer["error"] = line{"text": err.Error(), "type": "unsupported"}
		} else if err != nil {
			answer["error"] = trouble(err)
		}
		if told == nil {
			told = line{}
		}
		if err == nil || len(told) > 0 {
			answer["ok"] = told
		}
		a.say(answer)
	}
}
