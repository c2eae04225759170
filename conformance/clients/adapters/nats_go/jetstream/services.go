package main

import (
	"time"

	"github.com/nats-io/nats.go/micro"
	"plumbline/adapter/gate"
	"plumbline/adapter/nats_go/connection"
)

// places is a service or a group of it: where endpoints are added.
type places interface {
	AddEndpoint(string, micro.Handler, ...micro.EndpointOpt) error
}

func (a *adapter) addService(asked connection.Command) error {
	made, err := micro.AddService(a.connection, micro.Config{
		Name:        asked.Name,
		Version:     asked.Version,
		Description: asked.Description,
		Metadata:    asked.Metadata,
		QueueGroup:  asked.Queue,
	})
	a.services[asked.Service] = made
	return err
}

func (a *adapter) addEndpoint(asked connection.Command) error {
	handler := micro.HandlerFunc(func(request micro.Request) {
		time.Sleep(connection.Milliseconds(asked.DelayMs)) // the work of a handler
		if asked.ErrorCode != "" {
			_ = request.Error(asked.ErrorCode, asked.ErrorText, nil)
		} else {
			_ = request.Respond(request.Data())
		}
	})
	var place places = a.services[asked.Service]
	if asked.Group != "" {
		options := []micro.GroupOpt{}
		if asked.GroupQueue != "" {
			options = append(options, micro.WithGroupQueueGroup(asked.GroupQueue))
		}
		place = a.services[asked.Service].AddGroup(asked.Group, options...)
	}
	options := []micro.EndpointOpt{}
	if asked.Subject != "" {
		options = append(options, micro.WithEndpointSubject(asked.Subject))
	}
	if asked.Queue != "" {
		options = append(options, micro.WithEndpointQueueGroup(asked.Queue))
	}
	if asked.NoQueue {
		options = append(options, micro.WithEndpointQueueGroupDisabled())
	}
	if asked.Metadata != nil {
		options = append(options, micro.WithEndpointMetadata(asked.Metadata))
	}
	return place.AddEndpoint(asked.Name, handler, options...)
}

func (a *adapter) answerService(asked connection.Command) error {
	switch asked.Do {
	case "service.add":
		return a.addService(asked)
	case "service.endpoint":
		return a.addEndpoint(asked)
	case "service.stop":
		return a.services[asked.Service].Stop()
	case "service.reset":
		a.services[asked.Service].Reset()
		return nil
	}
	return gate.ErrUnknown
}
