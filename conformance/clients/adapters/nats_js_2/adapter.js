// An adapter of nats.js 2, the package "nats".
"use strict";

const { connect, consumerOpts, headers, ServiceError } = require("nats");
const { release } = require("../shared/gate.js");
const { run } = require("../shared/nats_js.js");

const FEATURES =
  "reset tls publish publish.flush request subscribe unsubscribe.after js.create js.publish fetch fetch.heartbeat consume push " +
  "ack ack.nak ack.nak.delay ack.progress ack.term ack.term.reason ack.sync reconnect ping lame-duck drain " +
  "ordered kv obj obj.create obj.link obj.list obj.seal obj.update service service.reset";

// A push consumer that exists, by the older API: the newer one of this release has none.
async function push(connection, { stream, consumer, subject }) {
  const options = consumerOpts().bind(stream, consumer).manualAck();
  const made = await connection.jetstream().subscribe(subject, options);
  return Object.assign(made, { close: () => made.unsubscribe(), status: () => [] });
}

run(release(__dirname, "nats"), FEATURES, {
  connect,
  headers,
  ServiceError,
  push,
  jetstream: (connection) => connection.jetstream(),
  jetstreamManager: (connection) => connection.jetstreamManager(),
  bucket: (connection, name) => connection.jetstream().views.kv(name, { bindOnly: true }),
  store: (connection, name) => connection.jetstream().views.os(name),
  createStore: (connection, name) => connection.jetstream().views.os(name),
  services: (connection) => connection.services,
  failure: ({ data, permissionContext }) => ({
    text: [data.replaceAll("_", " "), permissionContext?.operation, permissionContext?.subject].filter(Boolean).join(" "),
    type: data,
  }),
  ordered: (connection, { stream, subject }) => connection.jetstream().consumers.get(stream, { filterSubjects: subject }),
});
