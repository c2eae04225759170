// Package gate speaks the adapter protocol of plumbline gate: commands from stdin, answers and events to stdout. It knows
// no library.
package gate

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// MaxLineBytes is the length of the longest command.
const MaxLineBytes = 2 * 1024 * 1024

// ErrUnknown is what an adapter answers to a command that it does not know.
var ErrUnknown = errors.New("unknown command")

// Line is one line of the protocol.
type Line map[string]any

var writing sync.Mutex // callbacks of libraries come from goroutines

// Say writes one line.
func Say(line Line) {
	text, _ := json.Marshal(line)
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// Event writes an event, with the text of an error if there is one.
func Event(name string, err error) {
	event := Line{"event": name}
	if err != nil {
		event["text"] = err.Error()
	}
	Say(event)
}

// Latin1 turns bytes into text with one character for each.
func Latin1(data []byte) string {
	runes := make([]rune, len(data))
	for i, octet := range data {
		runes[i] = rune(octet)
	}
	return string(runes)
}

// Describe makes a report of an error: its text and its type.
func Describe(err error) Line {
	if err == ErrUnknown {
		return Line{"text": err.Error(), "type": "unsupported"}
	}
	return Line{"text": err.Error(), "type": reflect.TypeOf(err).String()}
}

// Release is the release of a module that this program was built with.
func Release(module string) string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range built.Deps {
			if dependency.Path == module {
				return strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return "unknown"
}

// Messages keeps what the library handed over, for the commands that name it by its ref.
type Messages[Message any] struct {
	lock sync.Mutex
	kept []Message
}

// Keep returns the ref of a message.
func (m *Messages[Message]) Keep(message Message) int {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.kept = append(m.kept, message)
	return len(m.kept)
}

// Get returns the message with that ref.
func (m *Messages[Message]) Get(ref int) Message {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.kept[ref-1]
}

// Serve says hello, then answers each command until stdin ends. An answer may have a line, an error, or both; describe
// makes a report of an error.
func Serve[Command any](
	protocol, library, release string, features []string,
	answer func(Command) (Line, error), describe func(error) Line,
) {
	Say(Line{
		"hello": "plumbline.adapter/1", "protocol": protocol, "library": library, "version": release,
		"language": runtime.Version(), "features": features,
	})
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, MaxLineBytes)
	for input.Scan() {
		var numbered struct {
			ID int `json:"id"`
		}
		var command Command
		if err := errors.Join(json.Unmarshal(input.Bytes(), &numbered), json.Unmarshal(input.Bytes(), &command)); err != nil {
			panic(err)
		}
		given, err := answer(command)
		line := Line{"id": numbered.ID}
		if err != nil {
			line["error"] = describe(err)
		}
		if given == nil {
			given = Line{}
		}
		if err == nil || len(given) > 0 {
			line["ok"] = given
		}
		Say(line)
	}
}
