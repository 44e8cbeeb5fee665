package api_test

import (
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

func TestHealthAndReady(t *testing.T) {
	var status dispatch.Status
	s := serveWith(t, api.Options{Models: []*generate.Model{generatetest.Fake(t, &enginetest.Model{}, engine.Options{})},
		Status: func() dispatch.Status { return status }})
	for _, c := range []struct {
		loading dispatch.Loading
		ready   int
		status  string
	}{
		{dispatch.Loading{BlocksDone: 1, BlocksTotal: 4, BytesDone: 10, BytesTotal: 40, SecondsLeft: 2.5}, 503, "loading"},
		{dispatch.Loading{BlocksDone: 4, BlocksTotal: 4, BytesDone: 40, BytesTotal: 40, Done: true}, 200, "ready"},
		{dispatch.Loading{Done: true, Err: errors.New("torn")}, 503, "broken"},
	} {
		status.Loading = c.loading
		code, health := s.object("GET", "/health", nil)
		if code != 200 || health["status"] != "ok" {
			t.Errorf("/health is %d, %v", code, health)
		}
		for _, key := range []string{"blocks_done", "blocks_total", "bytes_done", "bytes_total", "seconds_left"} {
			if at(health, "loading", key) == nil {
				t.Errorf("/health has no loading.%s: %v", key, health)
			}
		}
		resp := s.do("GET", "/ready", nil)
		if got := decodeBody(t, resp); resp.StatusCode != c.ready || got["status"] != c.status {
			t.Errorf("/ready is %d, %v; want %d, %s", resp.StatusCode, got, c.ready, c.status)
		}
		if (resp.Header.Get("Retry-After") != "") != (c.ready == 503) {
			t.Errorf("Retry-After is %q for %s", resp.Header.Get("Retry-After"), c.status)
		}
	}
}

func TestMetrics(t *testing.T) {
	s := serveDemo(t)
	if status, got := s.text("POST", completions, obj{"prompt": "The boat", "max_tokens": 4, "ignore_eos": true}); status != 200 {
		t.Fatal(got)
	}
	var text string
	eventually(t, "the engine has counted the request", func() bool { // which it does after it has sent the last token
		_, text = s.text("GET", "/metrics", nil)
		return regexp.MustCompile(`\nvllm:num_requests_running\{[^}]*\} 0\n`).MatchString(text)
	})
	common := `model_name="heft-demo"`
	for name, want := range map[string]string{
		"vllm:num_requests_running":                   "0",
		"vllm:num_requests_waiting":                   "0",
		"vllm:kv_cache_usage_perc":                    "0",
		"vllm:cache_config_info":                      "1",
		"vllm:prefix_cache_queries_total":             "",
		"vllm:prefix_cache_hits_total":                "0",
		"vllm:num_preemptions_total":                  "0",
		"vllm:prompt_tokens_total":                    "",
		"vllm:generation_tokens_total":                "4",
		"vllm:time_to_first_token_seconds_count":      "1",
		"vllm:inter_token_latency_seconds_count":      "3",
		"vllm:e2e_request_latency_seconds_count":      "1",
		"vllm:request_queue_time_seconds_count":       "1",
		"vllm:request_prefill_time_seconds_count":     "1",
		"vllm:request_decode_time_seconds_count":      "1",
		"vllm:iteration_tokens_total_count":           "4",
		"vllm:request_generation_tokens_sum":          "4",
		"heft_stall_seconds_total":                    "0",
		`vllm:request_success_total#"length"`:         "1",
		`vllm:request_success_total#"stop"`:           "0",
		`heft_tier_bytes#tier="cpu"`:                  "",
		`heft_tier_read_bytes_total#tier="disk"`:      "0",
		`heft_memory_bytes#purpose="kv"`:              "",
		`vllm:time_to_first_token_seconds_bucket#Inf`: "1",
	} {
		name, label, _ := strings.Cut(name, "#")
		found := false
		for line := range strings.SplitSeq(text, "\n") {
			if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, label) {
				continue
			}
			value := line[strings.LastIndex(line, " ")+1:]
			found = true
			if !strings.Contains(line, common) || !strings.Contains(line, `engine="0"`) || want != "" && value != want {
				t.Errorf("%s, want %s", line, want)
			}
		}
		if !found {
			t.Errorf("no line of %s with %q in\n%s", name, label, text)
		}
	}
}

// sample is a line of the text format.
var sample = regexp.MustCompile(`^[a-z_:0-9]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? [0-9.e+-]+$`)

// TestMetricsAreWellFormed also for a name that has to be escaped.
func TestMetricsAreWellFormed(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	m.Name = "a\"b\\c\nd"
	s := serve(t, m)
	s.answers(completions, obj{"prompt": []int{1, 2}, "max_tokens": 3})
	seen := map[string]bool{}
	name := ""
	_, text := s.text("GET", "/metrics", nil)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if help, ok := strings.CutPrefix(line, "# HELP "); ok {
			if name, _, _ = strings.Cut(help, " "); seen[name] {
				t.Errorf("%s is described twice", name)
			}
			seen[name] = true
			continue
		}
		if !strings.HasPrefix(line, "# TYPE ") && !sample.MatchString(line) || !strings.Contains(line, name) {
			t.Errorf("line %q", line)
		}
	}
	if !strings.Contains(text, `model_name="a\"b\\c\nd"`) {
		t.Error("the model's name is not escaped")
	}
}

func TestPlanAndVersion(t *testing.T) {
	s := serveDemo(t)
	_, plan := s.object("GET", "/plan", nil)
	for _, key := range []string{"device_map", "devices", "predicted", "measured"} {
		if plan[key] == nil {
			t.Errorf("/plan has no %s", key)
		}
	}
	if at(plan, "device_map", 0, 1) == nil || at(plan, "devices", 0, "weights_bytes") == nil {
		t.Errorf("/plan is %v", plan)
	}
	if _, v := s.object("GET", "/version", nil); v["version"] != "test" {
		t.Errorf("/version is %v", v)
	}
}

func TestPage(t *testing.T) {
	s := serveDemo(t)
	resp := s.do("GET", "/", nil)
	_, page := s.text("GET", "/", nil)
	policy := resp.Header.Get("Content-Security-Policy")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%d, %v", resp.StatusCode, resp.Header)
	}
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Count(policy, "'sha256-") != 2 {
		t.Errorf("policy %q", policy)
	}
	if strings.Contains(page, "{{") || !strings.Contains(page, "</html>") || len(page) > 20_000 {
		t.Errorf("a page of %d bytes", len(page))
	}
	// The icon's name space is no address that anybody asks.
	if rest := strings.ReplaceAll(page, "http://www.w3.org/2000/svg", ""); strings.Contains(rest, "http://") || strings.Contains(rest, "https://") {
		t.Error("the page names another server")
	}
	if inline := regexp.MustCompile(`(?i)\s(on[a-z]+|style)=`).FindString(page[:strings.Index(page, "<script>")]); inline != "" {
		t.Errorf("the policy forbids the attribute %q", inline)
	}
	if head := s.do("HEAD", "/health", nil); head.StatusCode != 200 {
		t.Errorf("HEAD /health is %d", head.StatusCode)
	}
}

func TestRequestIDs(t *testing.T) {
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
	for given, kept := range map[string]bool{"abc-1": true, "": false, "a b": false, strings.Repeat("x", 129): false} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Request-Id", given)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-Request-Id"); got == "" || (got == given) != kept {
			t.Errorf("id %q became %q", given, got)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Error("browsers may guess types")
		}
	}
}

// TestAccessLog: a line a request at level debug, without keys.
func TestAccessLog(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug})))
	s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "secret-key")
	s.key = "secret-key"
	s.stream(completions, obj{"prompt": []int{1}, "max_tokens": 2})
	eventually(t, "the request is logged", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(log.String(), "path=/v1/completions status=200")
	})
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log has the key: %s", log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestPanicsAreErrors: a fault of ours costs one request, not the server.
func TestPanicsAreErrors(t *testing.T) {
	s := serveWith(t, api.Options{Models: []*generate.Model{generatetest.Fake(t, &enginetest.Model{}, engine.Options{})},
		Plan: func() any { panic("out of plans") }})
	status, got := s.object("GET", "/plan", nil)
	checkError(t, status, got, 500, nil, nil, "had an error")
	if status, _ := s.text("GET", "/health", nil); status != 200 {
		t.Errorf("/health is %d after a panic", status)
	}
}
