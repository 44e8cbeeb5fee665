package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// underTest as the first argument makes this test binary behave as serve.
const underTest = "serve-under-test"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == underTest {
		os.Exit(logged(os.Args[2:]))
	}
	os.Exit(withCache(m.Run))
}

// withCache runs tests whose servers keep measurements in a folder of their own.
func withCache(run func() int) int {
	dir, err := os.MkdirTemp("", "heft-test")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"XDG_CACHE_HOME", "LocalAppData"} { // of Linux, of Windows
		os.Setenv(name, dir)
	}
	return run()
}

// A process is a server in a process of its own.
type process struct {
	*exec.Cmd
	url string
	log *bytes.Buffer // complete once done is closed
	end chan error
}

var address = regexp.MustCompile(`at=(http://\S+)`)

// start runs serve and waits until it says where it listens.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return startBy(t, nil, args...)
}

// longest is how long a process may run.
var longest = 8 * time.Minute

// startBy is start by a command that runs the one behind it.
func startBy(t testing.TB, by []string, args ...string) *process {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	t.Cleanup(cancel)
	p := &process{log: new(bytes.Buffer), end: make(chan error, 1)}
	command := slices.Concat(by, []string{executable, underTest, "--port", "0"}, args)
	p.Cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			fmt.Fprintln(p.log, s.Text())
			if m := address.FindStringSubmatch(s.Text()); m != nil {
				found <- m[1]
			}
		}
		close(found)
		p.end <- p.Wait()
	}()
	p.url = <-found
	if p.url == "" {
		t.Fatalf("serve %v ended: %v\n%s", args, <-p.end, p.log)
	}
	return p
}

// request sends a request and returns the status and the body of the answer.
func (p *process) request(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// stream begins a streamed completion of n tokens and returns once the first chunk is here.
func (p *process) stream(t *testing.T, n int) *bufio.Reader {
	t.Helper()
	body := fmt.Sprintf(`{"prompt":[5,6,7],"max_tokens":%d,"ignore_eos":true,"stream":true}`, n)
	answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	r := bufio.NewReader(answer.Body)
	if line, err := r.ReadString('\n'); err != nil || answer.StatusCode != 200 {
		t.Fatalf("status %d, first line %q, %v", answer.StatusCode, line, err)
	}
	return r
}

func TestSIGTERMDrains(t *testing.T) {
	p := start(t, "--max-model-len", "2000")
	running := p.stream(t, 1500)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(running)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the running request did not end well: %v, …%.200s", err, rest[max(0, len(rest)-200):])
	}
	if err := <-p.end; err != nil {
		t.Errorf("serve ended with %v\n%s", err, p.log)
	}
	if _, err := http.Get(p.url + "/health"); err == nil {
		t.Error("the port still answers")
	}
}

func TestShutdownTimeoutCutsRequestsOff(t *testing.T) {
	p := start(t, "--shutdown-timeout", "1ms")
	running := p.stream(t, 1500)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(running); strings.Count(string(rest), "data: ") > 1500 {
		t.Error("the request was not cut off")
	}
	<-p.end
	if !strings.Contains(p.log.String(), "ended before they were complete") {
		t.Errorf("the log does not say that requests were ended:\n%s", p.log)
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	p := start(t, "--shutdown-timeout", "1h")
	p.stream(t, 1900)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(waitLine(p), "draining") {
		time.Sleep(time.Millisecond)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil && err != os.ErrProcessDone {
		t.Fatal(err)
	}
	select {
	case <-p.end:
	case <-time.After(time.Minute):
		t.Fatal("serve still runs")
	}
}

// waitLine asks whether draining began: new requests are refused from then on.
func waitLine(p *process) string {
	answer, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":[5],"max_tokens":1}`))
	if err != nil {
		return "draining: " + err.Error()
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusServiceUnavailable {
		return "draining: " + string(b)
	}
	return string(b)
}

// TestTheLogOfBenchHadAnotherFormat: its warnings were lines of package log, those of other commands are not.
func TestTheLogOfBenchHadAnotherFormat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), os.Args[0], underTest, "bench", "--decode-tokens", "1", "--prompt-tokens", "4", "--no-probe")
	var stderr strings.Builder
	c.Env, c.Stderr = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(file, "below"), "HEFT_CACHE_DIR="+filepath.Join(file, "below")), &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	for line := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("got the line %q", line)
		}
	}
	if !strings.Contains(stderr.String(), "level=WARN") {
		t.Errorf("got %q, want a warning", &stderr)
	}
}
