// An adapter for plumbline gate: replace what says "my library". For each command of the adapter protocol that the library
// supports, add a case of act() and its feature. say() writes events, too.

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

public final class Adapter {
  private static final String PROTOCOL = "PROTOCOL";
  private static final List<String> FEATURES = List.of();
  private static final Gson GSON = new Gson();
  private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

  private static synchronized void say(Map<String, Object> line) {
    OUT.println(GSON.toJson(line));
    OUT.flush();
  }

  /** The fields of "ok"; throws what the library throws. */
  private static Map<String, Object> act(JsonObject command) throws Exception {
    switch (command.get("do").getAsString()) {
      case "connect" -> {} // my library connects to command.get("url").getAsString()
      case "close" -> {}
      default -> throw new UnsupportedOperationException("unknown command");
    }
    return Map.of();
  }

  private static Map<String, Object> answer(JsonObject command) {
    int id = command.get("id").getAsInt();
    try {
      return Map.of("id", id, "ok", act(command));
    } catch (UnsupportedOperationException error) {
      return Map.of("id", id, "error", Map.of("text", error.getMessage(), "type", "unsupported"));
    } catch (Exception error) {
      Map<String, Object> report =
          Map.of("text", String.valueOf(error.getMessage()), "type", error.getClass().getSimpleName());
      return Map.of("id", id, "error", report);
    }
  }

  public static void main(String[] arguments) throws IOException {
    say(
        Map.of(
            "hello", "plumbline.adapter/1", "protocol", PROTOCOL, "library", "my library", "version", "0",
            "language", "java " + System.getProperty("java.version"), "features", FEATURES));
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      say(answer(GSON.fromJson(line, JsonObject.class)));
    }
    System.exit(0);
  }
}
