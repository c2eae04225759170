// An adapter of nats.js 3 (@nats-io/transport-node, @nats-io/jetstream).
"use strict";

const { connect, headers } = require("@nats-io/transport-node");
const { jetstream, jetstreamManager } = require("@nats-io/jetstream");
const { Kvm } = require("@nats-io/kv");
const { Objm } = require("@nats-io/obj");
const { ServiceError, Svcm } = require("@nats-io/services");
const { describe, release } = require("../shared/gate.js");
const { run } = require("../shared/nats_js.js");

const FEATURES =
  "reset tls publish publish.flush request subscribe unsubscribe.after js.create js.publish fetch fetch.heartbeat consume push " +
  "ack ack.nak ack.nak.delay ack.progress ack.term ack.term.reason ack.sync reconnect ping lame-duck drain " +
  "ordered kv obj obj.create obj.link obj.list obj.seal obj.update service service.reset";

run(release(__dirname, "@nats-io/jetstream"), FEATURES, {
  connect,
  headers,
  jetstream,
  jetstreamManager,
  ServiceError,
  bucket: (connection, name) => new Kvm(connection).open(name),
  store: (connection, name) => new Objm(connection).open(name),
  createStore: (connection, name) => new Objm(connection).create(name),
  services: (connection) => new Svcm(connection),
  failure: (status) => describe(status.error),
  ordered: (connection, { stream, subject }) => jetstream(connection).consumers.get(stream, { filter_subjects: subject }),
  push: async (connection, { stream, consumer }) => (await jetstream(connection).consumers.getPushConsumer(stream, consumer)).consume(),
});
