// An adapter of nats.go, its JetStreamContext: see PROTOCOL.md for what it reads and writes.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var features = []string{
	"publish", "request", "subscribe", "unsubscribe.after", "js.create", "js.publish", "fetch", "push",
	"ack", "ack.nak", "ack.progress", "ack.term", "ack.sync", "reconnect", "reconnect.buffer", "ping", "lame-duck",
	"drain",
}

// apiWait is how long a lookup of a consumer may take, which PullSubscribe makes; connectWait is for a busy machine.
const (
	apiWait     = 4 * time.Second
	connectWait = 8 * time.Second
)

type line map[string]any

type command struct {
	ID           int             `json:"id"`
	Do           string          `json:"do"`
	URL          string          `json:"url"`
	Reconnect    bool            `json:"reconnect"`
	WaitMs       int             `json:"reconnect_wait_ms"`
	BufferBytes  int             `json:"buffer_bytes"`
	PingMs       int             `json:"ping_ms"`
	PingsOut     int             `json:"pings_out"`
	Subject      string          `json:"subject"`
	Data         string          `json:"data"`
	Reply        string          `json:"reply"`
	Headers      map[string]any  `json:"headers"`
	Queue        string          `json:"queue"`
	Subscription string          `json:"subscription"`
	After        int             `json:"after"`
	TimeoutMs    int             `json:"timeout_ms"`
	MsgID        string          `json:"msg_id"`
	Stream       json.RawMessage `json:"stream"`
	Consumer     json.RawMessage `json:"consumer"`
	Batch        int             `json:"batch"`
	ExpiresMs    int             `json:"expires_ms"`
	Ref          int             `json:"ref"`
	Kind         string          `json:"kind"`
	DelayMs      int             `json:"delay_ms"`
}

type adapter struct {
	lock          sync.Mutex // of what is written and of messages: callbacks come from goroutines
	connection    *nats.Conn
	js            nats.JetStreamContext
	messages      []*nats.Msg
	subscriptions map[string]*nats.Subscription
	pulls         map[string]*nats.Subscription
}

func (a *adapter) say(told line) {
	text, _ := json.Marshal(told)
	a.lock.Lock()
	defer a.lock.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func trouble(err error) line {
	told := line{"text": err.Error(), "type": reflect.TypeOf(err).String()}
	for at := err; at != nil; at = errors.Unwrap(at) {
		// *nats.APIError, which releases before 1.17 have not
		if value := reflect.Indirect(reflect.ValueOf(at)); value.Kind() == reflect.Struct {
			if code := value.FieldByName("ErrorCode"); code.IsValid() && code.CanUint() {
				told["code"] = code.Uint()
			}
		}
	}
	return told
}

// delayed is what messages can do since 1.14.
type delayed interface {
	NakWithDelay(delay time.Duration, options ...nats.AckOpt) error
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

func (a *adapter) handed(msg *nats.Msg) line {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.messages = append(a.messages, msg)
	headers := msg.Header
	if headers == nil {
		headers = nats.Header{}
	}
	return line{
		"ref": len(a.messages), "subject": msg.Subject, "reply": msg.Reply, "data": latin1(msg.Data), "headers": headers,
	}
}

func (a *adapter) callback(name string) nats.MsgHandler {
	return func(msg *nats.Msg) {
		a.say(line{"event": "message", "subscription": name, "message": a.handed(msg)})
	}
}

func message(asked command) *nats.Msg {
	made := nats.NewMsg(asked.Subject)
	made.Reply, made.Data = asked.Reply, []byte(asked.Data)
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

func name(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text)
	return
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
		nats.LameDuckModeHandler(func(*nats.Conn) { a.event("lame-duck", nil) }),
	}
	if asked.Reconnect {
		wait := time.Duration(asked.WaitMs) * time.Millisecond
		options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(wait), nats.ReconnectJitter(wait, wait))
	} else {
		options = append(options, nats.NoReconnect())
	}
	if asked.BufferBytes > 0 {
		options = append(options, nats.ReconnectBufSize(asked.BufferBytes))
	}
	if asked.PingMs > 0 {
		interval := time.Duration(asked.PingMs) * time.Millisecond
		options = append(options, nats.PingInterval(interval), nats.MaxPingsOutstanding(asked.PingsOut))
	}
	var err error
	if a.connection, err = nats.Connect(asked.URL, options...); err != nil {
		return err
	}
	a.pulls = map[string]*nats.Subscription{}
	a.js, err = a.connection.JetStream(nats.MaxWait(apiWait))
	return err
}

func (a *adapter) create(asked command) error {
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

func (a *adapter) fetch(asked command) (line, error) {
	stream, consumer := name(asked.Stream), name(asked.Consumer)
	key := stream + " " + consumer
	if a.pulls[key] == nil {
		pull, err := a.js.PullSubscribe("", consumer, nats.Bind(stream, consumer))
		if err != nil {
			return nil, err
		}
		a.pulls[key] = pull
	}
	wait := nats.MaxWait(time.Duration(asked.ExpiresMs) * time.Millisecond)
	got, err := a.pulls[key].Fetch(asked.Batch, wait)
	messages := []line{}
	for _, msg := range got {
		messages = append(messages, a.handed(msg))
	}
	return line{"messages": messages}, err
}

func (a *adapter) ack(asked command) error {
	msg := a.messages[asked.Ref-1]
	switch asked.Kind {
	case "nak":
		if slow, can := any(msg).(delayed); can && asked.DelayMs > 0 {
			return slow.NakWithDelay(time.Duration(asked.DelayMs) * time.Millisecond)
		}
		return msg.Nak()
	case "progress":
		return msg.InProgress()
	case "term":
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
	case "drain":
		return nil, a.connection.Drain()
	case "close":
		a.connection.Close()
		return nil, nil
	case "publish":
		return nil, a.connection.PublishMsg(message(asked))
	case "request":
		msg, err := a.connection.RequestMsg(message(asked), timeout)
		if err != nil {
			return nil, err
		}
		return line{"message": a.handed(msg)}, nil
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
		options := []nats.PubOpt{nats.AckWait(timeout)}
		if asked.MsgID != "" {
			options = append(options, nats.MsgId(asked.MsgID))
		}
		told, err := a.js.PublishMsg(message(asked), options...)
		if err != nil {
			return nil, err
		}
		return line{"stream": told.Stream, "seq": told.Sequence, "duplicate": told.Duplicate}, nil
	case "js.subscribe":
		bound := nats.Bind(name(asked.Stream), name(asked.Consumer))
		made, err := a.js.Subscribe(asked.Subject, a.callback(asked.Subscription), bound, nats.ManualAck())
		a.subscriptions[asked.Subscription] = made
		return nil, err
	case "fetch":
		return a.fetch(asked)
	case "ack":
		return nil, a.ack(asked)
	case "ack.sync":
		return nil, a.messages[asked.Ref-1].AckSync(nats.AckWait(timeout))
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
	if _, can := any(&nats.Msg{}).(delayed); can {
		features = append(features, "ack.nak.delay")
	}
	a := &adapter{subscriptions: map[string]*nats.Subscription{}}
	a.say(line{
		"hello": "plumbline.adapter/1", "protocol": "nats", "library": "nats.go", "version": released(),
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
