// Starts Plumbline for a Go test: a broker, with or without a defect, or a proxy that injects faults.
package launcher

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// start runs plumbline until the test ends, and returns the URL at the beginning of its first line.
func start(t *testing.T, arguments ...string) string {
	t.Helper()
	program := os.Getenv("PLUMBLINE")
	if program == "" {
		program = "plumbline"
	}
	command := exec.Command(program, arguments...)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("plumbline %s did not start: %v", strings.Join(arguments, " "), err)
	}
	return strings.Fields(line)[0]
}

func TestBroker(t *testing.T) {
	lines := ask(t, start(t, "broker", "nats", "-js", "-p", "-1"), 2)
	expect(t, lines, `"proto":1`, "PONG")
}

func TestBrokerWithDefect(t *testing.T) {
	lines := ask(t, start(t, "broker", "nats", "-p", "-1", "--defect", "info-has-proto-0"), 2)
	expect(t, lines, `"proto":0`, "PONG")
}

func TestProxyWithFault(t *testing.T) {
	broker := start(t, "broker", "nats", "-p", "-1")
	proxy := start(t, "record", broker, "--listen", "127.0.0.1:0", "-o", t.TempDir(), "--fault", "duplicate PONG")
	expect(t, ask(t, proxy, 3), "INFO", "PONG", "PONG")
}

// ask is where your client would be: it sends a PING, and returns that many lines of the server.
func ask(t *testing.T, server string, count int) []string {
	t.Helper()
	place, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", place.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprint(connection, "CONNECT {\"verbose\":false}\r\nPING\r\n")
	lines := bufio.NewScanner(connection)
	lines.Buffer(nil, 1<<20)
	var found []string
	for len(found) < count && lines.Scan() {
		found = append(found, lines.Text())
	}
	return found
}

func expect(t *testing.T, lines []string, parts ...string) {
	t.Helper()
	if len(lines) != len(parts) {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for number, part := range parts {
		if !strings.Contains(lines[number], part) {
			t.Errorf("line %d has no %s: %s", number, part, lines[number])
		}
	}
}
