package main

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"plumbline/adapter/gate"
	"plumbline/adapter/nats_go/connection"
)

// refsOfEntries is added to the refs of entries of a key-value store: no command names them.
const refsOfEntries = 1_000_000

func (a *adapter) ordered(asked connection.Command) error {
	within, cancel := context.WithTimeout(context.Background(), connection.APIWait)
	defer cancel()
	config := jetstream.OrderedConsumerConfig{FilterSubjects: []string{asked.Subject}}
	consumer, err := a.js.OrderedConsumer(within, asked.StreamName(), config)
	if err != nil {
		return err
	}
	return a.consumeFrom(consumer, asked)
}

// entry is what a key-value store handed over.
func (a *adapter) entry(entry jetstream.KeyValueEntry) gate.Line {
	headers := nats.Header{}
	switch entry.Operation() {
	case jetstream.KeyValueDelete:
		headers.Set("KV-Operation", "DEL")
	case jetstream.KeyValuePurge:
		headers.Set("KV-Operation", "PURGE")
	}
	return connection.Handed(refsOfEntries+a.entries.Keep(entry), entry.Key(), "", entry.Value(), headers)
}

func (a *adapter) watch(store jetstream.KeyValue, name string) error {
	watcher, err := store.WatchAll(context.Background())
	if err != nil {
		return err
	}
	go func() {
		for entry := range watcher.Updates() {
			if entry == nil {
				gate.Say(gate.Line{"event": "up-to-date", "subscription": name})
			} else {
				connection.HandedFor(name, a.entry(entry))
			}
		}
	}()
	return nil
}

func (a *adapter) answerStore(asked connection.Command) (gate.Line, error) {
	within, cancel := context.WithTimeout(context.Background(), connection.APIWait)
	defer cancel()
	if asked.Bucket == "" {
		return nil, gate.ErrUnknown
	}
	store, err := a.js.KeyValue(within, asked.Bucket)
	if err != nil {
		return nil, err
	}
	data, revision := []byte(asked.Data), uint64(0)
	switch asked.Do {
	case "kv.put":
		revision, err = store.Put(within, asked.Key, data)
	case "kv.create":
		revision, err = store.Create(within, asked.Key, data)
	case "kv.update":
		revision, err = store.Update(within, asked.Key, data, asked.Revision)
	case "kv.delete":
		return nil, store.Delete(within, asked.Key)
	case "kv.purge":
		return nil, store.Purge(within, asked.Key)
	case "kv.get":
		entry, err := store.Get(within, asked.Key)
		if err != nil {
			return nil, err
		}
		return gate.Line{"message": a.entry(entry)}, nil
	case "kv.watch":
		return nil, a.watch(store, asked.Subscription)
	default:
		return nil, gate.ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return gate.Line{"seq": revision}, nil
}
