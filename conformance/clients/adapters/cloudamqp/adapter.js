// An adapter of @cloudamqp/amqp-client, of its AMQPClient: see PROTOCOL.md for what it reads and writes.
"use strict";

const { AMQPClient } = require("@cloudamqp/amqp-client");
const { bytes, describe, given, release, say, serve, text, trusted } = require("../shared/gate.js");

// An AMQPClient does not connect again; the AMQPSession around it does, and has no channels.
const FEATURES =
  "reset tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple nack reject " +
  "qos tx bind blocked";

console.log = console.info = console.error; // releases before 3.3 log to stdout, which is not theirs here

let connection = null;
const channels = new Map(); // by number
const confirming = new Set(); // channels
const consumers = new Map(); // by subscription
const messages = []; // by ref

function message(handed) {
  messages.push(handed);
  const headers = Object.entries(handed.properties.headers ?? {}).map(([name, value]) => [name, [String(value)]]);
  return {
    ref: messages.length,
    data: text(handed.body ?? []),
    headers: Object.fromEntries(headers),
    exchange: handed.exchange,
    routing_key: handed.routingKey,
    delivery_tag: handed.deliveryTag,
    redelivered: handed.redelivered,
  };
}

function channelOf(command) {
  const channel = channels.get(command.channel);
  if (channel === undefined) throw new Error(`channel ${command.channel} is closed`);
  return channel;
}

async function close() {
  const mine = connection;
  connection = null;
  channels.clear();
  if (mine !== null && !mine.closed) await mine.close();
}

const actions = {
  async connect(command) {
    const mine = new AMQPClient(command.url, trusted(command), null);
    channels.clear();
    const lost = (error) => {
      if (connection !== mine) return;
      connection = null;
      say({ event: "disconnected", ...(error ? describe(error) : {}) });
    };
    mine.onerror = lost; // before release 4 the only one
    mine.ondisconnect = lost;
    mine.onblocked = (reason) => say({ event: "blocked", text: reason });
    mine.onunblocked = () => say({ event: "unblocked" });
    await mine.connect();
    connection = mine;
  },
  close,
  async reset() {
    consumers.clear();
    messages.length = 0;
    await close();
  },
  async channel(command) {
    const number = command.channel;
    const channel = await connection.channel();
    channels.set(number, channel);
    channel.onerror = (reason) => say({ event: "channel-closed", channel: number, text: reason });
    channel.onReturn = (came) =>
      say({ event: "returned", code: came.replyCode, text: came.replyText, routing_key: came.routingKey, data: text(came.body ?? []) });
  },
  async confirm(command) {
    const channel = channelOf(command);
    await channel.confirmSelect();
    confirming.add(channel);
  },
  async declare(command) {
    const names = { durable: "durable", exclusive: "exclusive", auto_delete: "autoDelete" };
    const options = { durable: false, ...given(command, names) }; // the library declares durable by default
    return { queue: (await channelOf(command).queueDeclare(command.queue, options, command.arguments ?? {})).name };
  },
  async exchange(command) {
    const options = { durable: false, ...given(command, { auto_delete: "autoDelete" }) };
    await channelOf(command).exchangeDeclare(command.exchange, command.type, options);
  },
  async bind(command) {
    await channelOf(command).queueBind(command.queue, command.exchange, command.routing_key);
  },
  async publish(command) {
    const channel = channelOf(command);
    const first = command.publish ?? 0;
    const properties = given(command, { headers: "headers", message_id: "messageId" });
    for (let number = first; number < first + (command.count ?? 1); number++) {
      const data = bytes(command.data + ("count" in command ? `-${number}` : ""));
      const published = channel.basicPublish(command.exchange ?? "", command.routing_key, data, properties, command.mandatory ?? false);
      if (confirming.has(channel)) {
        published.then(
          () => say({ event: "confirmed", publish: number, ack: true }),
          (error) => say({ event: "confirmed", publish: number, ack: false, text: error.message }),
        );
      } else {
        await published;
      }
    }
  },
  async consume(command) {
    const { queue, subscription, no_ack: noAck = false } = command;
    const consumer = await channelOf(command).basicConsume(queue, { noAck }, (handed) => {
      say({ event: "message", subscription, message: message(handed) });
    });
    consumers.set(subscription, consumer);
    consumer.wait().catch((error) => {
      if (consumers.get(subscription) === consumer) say({ event: "ended", subscription, text: error.message });
    });
  },
  async cancel(command) {
    const consumer = consumers.get(command.subscription);
    consumers.delete(command.subscription);
    await consumer.cancel();
  },
  async get(command) {
    const handed = await channelOf(command).basicGet(command.queue, { noAck: command.no_ack ?? false });
    return { message: handed === null ? null : message(handed) };
  },
  async ack(command) {
    await messages[command.ref - 1].ack(command.multiple ?? false);
  },
  async nack(command) {
    await messages[command.ref - 1].nack(command.requeue ?? true, command.multiple ?? false);
  },
  async reject(command) {
    await messages[command.ref - 1].reject(command.requeue ?? true);
  },
  async qos(command) {
    await channelOf(command).basicQos(command.prefetch_count, 0, command.global ?? false);
  },
  async "tx.select"(command) {
    await channelOf(command).txSelect();
  },
  async "tx.commit"(command) {
    await channelOf(command).txCommit();
  },
  async "tx.rollback"(command) {
    await channelOf(command).txRollback();
  },
};

const library = "@cloudamqp/amqp-client";
serve({ protocol: "amqp", library, version: release(__dirname, library), features: FEATURES }, actions);
