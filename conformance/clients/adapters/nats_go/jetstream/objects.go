package main

import (
	"bytes"
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"plumbline/adapter/gate"
	"plumbline/adapter/nats_go/connection"
)

// object is what an object store handed over.
func (a *adapter) object(info *jetstream.ObjectInfo, data []byte) gate.Line {
	return connection.Handed(refsOfEntries+a.entries.Keep(info), info.Name, "", data, nats.Header{})
}

func (a *adapter) watchObjects(store jetstream.ObjectStore, name string) error {
	watcher, err := store.Watch(context.Background())
	if err != nil {
		return err
	}
	go func() {
		for info := range watcher.Updates() {
			if info == nil {
				gate.Say(gate.Line{"event": "up-to-date", "subscription": name})
			} else {
				connection.HandedFor(name, a.object(info, nil))
			}
		}
	}()
	return nil
}

func (a *adapter) linkObject(within context.Context, store jetstream.ObjectStore, asked connection.Command) error {
	target, err := store.GetInfo(within, asked.Target)
	if err != nil {
		return err
	}
	_, err = store.AddLink(within, asked.Name, target)
	return err
}

func (a *adapter) answerObject(asked connection.Command) (gate.Line, error) {
	within, cancel := context.WithTimeout(context.Background(), connection.APIWait)
	defer cancel()
	if asked.Do == "obj.create" {
		_, err := a.js.CreateObjectStore(within, jetstream.ObjectStoreConfig{Bucket: asked.Bucket})
		return nil, err
	}
	store, err := a.js.ObjectStore(within, asked.Bucket)
	if err != nil {
		return nil, err
	}
	switch asked.Do {
	case "obj.put":
		meta := jetstream.ObjectMeta{Name: asked.Name}
		if asked.ChunkBytes > 0 {
			meta.Opts = &jetstream.ObjectMetaOptions{ChunkSize: asked.ChunkBytes}
		}
		_, err = store.Put(within, meta, bytes.NewReader([]byte(asked.Data)))
		return nil, err
	case "obj.get":
		data, err := store.GetBytes(within, asked.Name)
		if err != nil {
			return nil, err
		}
		return gate.Line{"message": a.object(&jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: asked.Name}}, data)}, nil
	case "obj.info":
		info, err := store.GetInfo(within, asked.Name)
		if err != nil {
			return nil, err
		}
		return gate.Line{"message": a.object(info, nil)}, nil
	case "obj.delete":
		return nil, store.Delete(within, asked.Name)
	case "obj.update":
		return nil, store.UpdateMeta(within, asked.Name, jetstream.ObjectMeta{Name: asked.NewName, Description: asked.Description})
	case "obj.link":
		return nil, a.linkObject(within, store, asked)
	case "obj.list":
		found, err := store.List(within)
		if err != nil {
			return nil, err
		}
		messages := []gate.Line{}
		for _, info := range found {
			messages = append(messages, a.object(info, nil))
		}
		return gate.Line{"messages": messages}, nil
	case "obj.watch":
		return nil, a.watchObjects(store, asked.Subscription)
	case "obj.seal":
		return nil, store.Seal(within)
	}
	return nil, gate.ErrUnknown
}
