# frozen_string_literal: true

# An adapter for plumbline gate: replace what says "my library". For each command of the adapter protocol that the library
# supports, add an action and its feature. say(event: ...) writes an event.

require "json"

PROTOCOL = "PROTOCOL"
FEATURES = [].freeze
WRITING = Mutex.new

def say(line)
  WRITING.synchronize do
    $stdout.write(JSON.generate(line) + "\n")
    $stdout.flush
  end
end

# Each returns the fields of "ok", or raises what the library raises.
ACTIONS = {
  "connect" => ->(command) {}, # my library connects to command["url"]
  "close" => ->(command) {}
}.freeze

def answer(command)
  action = ACTIONS[command["do"]]
  return { error: { text: "unknown command", type: "unsupported" } } if action.nil?

  { ok: action.call(command) || {} }
rescue StandardError => e
  { error: { text: e.message, type: e.class.name } }
end

say(hello: "plumbline.adapter/1", protocol: PROTOCOL, library: "my library", version: "0",
    language: "ruby #{RUBY_VERSION}", features: FEATURES)
$stdin.each_line do |line|
  command = JSON.parse(line)
  say({ id: command["id"] }.merge(answer(command)))
end
