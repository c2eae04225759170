# frozen_string_literal: true

# The adapter of Bunny: reads commands and writes answers and events, as in PROTOCOL.md.

require "bunny"
require "logger"
require_relative "../shared/gate"

FEATURES = %w[
  reset declare publish publish.mandatory publish.async publish.message_id confirm consume get ack ack.multiple nack reject
  qos tx bind blocked reconnect reconnect.topology
].freeze
RECONNECT_S = 0.2

# Bunny raises in a thread what ends a connection; this takes the place of the thread.
class Failures
  def initialize(&report)
    @report = report
  end

  def raise(error, *)
    @report.call(error)
  end
end

# Commands in, what the library does and reports out.
class Adapter
  def initialize
    @connection = nil
    forget
  end

  def forget
    @channels = {}
    @published = {} # by channel: the numbers of its publishes, by their tags
    @consumers = {}
    @messages = [] # by ref: channel, delivery tag
    @keeping = Mutex.new
  end

  def connect(command)
    mine = nil
    failed = Failures.new { |error| lost(mine, error) }
    reconnect = command["reconnect"] || false
    mine = Bunny.new(
      command["url"], automatically_recover: reconnect, recover_from_connection_close: reconnect,
                      network_recovery_interval: RECONNECT_S, recovery_completed: -> { Gate.say(event: "reconnected") },
                      session_error_handler: failed, logger: Logger.new(File::NULL)
    )
    mine.on_blocked { |method| Gate.say(event: "blocked", text: method.reason) }
    mine.on_unblocked { |_| Gate.say(event: "unblocked") }
    mine.start
    @connection = mine
    @channels.clear
    @published.clear
  end

  def lost(mine, error)
    Gate.say({ event: "disconnected" }.merge(Gate.describe(error))) if mine == @connection
  end

  def close(_command)
    mine = @connection
    @connection = nil
    mine.close if mine&.open?
  end

  def reset(command)
    close(command)
    forget
  end

  def channel(command)
    number = command["channel"]
    made = @connection.create_channel
    made.on_error { |_, closed| Gate.say(event: "channel-closed", channel: number, code: closed.reply_code, text: closed.reply_text) }
    made.default_exchange.on_return { |*came| returned(*came) }
    @channels[number] = made
  end

  def confirm(command)
    channel = @channels[command["channel"]]
    published = @published[channel] = {}
    channel.confirm_select(lambda do |tag, _multiple, nack|
      Gate.say(event: "confirmed", publish: published[tag], ack: !nack) if published.key?(tag)
    end)
  end

  def declare(command)
    options = { durable: false, exclusive: false, auto_delete: false }
    options.each_key { |name| options[name] = command[name.to_s] if command.key?(name.to_s) }
    { queue: @channels[command["channel"]].queue(command["queue"], options.merge(arguments: command["arguments"] || {})).name }
  end

  def exchange(command)
    @channels[command["channel"]].exchange(command["exchange"], type: command["type"], auto_delete: command["auto_delete"] || false)
  end

  def bind(command)
    queue = @channels[command["channel"]].find_queue(command["queue"])
    queue.bind(command["exchange"], routing_key: command["routing_key"])
  end

  def publish(command)
    channel = @channels[command["channel"]]
    first = command["publish"] || 0
    options = { persistent: false, mandatory: command["mandatory"], headers: command["headers"], message_id: command["message_id"] }.compact
    (first...first + (command["count"] || 1)).each do |number|
      data = command["data"] + (command.key?("count") ? "-#{number}" : "")
      confirming = @published[channel]
      confirming[channel.next_publish_seq_no] = number if confirming
      channel.basic_publish(data.encode("ISO-8859-1"), command["exchange"] || "", command["routing_key"], options)
    end
  end

  def consume(command)
    channel = @channels[command["channel"]]
    name = command["subscription"]
    consumer = Bunny::Consumer.new(channel, command["queue"], channel.generate_consumer_tag, command["no_ack"] || false)
    consumer.on_delivery { |*came| Gate.say(event: "message", subscription: name, message: message(channel, *came)) }
    consumer.on_cancellation { |_| Gate.say(event: "ended", subscription: name, text: "cancelled by the server") }
    channel.basic_consume_with(consumer)
    @consumers[name] = consumer
  end

  def cancel(command)
    @consumers.delete(command["subscription"]).cancel
  end

  def get(command)
    channel = @channels[command["channel"]]
    came = channel.basic_get(command["queue"], manual_ack: !command["no_ack"])
    { message: came.first.nil? ? nil : message(channel, *came) }
  end

  def ack(command)
    channel, tag = @messages[command["ref"] - 1]
    channel.ack(tag, command["multiple"] || false)
  end

  def nack(command)
    channel, tag = @messages[command["ref"] - 1]
    channel.nack(tag, command["multiple"] || false, command.fetch("requeue", true))
  end

  def reject(command)
    channel, tag = @messages[command["ref"] - 1]
    channel.reject(tag, command.fetch("requeue", true))
  end

  def qos(command)
    @channels[command["channel"]].basic_qos(command["prefetch_count"], command["global"] || false)
  end

  def tx_select(command)
    @channels[command["channel"]].tx_select
  end

  def tx_commit(command)
    @channels[command["channel"]].tx_commit
  end

  def tx_rollback(command)
    @channels[command["channel"]].tx_rollback
  end

  private

  def message(channel, delivery, properties, body)
    ref = @keeping.synchronize { @messages.push([channel, delivery.delivery_tag]).length }
    headers = (properties[:headers] || {}).to_h { |name, value| [name, [value.to_s]] }
    {
      ref: ref, data: Gate.text(body), headers: headers, exchange: delivery.exchange, routing_key: delivery.routing_key,
      delivery_tag: delivery.delivery_tag.to_i, redelivered: delivery.redelivered
    }
  end

  def returned(came, _properties, body)
    Gate.say(event: "returned", code: came.reply_code, text: came.reply_text, routing_key: came.routing_key, data: Gate.text(body))
  end
end

Gate.serve("amqp", "bunny", Bunny::VERSION, FEATURES, Adapter.new)
