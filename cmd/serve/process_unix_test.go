//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAPipeAsConfigIsRefused: a config.json, tokenizer.json or generation_config.json that is a
// named pipe or a link to a device ends the start with an error that names it, instead of blocking or
// filling memory.
func TestAPipeAsConfigIsRefused(t *testing.T) {
	for _, name := range []string{"config.json", "tokenizer.json", "generation_config.json"} {
		dir := demoOnDisk(t)
		file := filepath.Join(dir, name)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
		status, _, stderr := invoke("--port", "0", "--model", dir)
		if status != 1 || !strings.Contains(stderr, name) || !strings.Contains(stderr, "not a regular file") {
			t.Errorf("%s: status %d: %s", name, status, stderr)
		}
	}
}

// TestPipesAsFilesOfTheServerBlockedIt: a named pipe as certificate, key file or folder made the start
// wait for a writer without a word.
func TestPipesAsFilesOfTheServerBlockedIt(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		"not a regular file": {"--tls-cert", pipe, "--tls-key", pipe},
		"keys: ":             {"--api-keys", pipe},
		"--lora-dir: ":       {"--lora-dir", pipe},
		"not a directory":    {"--models-dir", pipe},
	} {
		args := append([]string{"--port", "0", "--model", "../../loader/demo/model"}, flags...)
		status, _, stderr := invoke(args...)
		if status == 0 || !strings.Contains(stderr, want) || !strings.Contains(stderr, pipe) {
			t.Errorf("%q: status %d: %s", flags, status, stderr)
		}
	}
}

// TestPortThatIsTaken says what to do.
func TestPortThatIsTaken(t *testing.T) {
	p := start(t)
	defer func() { _ = p.Process.Kill(); <-p.end }()
	status, _, stderr := invoke("--port", p.url[len("http://127.0.0.1:"):])
	if status != 1 || !strings.Contains(stderr, "choose another --port") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// TestAQueueOfNoneRejects: --max-queue 0 rejects requests that find no free place. It was taken
// for the default.
func TestAQueueOfNoneRejects(t *testing.T) {
	p := start(t, "--max-batch", "1", "--max-queue", "0", "--max-model-len", "2000")
	defer func() { _ = p.Process.Kill(); <-p.end }()
	p.stream(t, 1900)
	answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5],"max_tokens":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q", answer.StatusCode, answer.Header.Get("Retry-After"))
	}
}

// startUnread runs serve, and reads its log up to the line that says where it listens.
func startUnread(t *testing.T) (cmd *exec.Cmd, stderr io.ReadCloser, url string) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, executable, underTest, "--port", "0")
	if stderr, err = cmd.StderrPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(stderr); url == "" && s.Scan(); {
		if m := address.FindStringSubmatch(s.Text()); m != nil {
			url = m[1]
		}
	}
	return cmd, stderr, url
}

// TestAClosedLogDoesNotEndTheServer: the program that reads the log ends, as with serve 2>&1 | head.
// The first line of the log after that ended the server, and with it all running requests.
func TestAClosedLogDoesNotEndTheServer(t *testing.T) {
	cmd, stderr, url := startUnread(t)
	stderr.Close()
	for range 3 { // each writes a line of the log
		answer, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5],"max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("status %d, want 200", answer.StatusCode)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want status 0", err)
	}
}

// TestALogThatIsNotReadDoesNotBlockTheServer: the program that reads the log stops, as with serve 2>&1 | sleep 1000.
// When the pipe was full, all requests stopped, and SIGTERM did not end the server.
func TestALogThatIsNotReadDoesNotBlockTheServer(t *testing.T) {
	cmd, _, url := startUnread(t)
	client := &http.Client{Timeout: time.Minute}
	path := url + "/missing/" + strings.Repeat("x", 1000)
	for range 2000 { // each writes more than 1 KiB: the pipe and the buffer are full
		answer, err := client.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want status 0", err)
	}
}

// TestAClosedTerminalDrains: SIGHUP of a terminal that closes cut all running requests off. Where it means to read
// files again it does not end the server.
func TestAClosedTerminalDrains(t *testing.T) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // also where nohup runs the test
	defer signal.Stop(hangups)
	defer signal.Reset(syscall.SIGPIPE)
	for _, reloads := range []bool{true, false} {
		if reloads {
			t.Setenv(notifySocket, "socket")
		} else {
			t.Setenv(notifySocket, "")
		}
		ctx, stop := (&runCmd{}).catchSignals(t.Context())
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-hangups
		if !reloads {
			<-ctx.Done()
		} else if ctx.Err() != nil {
			t.Error("SIGHUP ends a server that reads files again")
		}
		stop()
	}
}

// TestAnIPv6HostMayHaveBrackets: --host [::1] was an address with a missing port.
func TestAnIPv6HostMayHaveBrackets(t *testing.T) {
	for host, want := range map[string]string{"[::1]": "::1", "::": "::", "127.0.0.1": "127.0.0.1", "localhost": "localhost", "": ""} {
		c := runCmd{Host: host}
		if err := c.checkHost(); err != nil || c.Host != want {
			t.Errorf("--host %q: got %q, %v, want %q", host, c.Host, err, want)
		}
	}
}

// TestAHostWithAPortNamesTheFlag: --host localhost:8123 was a name that could not be looked up.
func TestAHostWithAPortNamesTheFlag(t *testing.T) {
	for host, want := range map[string]string{"localhost:8123": "use --host localhost --port 8123", ":8123": "use --host 0.0.0.0 --port 8123",
		"[::1]:8123": "use --host ::1 --port 8123", "http://localhost": "want an address or a name"} {
		if status, _, stderr := invoke("--host", host); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("--host %s: status %d: %s, want 2 with %q", host, status, stderr, want)
		}
	}
}
