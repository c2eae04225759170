# frozen_string_literal: true

# What adapters in Ruby share: the adapter protocol on stdin and stdout (PROTOCOL.md). It knows no library.

require "json"

# Writes lines, and answers commands by an object with a method for each: tx_commit for tx.commit.
module Gate
  WRITING = Mutex.new # callbacks of libraries come from threads

  module_function

  def say(line)
    WRITING.synchronize do
      $stdout.write(JSON.generate(line) + "\n")
      $stdout.flush
    end
  end

  # One character for each byte, and back.
  def text(bytes)
    bytes.to_s.dup.force_encoding("ISO-8859-1").encode("UTF-8")
  end

  def describe(error)
    code = error.respond_to?(:channel_close) && error.channel_close.respond_to?(:reply_code) ? { code: error.channel_close.reply_code } : {}
    { text: error.message, type: error.class.name }.merge(code)
  end

  def answer(actions, command)
    name = command["do"].tr(".", "_")
    return { error: { text: "unknown command", type: "unsupported" } } unless actions.respond_to?(name)

    answered = actions.public_send(name, command)
    { ok: answered.is_a?(Hash) ? answered : {} }
  rescue StandardError => e
    { error: describe(e) }
  end

  # Says hello, then answers each command until stdin ends.
  def serve(protocol, library, version, features, actions)
    language = "ruby #{RUBY_VERSION}"
    say(hello: "plumbline.adapter/1", protocol: protocol, library: library, version: version, language: language, features: features)
    $stdin.each_line do |line|
      command = JSON.parse(line)
      say({ id: command["id"] }.merge(answer(actions, command)))
    end
  end
end
