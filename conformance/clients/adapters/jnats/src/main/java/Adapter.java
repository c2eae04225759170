// An adapter of jnats, the library of NATS for Java: see PROTOCOL.md for what it reads and writes.

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.nats.client.Connection;
import io.nats.client.ConnectionListener;
import io.nats.client.ConsumeOptions;
import io.nats.client.ConsumerContext;
import io.nats.client.Dispatcher;
import io.nats.client.ErrorListener;
import io.nats.client.JetStreamApiException;
import io.nats.client.JetStreamOptions;
import io.nats.client.JetStreamStatusException;
import io.nats.client.JetStreamSubscription;
import io.nats.client.Message;
import io.nats.client.MessageConsumer;
import io.nats.client.MessageHandler;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PublishOptions;
import io.nats.client.PullRequestOptions;
import io.nats.client.PullSubscribeOptions;
import io.nats.client.PushSubscribeOptions;
import io.nats.client.Subscription;
import io.nats.client.api.PublishAck;
import io.nats.client.impl.Headers;
import io.nats.client.impl.NatsMessage;
import io.nats.client.support.Status;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeoutException;

public final class Adapter {
  private static final String FEATURES =
      "reset publish publish.flush request subscribe unsubscribe.after js.publish fetch fetch.no_wait fetch.heartbeat consume push "
          + "ack ack.nak ack.nak.delay ack.progress ack.term ack.sync "
          + "reconnect reconnect.buffer ping lame-duck drain";
  private static final long LEAST_EXPIRES_MS = 1000; // jnats refuses less
  private static final Duration CONNECT_TIMEOUT = Duration.ofSeconds(8); // for a busy machine
  private static final Duration DRAIN_TIMEOUT = Duration.ofSeconds(5);
  private static final JetStreamOptions API = JetStreamOptions.builder().requestTimeout(Duration.ofSeconds(4)).build();
  private static final Gson GSON = new Gson();
  private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

  private Connection connection;
  private Reports reports;
  private Dispatcher dispatcher;
  private final List<Message> messages = new ArrayList<>();
  private final Map<String, Subscription> subscriptions = new HashMap<>();
  private final Map<String, JetStreamSubscription> pulls = new HashMap<>();
  private final Map<String, MessageConsumer> consuming = new HashMap<>();
  private final Map<String, ConsumerContext> consumers = new HashMap<>();

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

  private static Map<String, Object> trouble(Throwable error) {
    Integer code = null;
    if (error instanceof JetStreamApiException refused) code = refused.getApiErrorCode();
    if (error instanceof JetStreamStatusException ended) code = ended.getStatus().getCode();
    return line("text", String.valueOf(error.getMessage()), "type", error.getClass().getSimpleName(), "code", code);
  }

  private synchronized Map<String, Object> handed(Message message) {
    messages.add(message);
    Map<String, List<String>> headers = new LinkedHashMap<>();
    if (message.hasHeaders()) message.getHeaders().forEach(headers::put);
    String reply = message.getReplyTo() == null ? "" : message.getReplyTo();
    String data = new String(message.getData(), StandardCharsets.ISO_8859_1);
    int ref = messages.size();
    return line("ref", ref, "subject", message.getSubject(), "reply", reply, "data", data, "headers", headers);
  }

  private synchronized Message of(JsonObject asked) {
    return messages.get(asked.get("ref").getAsInt() - 1);
  }

  private MessageHandler into(String name) {
    return message -> say(line("event", "message", "subscription", name, "message", handed(message)));
  }

  private static String text(JsonObject asked, String name) {
    return asked.has(name) ? asked.get(name).getAsString() : "";
  }

  private static long number(JsonObject asked, String name, long otherwise) {
    return asked.has(name) ? asked.get(name).getAsLong() : otherwise;
  }

  private static Message message(JsonObject asked) {
    NatsMessage.Builder made = NatsMessage.builder().subject(text(asked, "subject"));
    made.data(text(asked, "data").getBytes(StandardCharsets.ISO_8859_1));
    if (asked.has("reply")) made.replyTo(text(asked, "reply"));
    if (asked.has("headers")) {
      Headers headers = new Headers();
      for (Map.Entry<String, JsonElement> given : asked.getAsJsonObject("headers").entrySet()) {
        if (given.getValue().isJsonArray()) {
          given.getValue().getAsJsonArray().forEach(value -> headers.add(given.getKey(), value.getAsString()));
        } else {
          headers.add(given.getKey(), given.getValue().getAsString());
        }
      }
      made.headers(headers);
    }
    return made.build();
  }

  /** What one connection reports, until a reset. */
  private static final class Reports implements ErrorListener, ConnectionListener {
    private volatile boolean ended;

    private void report(Object... pairs) {
      if (!ended) say(line(pairs));
    }

    private void tell(String text, String type) {
      report("event", "error", "text", text, "type", type);
    }

    @Override
    public void connectionEvent(Connection connection, Events event) {
      switch (event) {
        case DISCONNECTED -> report("event", "disconnected");
        case RECONNECTED -> report("event", "reconnected");
        case CLOSED -> report("event", "closed");
        case LAME_DUCK -> report("event", "lame-duck");
        default -> {} // of servers
      }
    }

    @Override
    public void errorOccurred(Connection connection, String error) {
      tell(error, "error");
    }

    @Override
    public void exceptionOccurred(Connection connection, Exception error) {
      tell(String.valueOf(error.getMessage()), error.getClass().getSimpleName());
    }

    @Override
    public void heartbeatAlarm(Connection connection, JetStreamSubscription of, long stream, long consumer) {
      tell("no heartbeat", "heartbeatAlarm");
    }

    @Override
    public void unhandledStatus(Connection connection, JetStreamSubscription of, Status status) {
      tell(status.getMessageWithCode(), "unhandledStatus");
    }

    @Override
    public void pullStatusWarning(Connection connection, JetStreamSubscription of, Status status) {
      tell(status.getMessageWithCode(), "pullStatusWarning");
    }

    @Override
    public void pullStatusError(Connection connection, JetStreamSubscription of, Status status) {
      tell(status.getMessageWithCode(), "pullStatusError");
    }
  }

  private void connect(JsonObject asked) throws IOException, InterruptedException {
    Options.Builder options = new Options.Builder().server(text(asked, "url"));
    reports = new Reports();
    options.errorListener(reports).connectionListener(reports).connectionTimeout(CONNECT_TIMEOUT);
    if (!asked.has("reconnect") || !asked.get("reconnect").getAsBoolean()) {
      options.noReconnect();
    } else {
      Duration wait = Duration.ofMillis(number(asked, "reconnect_wait_ms", 100));
      options.maxReconnects(-1).reconnectWait(wait).reconnectJitter(wait);
    }
    if (asked.has("buffer_bytes")) options.reconnectBufferSize(asked.get("buffer_bytes").getAsLong());
    if (asked.has("ping_ms")) {
      options.pingInterval(Duration.ofMillis(asked.get("ping_ms").getAsLong()));
      options.maxPingsOut(asked.get("pings_out").getAsInt());
    }
    connection = Nats.connect(options.build());
    dispatcher = connection.createDispatcher();
    consumers.clear();
    pulls.clear();
  }

  private synchronized void reset() throws InterruptedException {
    if (reports != null) reports.ended = true;
    if (connection != null) connection.close();
    connection = null;
    messages.clear();
    subscriptions.clear();
    pulls.clear();
    consuming.clear();
    consumers.clear();
  }

  private ConsumerContext consumer(JsonObject asked) throws Exception {
    String key = text(asked, "stream") + " " + text(asked, "consumer");
    if (!consumers.containsKey(key)) {
      consumers.put(key, connection.getConsumerContext(text(asked, "stream"), text(asked, "consumer"), API));
    }
    return consumers.get(key);
  }

  private JetStreamSubscription pull(JsonObject asked) throws Exception {
    String key = text(asked, "stream") + " " + text(asked, "consumer");
    if (!pulls.containsKey(key)) {
      PullSubscribeOptions bound = PullSubscribeOptions.bind(text(asked, "stream"), text(asked, "consumer"));
      pulls.put(key, connection.jetStream(API).subscribe(null, bound));
    }
    return pulls.get(key);
  }

  /**
   * By the subscription's own fetch. FetchConsumer, the newer way, counts a message as received before it can be read:
   * who asks for it in between hears that the fetch is over (NatsFetchConsumer, PullMessageManager of jnats 2.26.2).
   */
  private Map<String, Object> fetch(JsonObject asked) throws Exception {
    JetStreamSubscription pull = pull(asked);
    int batch = asked.get("batch").getAsInt();
    Duration expires = Duration.ofMillis(number(asked, "expires_ms", 1000));
    List<Object> found = new ArrayList<>();
    try {
      if (!asked.has("no_wait") && !asked.has("heartbeat_ms")) {
        pull.fetch(batch, expires).forEach(message -> found.add(handed(message)));
        return line("ok", line("messages", found));
      }
      PullRequestOptions.Builder options = asked.has("no_wait")
          ? PullRequestOptions.noWait(batch)
          : PullRequestOptions.builder(batch).expiresIn(expires);
      if (asked.has("heartbeat_ms")) options.idleHeartbeat(asked.get("heartbeat_ms").getAsLong());
      pull.pull(options.build());
      while (found.size() < batch) {
        Message next = pull.nextMessage(expires);
        if (next == null) break;
        found.add(handed(next));
      }
    } catch (JetStreamStatusException error) {
      return line("ok", line("messages", found), "error", trouble(error));
    }
    return line("ok", line("messages", found));
  }

  private void consume(JsonObject asked) throws Exception {
    String name = text(asked, "subscription");
    ConsumeOptions.Builder options = ConsumeOptions.builder();
    if (asked.has("batch")) options.batchSize(asked.get("batch").getAsInt());
    long expires = number(asked, "expires_ms", 30_000);
    // jnats takes no interval of heartbeats: it asks for one of half of expires
    expires = Math.min(expires, 2 * number(asked, "heartbeat_ms", expires));
    options.expiresIn(Math.max(expires, LEAST_EXPIRES_MS));
    consuming.put(name, consumer(asked).consume(options.build(), into(name)));
  }

  private void acknowledge(Message message, JsonObject asked) {
    switch (text(asked, "kind")) {
      case "nak" -> {
        if (asked.has("delay_ms")) message.nakWithDelay(asked.get("delay_ms").getAsLong());
        else message.nak();
      }
      case "progress" -> message.inProgress();
      case "term" -> message.term();
      default -> message.ack();
    }
  }

  private Map<String, Object> act(JsonObject asked) throws Exception {
    String name = text(asked, "subscription");
    Duration timeout = Duration.ofMillis(number(asked, "timeout_ms", 1000));
    switch (text(asked, "do")) {
      case "connect" -> connect(asked);
      case "flush" -> connection.flush(timeout);
      case "drain" -> connection.drain(DRAIN_TIMEOUT).get();
      case "close" -> connection.close();
      case "reset" -> reset();
      case "publish" -> {
        connection.publish(message(asked));
        if (asked.has("flush")) connection.flush(timeout);
      }
      case "request" -> {
        Message reply = connection.request(message(asked), timeout);
        if (reply == null) throw new TimeoutException("request() gave null");
        return line("ok", line("message", handed(reply)));
      }
      case "subscribe" -> {
        boolean grouped = asked.has("queue") && !text(asked, "queue").isEmpty();
        subscriptions.put(
            name,
            grouped
                ? dispatcher.subscribe(text(asked, "subject"), text(asked, "queue"), into(name))
                : dispatcher.subscribe(text(asked, "subject"), into(name)));
      }
      case "unsubscribe" -> {
        if (asked.has("after")) dispatcher.unsubscribe(subscriptions.get(name), asked.get("after").getAsInt());
        else dispatcher.unsubscribe(subscriptions.get(name));
      }
      case "js.publish" -> {
        JetStreamOptions waits = JetStreamOptions.builder().requestTimeout(timeout).build();
        PublishOptions.Builder options = PublishOptions.builder();
        if (asked.has("msg_id")) options.messageId(text(asked, "msg_id"));
        PublishAck acknowledged = connection.jetStream(waits).publish(message(asked), options.build());
        boolean duplicate = acknowledged.isDuplicate();
        return line("ok", line("stream", acknowledged.getStream(), "seq", acknowledged.getSeqno(), "duplicate", duplicate));
      }
      case "js.subscribe" -> {
        PushSubscribeOptions bound = PushSubscribeOptions.bind(text(asked, "stream"), text(asked, "consumer"));
        // the subject may be null for a consumer that exists: jnats would compare it with the consumer's filter
        subscriptions.put(name, connection.jetStream(API).subscribe(null, dispatcher, into(name), false, bound));
      }
      case "fetch" -> {
        return fetch(asked);
      }
      case "consume" -> consume(asked);
      case "stop" -> {
        MessageConsumer running = consuming.remove(name);
        if (running == null) dispatcher.unsubscribe(subscriptions.remove(name));
        else running.close();
      }
      case "ack" -> acknowledge(of(asked), asked);
      case "ack.sync" -> of(asked).ackSync(timeout);
      default -> throw new UnsupportedOperationException("unknown command");
    }
    return line("ok", line());
  }

  public static void main(String[] arguments) throws IOException {
    say(
        line(
            "hello", "plumbline.adapter/1", "protocol", "nats", "library", "jnats", "version", Nats.CLIENT_VERSION,
            "language", "java " + System.getProperty("java.version"), "features", FEATURES.split(" ")));
    Adapter adapter = new Adapter();
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String read = input.readLine(); read != null; read = input.readLine()) {
      JsonObject asked = GSON.fromJson(read, JsonObject.class);
      Map<String, Object> answer = line("id", asked.get("id").getAsInt());
      try {
        answer.putAll(adapter.act(asked));
      } catch (UnsupportedOperationException error) {
        answer.put("error", line("text", error.getMessage(), "type", "unsupported"));
      } catch (Exception error) {
        answer.put("error", trouble(error));
      }
      say(answer);
    }
    System.exit(0);
  }
}
