package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pipeInto runs serve with args in a process of its own, and returns its output and status.
func pipeInto(t *testing.T, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	c := exec.CommandContext(t.Context(), executable(t), append([]string{underTest}, args...)...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	err := c.Run()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// TestChatAnswersAPipe: with a model in the process, and with a server, whose answers are the same.
func TestChatAnswersAPipe(t *testing.T) {
	input := "/set temperature 0\n/set max_tokens 20\nWhat is\na token?\n/stats\n/retry\n/exit\nnever"
	alone, notes, status := pipeInto(t, input, "chat", "--threads", "1")
	lines := strings.Split(strings.TrimSpace(alone), "\n")
	if status != 0 || len(lines) != 2 || lines[0] != lines[1] || len(lines[0]) < 10 || !strings.Contains(notes, "tokens/s") {
		t.Fatalf("status %d, %q, %q", status, alone, notes)
	}
	p := start(t, "--threads", "1", "--api-key", "secret")
	for url, key := range map[string]string{p.url: "secret", p.url + "/v1": "secret", strings.TrimPrefix(p.url, "http://"): "secret"} {
		if served, notes, status := pipeInto(t, input, "chat", "--url", url, "--api-key", key); status != 0 || served != alone {
			t.Errorf("%s: status %d, %q, want %q: %s", url, status, served, alone, notes)
		}
	}
	if served, notes, status := pipeInto(t, input, "chat", p.url, "--api-key", "secret"); status != 0 || served != alone {
		t.Errorf("an address in place of a model: status %d, %q, want %q: %s", status, served, alone, notes)
	}
	if _, notes, status := pipeInto(t, "Hello", "chat", "--url", p.url); status != 1 || !strings.Contains(notes, "API key") {
		t.Errorf("without a key: status %d, %q", status, notes)
	}
	if _, notes, status := pipeInto(t, "Hello", "chat", "other", "--url", p.url, "--api-key", "secret"); status != 2 || !strings.Contains(notes, `no model "other", it has heft-demo`) {
		t.Errorf("with a wrong model: status %d, %q", status, notes)
	}
}

// TestPsShowsModelsAndRequests of a running server, as a table and as JSON.
func TestPsShowsModelsAndRequests(t *testing.T) {
	p := start(t, "--threads", "1", "--device-map", "model.layers.1=disk")
	table, notes, status := pipeInto(t, "", "ps", "--url", p.url, "--interval", "10ms")
	if status != 0 || !strings.Contains(table, "heft-demo") || !strings.Contains(table, "0 running") || !strings.Contains(table, "disk ") {
		t.Errorf("status %d, %q, %s", status, table, notes)
	}
	text, notes, status := pipeInto(t, "", "ps", "--json", "--url", p.url, "--interval", "10ms")
	var got struct{ Models []psModel }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 0 || len(got.Models) != 1 {
		t.Fatalf("status %d, %q, %s: %v", status, text, notes, err)
	}
	if m := got.Models[0]; m.Model != "heft-demo" || len(m.Tiers) != 2 || m.Tiers[0].Bytes == 0 || m.LimitBytes == 0 || m.MemoryBytes == 0 {
		t.Errorf("%+v", m)
	}
	if _, notes, status := pipeInto(t, "", "ps", "--url", "ftp://x"); status != 2 || !strings.Contains(notes, `--url: got "ftp://x", want`) { // said net/http's words
		t.Errorf("ps of another protocol: status %d, %s", status, notes)
	}
	if table, notes, status := pipeInto(t, "", "ps", p.url, "--interval", "10ms"); status != 0 || !strings.Contains(table, "heft-demo") {
		t.Errorf("an address without --url: status %d, %q, %s", status, table, notes)
	}
	if _, notes, status := pipeInto(t, "", "ps", "--url", "127.0.0.1:1"); status != 1 || !strings.Contains(notes, "no server answers at http://127.0.0.1:1") {
		t.Errorf("without a server: status %d, %q", status, notes)
	}
}

// TestPsOfAServerWithAPrivateCA: --tls-ca trusts it. Without it, the error names the flag; there was none.
func TestPsOfAServerWithAPrivateCA(t *testing.T) {
	keys := make(chan string, 9)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Authorization")
		_, _ = io.WriteString(w, `{"seconds": 1, "models": [{"model": "m", "status": "ready"}]}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	ps := []string{"ps", "--json", "--url", s.URL, "--interval", "1ms", "--api-key", "secret"}
	if text, notes, status := pipeInto(t, "", append(ps, "--tls-ca", ca)...); status != 0 || !strings.Contains(text, `"m"`) || <-keys != "Bearer secret" {
		t.Errorf("status %d, %s%s", status, text, notes)
	}
	if _, notes, status := pipeInto(t, "", ps...); status != 1 || !strings.Contains(notes, "use --tls-ca FILE") {
		t.Errorf("without the CA: status %d, %s", status, notes)
	}
	for file, want := range map[string]string{filepath.Join(t.TempDir(), "none"): "no such file", "chat_test.go": "got no certificate, want a file in PEM"} {
		if _, notes, status := pipeInto(t, "", append(ps, "--tls-ca", file)...); status != 2 || !strings.Contains(notes, "--tls-ca") || !strings.Contains(notes, want) {
			t.Errorf("%s: status %d, %s", file, status, notes)
		}
	}
}

// TestAnotherServersErrorsNameTheURL: serve ps said "404 Not Found" and no more.
func TestAnotherServersErrorsNameTheURL(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if _, notes, status := pipeInto(t, "", "ps", "--url", s.URL); status != 1 || !strings.Contains(notes, s.URL+"/activity: 404 Not Found") {
		t.Errorf("status %d, %s", status, notes)
	}
}

// TestPsMeasuresRates: the difference of two readings by the time between.
func TestPsMeasuresRates(t *testing.T) {
	var before, after activity
	for text, to := range map[string]*activity{
		`{"seconds": 10, "models": [{"model": "m", "generated_tokens": 100, "tiers": [{"tier": "cpu", "bytes": 5, "read_bytes": 1000}]}]}`:                                                    &before,
		`{"seconds": 12, "models": [{"model": "m", "generated_tokens": 130, "running": 2, "kv": {"pages": 4, "used_pages": 1}, "tiers": [{"tier": "cpu", "bytes": 5, "read_bytes": 5000}]}]}`: &after,
	} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	list := modelRates(before, after, nil)
	if m := list[0]; len(list) != 1 || m.TokensPerSecond != 15 || m.Tiers[0].BytesPerSecond != 2000 || m.KVUsage != 0.25 || m.Running != 2 {
		t.Errorf("%+v", list)
	}
}

// TestPsShowsWeightsOnGPUs: tiers were the host's memory and the disk alone.
func TestPsShowsWeightsOnGPUs(t *testing.T) {
	var report activity
	text := `{"seconds": 1, "models": [{"model": "m", "status": "ready", "tiers": [{"tier": 0, "bytes": 2147483648, "read_bytes": 0}, {"tier": "cpu", "bytes": 1073741824, "read_bytes": 5}]}]}`
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	list := modelRates(report, report, nil)
	var table strings.Builder
	if err := printServed(&table, list); err != nil || !strings.Contains(table.String(), "gpu 0 2.0 GiB, cpu 1.0 GiB") {
		t.Errorf("%v: %s", err, table.String())
	}
	if again, err := json.Marshal(list); err != nil || !strings.Contains(string(again), `"tier":0`) {
		t.Errorf("%v: %s", err, again)
	}
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
