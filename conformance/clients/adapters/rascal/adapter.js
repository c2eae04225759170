// An adapter of rascal, publications and subscriptions around amqplib: see PROTOCOL.md for what it reads and writes.
"use strict";

const rascal = require("rascal");
const { bytes, describe, given, release, say, serve, text, trusted } = require("../shared/gate.js");

// Queues, exchanges and bindings are configured before rascal connects: its user declares none later. A publish has a channel
// to itself until it is confirmed, so that several at once are on as many channels. Prefetch is an option of subscriptions.
// There is no basic.get, and `all` of ackOrNack() acknowledges deliveries after its own too.
const FEATURES = "tls publish publish.mandatory publish.message_id confirm consume ack nack blocked reconnect";
const RECONNECT_MS = 200;
const CLOSE_TIMEOUT_MS = 200; // what shutdown() and cancel() wait for acknowledgements

let broker = null;
const confirming = new Map(); // by number of a channel: whether its publishes are confirmed
const subscriptions = new Map();
const messages = []; // by ref: what settles it

function message(handed, ackOrNack) {
  messages.push(ackOrNack);
  const headers = Object.entries(handed.properties.headers ?? {}).map(([name, value]) => [name, [String(value)]]);
  return {
    ref: messages.length,
    data: text(handed.content),
    headers: Object.fromEntries(headers),
    exchange: handed.fields.exchange,
    routing_key: handed.fields.routingKey,
    delivery_tag: Number(handed.fields.deliveryTag),
    redelivered: handed.fields.redelivered,
  };
}

// Subscriptions have their queues in the configuration, too: a command names its own in place of `any`.
function configuration(command) {
  const retry = command.reconnect ? { delay: RECONNECT_MS } : false;
  return rascal.withDefaultConfig({
    defaults: {
      vhosts: { connection: { retry } }, // it does not look at that of a connection itself
      publications: { options: { mandatory: false, persistent: false } },
      subscriptions: { prefetch: 0, closeTimeout: CLOSE_TIMEOUT_MS, retry },
    },
    vhosts: {
      "/": {
        connection: { url: command.url, socketOptions: trusted(command) },
        queues: { any: { assert: false } },
        publications: { plain: { exchange: "", confirm: false }, confirmed: { exchange: "", confirm: true } },
        subscriptions: { any: { queue: "any" } },
      },
    },
  });
}

function settle(command, ...how) {
  return new Promise((resolve, reject) => messages[command.ref - 1](...how, (error) => (error ? reject(error) : resolve())));
}

const actions = {
  async connect(command) {
    const mine = await rascal.BrokerAsPromised.create(configuration(command));
    broker = mine;
    const report = (event, fields) => broker === mine && say({ event, ...fields }); // its user has closed the others
    mine.on("disconnect", () => report("disconnected"));
    mine.on("vhost_initialised", () => report("reconnected"));
    mine.on("error", (error) => report("error", describe(error)));
    mine.on("blocked", (reason) => report("blocked", { text: reason }));
    mine.on("unblocked", () => report("unblocked"));
  },
  async close() {
    const mine = broker;
    broker = null;
    if (mine !== null) await mine.shutdown();
  },
  async channel(command) {
    confirming.set(command.channel, false);
  },
  async confirm(command) {
    confirming.set(command.channel, true);
  },
  async publish(command) {
    if (command.exchange) throw new Error(`no publication is configured for the exchange ${command.exchange}`);
    const confirmed = confirming.get(command.channel);
    const options = given(command, { mandatory: "mandatory", headers: "headers", message_id: "messageId" });
    const overrides = { routingKey: command.routing_key, options };
    const publication = await broker.publish(confirmed ? "confirmed" : "plain", bytes(command.data), overrides);
    publication.on("return", ({ fields, content }) =>
      say({ event: "returned", code: fields.replyCode, text: fields.replyText, routing_key: fields.routingKey, data: text(content) }),
    );
    let settled = false;
    const outcome = new Promise((resolve, reject) => {
      publication.on("success", resolve);
      publication.on("close", () => reject(new Error("closed")));
      publication.on("error", (error) => {
        if (settled) say({ event: "error", ...describe(error) }); // a publish has two when its connection is lost
        settled = true;
        reject(error);
      });
    });
    if (confirmed) {
      const confirm = { event: "confirmed", publish: command.publish ?? 0 };
      outcome.then(
        () => say({ ...confirm, ack: true }),
        (error) => say({ ...confirm, ack: false, text: error.message }),
      );
    } else {
      await outcome;
    }
  },
  async consume(command) {
    const { queue, subscription } = command;
    const session = await broker.subscribe("any", { source: queue, options: { noAck: command.no_ack ?? false } });
    subscriptions.set(subscription, session);
    let started = false;
    await new Promise((resolve, reject) => {
      session.on("subscribed", resolve);
      session.on("error", (error) => (started ? say({ event: "error", subscription, ...describe(error) }) : reject(error)));
      session.on("cancelled", (error) => say({ event: "ended", subscription, text: error.message }));
      session.on("message", (handed, content, ackOrNack) => {
        say({ event: "message", subscription, message: message(handed, ackOrNack) });
      });
    });
    started = true;
  },
  async cancel(command) {
    const session = subscriptions.get(command.subscription);
    subscriptions.delete(command.subscription);
    // its error says that deliveries are not acknowledged yet: the consumer is cancelled anyway
    await session.cancel().catch((error) => say({ event: "error", subscription: command.subscription, ...describe(error) }));
  },
  async ack(command) {
    await settle(command);
  },
  async nack(command) {
    const strategy = { strategy: "nack", all: command.multiple ?? false, requeue: command.requeue ?? true };
    await settle(command, new Error("refused by its user"), strategy);
  },
};

serve({ protocol: "amqp", library: "rascal", version: release(__dirname, "rascal"), features: FEATURES }, actions);
