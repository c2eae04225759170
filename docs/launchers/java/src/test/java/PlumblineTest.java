import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Starts Plumbline for a test in Java: a broker, with or without a defect, or a proxy that injects faults. */
class PlumblineTest {
    /** A running plumbline: the URL at the beginning of its first line. It is stopped when this is closed. */
    record Plumbline(Process process, String url) implements AutoCloseable {
        static Plumbline start(String... arguments) throws IOException {
            List<String> command = new ArrayList<>(List.of(arguments));
            command.add(0, System.getenv().getOrDefault("PLUMBLINE", "plumbline"));
            Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            String line = process.inputReader().readLine();
            if (line == null) {
                throw new IOException(String.join(" ", command) + " did not start");
            }
            return new Plumbline(process, line.split(" ")[0]);
        }

        @Override
        public void close() {
            process.destroy(); // SIGTERM
            process.onExit().join();
        }
    }

    @Test
    void broker() throws IOException {
        try (Plumbline broker = Plumbline.start("broker", "nats", "-js", "-p", "-1")) {
            List<String> lines = ask(broker.url(), 2);
            assertTrue(lines.get(0).contains("\"proto\":1"), lines.get(0));
            assertEquals("PONG", lines.get(1));
        }
    }

    @Test
    void brokerWithDefect() throws IOException {
        try (Plumbline broker = Plumbline.start("broker", "nats", "-p", "-1", "--defect", "info-has-proto-0")) {
            assertTrue(ask(broker.url(), 2).get(0).contains("\"proto\":0"));
        }
    }

    @Test
    void proxyWithFault(@TempDir Path captures) throws IOException {
        String[] listen = {"--listen", "127.0.0.1:0", "-o", captures.toString(), "--fault", "duplicate PONG"};
        try (Plumbline broker = Plumbline.start("broker", "nats", "-p", "-1");
                Plumbline proxy = Plumbline.start(
                        "record", broker.url(), listen[0], listen[1], listen[2], listen[3], listen[4], listen[5])) {
            assertEquals(List.of("PONG", "PONG"), ask(proxy.url(), 3).subList(1, 3));
        }
    }

    /** This is where your client would be: sends a PING, and returns that many lines of the server. */
    private static List<String> ask(String server, int count) throws IOException {
        URI place = URI.create(server);
        List<String> lines = new ArrayList<>();
        try (Socket socket = new Socket(place.getHost(), place.getPort())) {
            socket.getOutputStream().write("CONNECT {\"verbose\":false}\r\nPING\r\n".getBytes(StandardCharsets.UTF_8));
            BufferedReader reader = new BufferedReader(new InputStreamReader(socket.getInputStream()));
            while (lines.size() < count) {
                lines.add(reader.readLine());
            }
        }
        return lines;
    }
}
