// An adapter of amqp-client, RabbitMQ's library for Java: see PROTOCOL.md for what it reads and writes.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.CancelCallback;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DeliverCallback;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.Method;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import com.rabbitmq.client.impl.AMQConnection;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

public final class Adapter {
  private static final String FEATURES =
      "reset declare publish publish.mandatory publish.message_id confirm consume get ack ack.multiple nack reject qos "
          + "tx bind blocked reconnect reconnect.topology";
  private static final int CONFIRMED_WITHIN_MS = 4000;
  private static final int RECONNECT_MS = 200;
  private static final int RESET_WITHIN_MS = 1000;
  private static final Gson GSON = new Gson();
  private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

  private record Delivery(Channel channel, long tag) {}

  private record Consumer(Channel channel, String tag) {}

  private Connection connection;
  private final Map<Integer, Channel> channels = new ConcurrentHashMap<>();
  private final Set<Channel> confirming = new HashSet<>();
  private final Map<String, Consumer> consumers = new ConcurrentHashMap<>();
  private final List<Delivery> deliveries = new ArrayList<>();

  private static Map<String, Object> line(Object... pairs) {
    Map<String, Object> made = new LinkedHashMap<>();
    for (int i = 0; i < pairs.length; i += 2) {
      if (pairs[i + 1] != null) made.put((String) pairs[i], pairs[i + 1]);
    }
    return made;
  }

  private static synchronized void say(Map<String, Object> line) {
    OUT.println(GSON.toJson(line));
    OUT.flush();
  }

  /** The code and the text that the server gave, if it was the server. */
  private static Map<String, Object> trouble(Throwable error) {
    Throwable at = error;
    while (!(at instanceof ShutdownSignalException) && at.getCause() != null) at = at.getCause();
    String type = error.getClass().getSimpleName();
    if (at instanceof ShutdownSignalException ended) {
      Method reason = ended.getReason();
      if (reason instanceof AMQP.Channel.Close close) {
        return line("code", close.getReplyCode(), "text", close.getReplyText(), "type", type);
      }
      if (reason instanceof AMQP.Connection.Close close) {
        return line("code", close.getReplyCode(), "text", close.getReplyText(), "type", type);
      }
    }
    return line("text", String.valueOf(error.getMessage()), "type", type);
  }

  private static Map<String, Object> with(Map<String, Object> first, Map<String, Object> more) {
    Map<String, Object> made = new LinkedHashMap<>(first);
    made.putAll(more);
    return made;
  }

  private synchronized Map<String, Object> message(
      Channel channel, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
    deliveries.add(new Delivery(channel, envelope.getDeliveryTag()));
    Map<String, List<String>> headers = new LinkedHashMap<>();
    if (properties.getHeaders() != null) {
      properties.getHeaders().forEach((name, value) -> headers.put(name, List.of(String.valueOf(value))));
    }
    return line(
        "ref", deliveries.size(), "data", new String(body, StandardCharsets.ISO_8859_1), "headers", headers,
        "exchange", envelope.getExchange(), "routing_key", envelope.getRoutingKey(),
        "delivery_tag", envelope.getDeliveryTag(), "redelivered", envelope.isRedeliver());
  }

  private static boolean flag(JsonObject asked, String name, boolean otherwise) {
    return asked.has(name) ? asked.get(name).getAsBoolean() : otherwise;
  }

  private static String text(JsonObject asked, String name) {
    return asked.has(name) ? asked.get(name).getAsString() : "";
  }

  private Channel channel(JsonObject asked) throws IOException {
    Channel found = channels.get(asked.get("channel").getAsInt());
    if (found == null) throw new IOException("no such channel");
    return found;
  }

  private void connect(JsonObject asked) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setUri(asked.get("url").getAsString());
    boolean reconnect = flag(asked, "reconnect", false);
    factory.setAutomaticRecoveryEnabled(reconnect);
    factory.setNetworkRecoveryInterval(RECONNECT_MS);
    Connection mine = factory.newConnection();
    connection = mine;
    channels.clear();
    mine.addShutdownListener(
        error -> {
          if (!error.isInitiatedByApplication()) say(with(line("event", "disconnected"), trouble(error)));
        });
    mine.addBlockedListener(
        reason -> say(line("event", "blocked", "text", reason)), () -> say(line("event", "unblocked")));
    if (reconnect) {
      ((Recoverable) mine).addRecoveryListener(
          new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recoverable) {
              say(line("event", "reconnected"));
            }

            @Override
            public void handleRecoveryStarted(Recoverable recoverable) {}
          });
    }
  }

  private synchronized void reset() {
    if (connection != null) connection.abort(RESET_WITHIN_MS);
    channels.clear();
    confirming.clear();
    consumers.clear();
    deliveries.clear();
  }

  private void open(int number) throws IOException {
    Channel made = connection.createChannel();
    channels.put(number, made);
    made.addShutdownListener(
        error -> {
          if (!error.isInitiatedByApplication() && !error.isHardError()) {
            say(with(line("event", "channel-closed", "channel", number), trouble(error)));
          }
        });
    made.addReturnListener(
        came ->
            say(
                line(
                    "event", "returned", "code", came.getReplyCode(), "text", came.getReplyText(), "routing_key",
                    came.getRoutingKey(), "data", new String(came.getBody(), StandardCharsets.ISO_8859_1))));
  }

  private void publish(JsonObject asked) throws Exception {
    Channel channel = channel(asked);
    AMQP.BasicProperties.Builder properties = new AMQP.BasicProperties.Builder();
    if (asked.has("message_id")) properties.messageId(text(asked, "message_id"));
    byte[] body = text(asked, "data").getBytes(StandardCharsets.ISO_8859_1);
    boolean mandatory = flag(asked, "mandatory", false);
    channel.basicPublish(text(asked, "exchange"), text(asked, "routing_key"), mandatory, properties.build(), body);
    if (!confirming.contains(channel)) return;
    boolean ack = false;
    try {
      ack = channel.waitForConfirms(CONFIRMED_WITHIN_MS);
    } finally {
      say(line("event", "confirmed", "publish", asked.get("publish").getAsInt(), "ack", ack));
    }
  }

  private void consume(JsonObject asked) throws IOException {
    Channel channel = channel(asked);
    String subscription = text(asked, "subscription");
    DeliverCallback delivered =
        (tag, came) ->
            say(
                line(
                    "event", "message", "subscription", subscription, "message",
                    message(channel, came.getEnvelope(), came.getProperties(), came.getBody())));
    CancelCallback cancelled =
        tag -> say(line("event", "ended", "subscription", subscription, "text", "cancelled by the server"));
    String tag = channel.basicConsume(text(asked, "queue"), flag(asked, "no_ack", false), delivered, cancelled);
    consumers.put(subscription, new Consumer(channel, tag));
  }

  @SuppressWarnings("unchecked")
  private Map<String, Object> act(JsonObject asked) throws Exception {
    switch (text(asked, "do")) {
      case "connect" -> connect(asked);
      case "close" -> connection.close();
      case "reset" -> reset();
      case "channel" -> open(asked.get("channel").getAsInt());
      case "declare" -> {
        Map<String, Object> arguments = new LinkedHashMap<>();
        if (asked.has("arguments")) arguments = GSON.fromJson(asked.get("arguments"), Map.class);
        boolean exclusive = flag(asked, "exclusive", false);
        AMQP.Queue.DeclareOk declared =
            channel(asked).queueDeclare(
                text(asked, "queue"), flag(asked, "durable", false), exclusive, flag(asked, "auto_delete", false),
                arguments);
        return line("queue", declared.getQueue());
      }
      case "exchange" -> {
        boolean autoDelete = flag(asked, "auto_delete", false);
        channel(asked).exchangeDeclare(text(asked, "exchange"), text(asked, "type"), false, autoDelete, null);
      }
      case "bind" ->
          channel(asked).queueBind(text(asked, "queue"), text(asked, "exchange"), text(asked, "routing_key"));
      case "confirm" -> {
        channel(asked).confirmSelect();
        confirming.add(channel(asked));
      }
      case "publish" -> publish(asked);
      case "consume" -> consume(asked);
      case "cancel" -> {
        Consumer consumer = consumers.remove(text(asked, "subscription"));
        consumer.channel().basicCancel(consumer.tag());
      }
      case "get" -> {
        Channel channel = channel(asked);
        var got = channel.basicGet(text(asked, "queue"), flag(asked, "no_ack", false));
        if (got != null) return line("message", message(channel, got.getEnvelope(), got.getProps(), got.getBody()));
      }
      case "ack", "nack", "reject" -> {
        Delivery delivery = deliveries.get(asked.get("ref").getAsInt() - 1);
        boolean multiple = flag(asked, "multiple", false);
        boolean requeue = flag(asked, "requeue", true);
        switch (text(asked, "do")) {
          case "ack" -> delivery.channel().basicAck(delivery.tag(), multiple);
          case "nack" -> delivery.channel().basicNack(delivery.tag(), multiple, requeue);
          default -> delivery.channel().basicReject(delivery.tag(), requeue);
        }
      }
      case "qos" -> channel(asked).basicQos(asked.get("prefetch_count").getAsInt(), flag(asked, "global", false));
      case "tx.select" -> channel(asked).txSelect();
      case "tx.commit" -> channel(asked).txCommit();
      case "tx.rollback" -> channel(asked).txRollback();
      default -> throw new UnsupportedOperationException("unknown command");
    }
    return line();
  }

  public static void main(String[] arguments) throws IOException {
    say(
        line(
            "hello", "plumbline.adapter/1", "protocol", "amqp", "library", "amqp-client", "version",
            AMQConnection.defaultClientProperties().get("version").toString(), "language",
            "java " + System.getProperty("java.version"), "features", FEATURES.split(" ")));
    Adapter adapter = new Adapter();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String read = input.readLine(); read != null; read = input.readLine()) {
      JsonObject asked = GSON.fromJson(read, JsonObject.class);
      int id = asked.get("id").getAsInt();
      try {
        say(line("id", id, "ok", adapter.act(asked)));
      } catch (UnsupportedOperationException error) {
        say(line("id", id, "error", line("text", error.getMessage(), "type", "unsupported")));
      } catch (Exception error) {
        say(line("id", id, "error", trouble(error)));
      }
    }
    System.exit(0);
  }
}
