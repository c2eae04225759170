// An adapter of amqplib (its promise API): see PROTOCOL.md for what it reads and writes.
"use strict";

const amqp = require("amqplib");
const { bytes, describe, given, release, say, serve, text, trusted } = require("../shared/gate.js");

// amqplib has no transactions.
const FEATURES =
  "tls declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple nack reject qos " +
  "bind blocked";

let connection = null;
let channels = new Map(); // by number
let consumers = new Map(); // subscription: channel, consumer tag
const messages = []; // by ref: the channel of its delivery, what amqplib handed over

function message(channel, handed) {
  messages.push([channel, handed]);
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

function listen(number, channel) {
  let failure = null;
  channels.set(number, channel);
  channel.on("error", (error) => {
    failure = error;
  });
  channel.on("close", () => {
    if (connection === null || channels.get(number) !== channel) return; // its user closed it
    channels.delete(number);
    say({ event: "channel-closed", channel: number, ...(failure === null ? {} : describe(failure)) });
  });
  channel.on("return", (came) =>
    say({
      event: "returned",
      code: came.fields.replyCode,
      text: came.fields.replyText,
      routing_key: came.fields.routingKey,
      data: text(came.content),
    }),
  );
}

function channelOf(command) {
  const channel = channels.get(command.channel);
  if (channel === undefined) throw new Error(`channel ${command.channel} is closed`);
  return channel;
}

const actions = {
  async connect(command) {
    const mine = await amqp.connect(command.url, trusted(command));
    connection = mine;
    channels = new Map();
    mine.on("error", (error) => say({ event: "error", ...describe(error) }));
    mine.on("blocked", (why) => say({ event: "blocked", text: why }));
    mine.on("unblocked", () => say({ event: "unblocked" }));
    mine.on("close", (error) => {
      if (connection !== mine) return; // its user closed it
      connection = null;
      say({ event: "disconnected", ...(error ? describe(error) : {}) });
    });
  },
  async close() {
    const mine = connection;
    connection = null;
    if (mine !== null) await mine.close();
  },
  async channel(command) {
    listen(command.channel, await connection.createChannel());
  },
  async confirm(command) {
    // amqplib decides on confirms when a channel is opened
    const plain = channelOf(command);
    channels.delete(command.channel);
    await plain.close();
    listen(command.channel, await connection.createConfirmChannel());
  },
  async declare(command) {
    const names = { durable: "durable", exclusive: "exclusive", auto_delete: "autoDelete", arguments: "arguments" };
    const options = { durable: false, ...given(command, names) }; // the library declares durable by default
    return { queue: (await channelOf(command).assertQueue(command.queue, options)).queue };
  },
  async exchange(command) {
    const options = { durable: false, ...given(command, { auto_delete: "autoDelete" }) };
    await channelOf(command).assertExchange(command.exchange, command.type, options);
  },
  async bind(command) {
    await channelOf(command).bindQueue(command.queue, command.exchange, command.routing_key);
  },
  async publish(command) {
    const channel = channelOf(command);
    const first = command.publish ?? 0;
    const options = given(command, { mandatory: "mandatory", headers: "headers", message_id: "messageId" });
    for (let number = first; number < first + (command.count ?? 1); number++) {
      const data = bytes(command.data + ("count" in command ? `-${number}` : ""));
      const to = [command.exchange ?? "", command.routing_key, data, options];
      if (typeof channel.waitForConfirms === "function") {
        channel.publish(...to, (error) =>
          say({ event: "confirmed", publish: number, ack: !error, ...(error ? { text: error.message } : {}) }),
        );
      } else {
        channel.publish(...to);
      }
    }
  },
  async consume(command) {
    const channel = channelOf(command);
    const subscription = command.subscription;
    const handedOver = (handed) => {
      if (handed === null) say({ event: "ended", subscription, text: "cancelled by the server" });
      else say({ event: "message", subscription, message: message(channel, handed) });
    };
    const options = { noAck: command.no_ack ?? false };
    const { consumerTag } = await channel.consume(command.queue, handedOver, options);
    consumers.set(subscription, [channel, consumerTag]);
  },
  async cancel(command) {
    const [channel, tag] = consumers.get(command.subscription);
    consumers.delete(command.subscription);
    await channel.cancel(tag);
  },
  async get(command) {
    const channel = channelOf(command);
    const handed = await channel.get(command.queue, { noAck: command.no_ack ?? false });
    return { message: handed === false ? null : message(channel, handed) };
  },
  async ack(command) {
    const [channel, handed] = messages[command.ref - 1];
    channel.ack(handed, command.multiple ?? false);
  },
  async nack(command) {
    const [channel, handed] = messages[command.ref - 1];
    channel.nack(handed, command.multiple ?? false, command.requeue ?? true);
  },
  async reject(command) {
    const [channel, handed] = messages[command.ref - 1];
    channel.reject(handed, command.requeue ?? true);
  },
  async qos(command) {
    await channelOf(command).prefetch(command.prefetch_count, command.global ?? false);
  },
};

serve({ protocol: "amqp", library: "amqplib", version: release(__dirname, "amqplib"), features: FEATURES }, actions);
