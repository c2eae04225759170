// An adapter for plumbline gate. Add your library: connect in "connect", then a case and a feature for each command of
// the adapter protocol that it supports.
package main

import "plumbline/adapter/gate"

// features are what the adapter supports: add one with its case below.
var features = []string{}

type command struct {
	Do  string `json:"do"`
	URL string `json:"url"`
}

func answer(asked command) (gate.Line, error) {
	switch asked.Do {
	case "connect": // your library connects to asked.URL
		return nil, nil
	case "close":
		return nil, nil
	}
	return nil, gate.ErrUnknown
}

func main() {
	gate.Serve("PROTOCOL", "my library", gate.Release("example.org/my/library"), features, answer, gate.Describe)
}
