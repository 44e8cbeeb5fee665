package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// metric is the value of a metric without labels, -1 if there is none.
func (p *process) metric(t *testing.T, name string) float64 {
	t.Helper()
	_, text := p.request(t, http.MethodGet, "/metrics", "")
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// prefixed asks for an answer to a prompt of n tokens, and returns it with how many tokens were cached.
func (p *process) prefixed(t *testing.T, n int, more string) (text string, cached float64) {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i*7%200 + 10)
	}
	status, r := p.ask(t, "POST", "/v1/completions", fmt.Sprintf(`{"prompt": [%s], "max_tokens": 4, "temperature": 0 %s}`, strings.Join(ids, ", "), more))
	if status != 200 {
		t.Fatalf("%d %v", status, r)
	}
	details, _ := r["usage"].(map[string]any)["prompt_tokens_details"].(map[string]any)
	cached, _ = details["cached_tokens"].(float64)
	return fmt.Sprint(r["choices"]), cached
}

// TestPrefixesSurviveAKilledServer: with --kv-store DIR a prompt's beginning is not computed again after
// kill -9, and while two servers run.
func TestPrefixesSurviveAKilledServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kv")
	first := start(t, "--kv-store", dir)
	want, cached := first.prefixed(t, 100, "")
	if cached != 0 {
		t.Errorf("%v tokens of the first prompt were cached", cached)
	}
	for first.metric(t, "heft_kv_store_written_total") < 6 { // the 6 full pages
		runtime.Gosched()
	}
	second := start(t, "--kv-store", dir)
	if got, cached := second.prefixed(t, 100, ""); got != want || cached != 96 {
		t.Errorf("beside it %v tokens were cached, want 96, and the answer is %s, want %s", cached, got, want)
	}
	if hits := second.metric(t, "heft_kv_store_hits_total"); hits != 6 {
		t.Errorf("%v pages were read, want 6", hits)
	}
	for _, p := range []*process{first, second} {
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.end
	}
	third := start(t, "--kv-store", dir)
	if got, cached := third.prefixed(t, 100, ""); got != want || cached != 96 {
		t.Errorf("after kill -9 %v tokens were cached, want 96, and the answer is %s, want %s", cached, got, want)
	}
	if _, cached := third.prefixed(t, 100, `, "cache_salt": "mine"`); cached != 0 {
		t.Errorf("with a salt %v tokens were cached", cached)
	}
	if _, cached := third.prefixed(t, 100, `, "cache_salt": "mine"`); cached != 96 {
		t.Errorf("with the same salt %v tokens were cached", cached)
	}
	if err := third.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-third.end
}

func TestFlagsOfTheKVStoreAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--kv-store-limit", "lots"}, {"--kv-store-limit", "0"}, {"--kv-store", file}} {
		if status, _, stderr := invoke(append(args, "--port", "0")...); status != 2 || !strings.Contains(stderr, "--kv-store") {
			t.Errorf("serve %v: status %d, %s", args, status, stderr)
		}
	}
}
