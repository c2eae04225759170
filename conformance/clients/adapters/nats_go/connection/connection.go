// Package connection has what the adapters of both JetStream interfaces of nats.go share: commands, the connection and
// its events, messages.
package connection

import (
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"plumbline/adapter/gate"
)

// Module is nats.go's name.
const Module = "github.com/nats-io/nats.go"

// APIWait is how long a lookup of a consumer may take; connectWait is for a busy machine.
const (
	APIWait     = 4 * time.Second
	connectWait = 8 * time.Second
)

// Command has the fields of all commands that either adapter knows.
type Command struct {
	Do           string          `json:"do"`
	URL          string          `json:"url"`
	TLSCA        string          `json:"tls_ca"`
	Reconnect    bool            `json:"reconnect"`
	WaitMs       int             `json:"reconnect_wait_ms"`
	BufferBytes  int             `json:"buffer_bytes"`
	PingMs       int             `json:"ping_ms"`
	PingsOut     int             `json:"pings_out"`
	Subject      string          `json:"subject"`
	Data         string          `json:"data"`
	Reply        string          `json:"reply"`
	Flush        bool            `json:"flush"`
	Headers      map[string]any  `json:"headers"`
	Queue        string          `json:"queue"`
	Subscription string          `json:"subscription"`
	After        int             `json:"after"`
	TimeoutMs    int             `json:"timeout_ms"`
	MsgID        string          `json:"msg_id"`
	Stream       json.RawMessage `json:"stream"`   // a name, or the configuration of js.create
	Consumer     json.RawMessage `json:"consumer"` // as stream
	Batch        int             `json:"batch"`
	ExpiresMs    int             `json:"expires_ms"`
	HeartbeatMs  int             `json:"heartbeat_ms"`
	NoWait       bool            `json:"no_wait"`
	Ref          int             `json:"ref"`
	Kind         string          `json:"kind"`
	DelayMs      int             `json:"delay_ms"`
	Reason       string          `json:"reason"`
	Bucket       string          `json:"bucket"`
	Key          string          `json:"key"`
	Revision     uint64          `json:"revision"`
	Name         string          `json:"name"`
	NewName      string          `json:"new_name"`
	Description  string          `json:"description"`
	ChunkBytes   uint32          `json:"chunk_bytes"`
	Target       string          `json:"target"`
	Service      string          `json:"service"`
	Version      string          `json:"version"`
	Group        string          `json:"group"`
	GroupQueue   string          `json:"group_queue"`
	NoQueue      bool            `json:"no_queue"`
	ErrorCode    string          `json:"error_code"`
	ErrorText    string          `json:"error_text"`

	Metadata map[string]string `json:"metadata"`
}

// StreamName is the stream, where the command names one.
func (c Command) StreamName() string { return name(c.Stream) }

// ConsumerName is the consumer, where the command names one.
func (c Command) ConsumerName() string { return name(c.Consumer) }

func name(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text)
	return
}

// Timeout is the time-out of the command, or a second.
func (c Command) Timeout() time.Duration {
	if c.TimeoutMs == 0 {
		return time.Second
	}
	return Milliseconds(c.TimeoutMs)
}

// Milliseconds makes a duration of a number of a command.
func Milliseconds(count int) time.Duration { return time.Duration(count) * time.Millisecond }

// Message is what the command wants to publish.
func (c Command) Message() *nats.Msg {
	made := nats.NewMsg(c.Subject)
	made.Reply, made.Data = c.Reply, []byte(c.Data)
	for name, given := range c.Headers {
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

// Open connects as the command says, and reports what nats.go reports.
func Open(asked Command) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Timeout(connectWait),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			gate.Say(gate.Line{"event": "error", "text": err.Error(), "type": "error"})
		}),
		nats.LameDuckModeHandler(func(*nats.Conn) { gate.Event("lame-duck", nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { gate.Event("disconnected", err) }),
		nats.ReconnectHandler(func(*nats.Conn) { gate.Event("reconnected", nil) }),
		nats.ClosedHandler(func(c *nats.Conn) { gate.Event("closed", c.LastError()) }),
	}
	if asked.Reconnect {
		wait := Milliseconds(asked.WaitMs)
		options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(wait), nats.ReconnectJitter(wait, wait))
	} else {
		options = append(options, nats.NoReconnect())
	}
	if asked.BufferBytes > 0 {
		options = append(options, nats.ReconnectBufSize(asked.BufferBytes))
	}
	if asked.PingMs > 0 {
		options = append(options, nats.PingInterval(Milliseconds(asked.PingMs)), nats.MaxPingsOutstanding(asked.PingsOut))
	}
	if asked.TLSCA != "" {
		options = append(options, nats.RootCAs(asked.TLSCA))
	}
	return nats.Connect(asked.URL, options...)
}

// Handed is a message as nats.go handed it over.
func Handed(ref int, subject, reply string, data []byte, headers nats.Header) gate.Line {
	if headers == nil {
		headers = nats.Header{}
	}
	return gate.Line{"ref": ref, "subject": subject, "reply": reply, "data": gate.Latin1(data), "headers": headers}
}

// HandedFor is the event of a message of a subscription.
func HandedFor(subscription string, message gate.Line) {
	gate.Say(gate.Line{"event": "message", "subscription": subscription, "message": message})
}
