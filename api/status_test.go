package api_test

import (
	"bytes"
	"errors"
	"fmt"
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

func TestALazyServerIsReadyAtOnce(t *testing.T) {
	s := serveWith(t, api.Options{Models: []*generate.Model{generatetest.Fake(t, &enginetest.Model{}, engine.Options{})},
		Status: func() dispatch.Status { return dispatch.Status{} }, Lazy: true})
	if code, got := s.object("GET", "/ready", nil); code != 200 || got["status"] != "ready" {
		t.Errorf("/ready is %d, %v; want 200", code, got)
	}
}

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

// metricsOfOneRequest are the values after one completion of four tokens, by name and, after #, a
// part of the labels. An empty value is any.
var metricsOfOneRequest = map[string]string{
	"vllm:num_requests_running":                   "0",
	"vllm:num_requests_waiting":                   "0",
	"vllm:kv_cache_usage_perc":                    "0",
	"vllm:cache_config_info":                      "1",
	"vllm:prefix_cache_queries_total":             "",
	"vllm:prefix_cache_hits_total":                "0",
	"vllm:num_preemptions_total":                  "0",
	"vllm:spec_decode_num_drafts_total":           "",
	"vllm:spec_decode_num_draft_tokens_total":     "",
	"vllm:spec_decode_num_accepted_tokens_total":  "",
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
	`heft_stall_seconds_total#tier="disk"`:        "0",
	`heft_weight_hits_total#tier="cpu"`:           "",
	`heft_weight_misses_total#tier="cpu"`:         "",
	`heft_weight_hits_total#tier="disk"`:          "0",
	`heft_weight_misses_total#tier="disk"`:        "0",
	`heft_weight_evictions_total#tier="disk"`:     "0",
	`heft_read_latency_seconds_count#tier="disk"`: "0",
	`heft_read_retries_total#tier="disk"`:         "0",
	`heft_reads_in_flight#tier="disk"`:            "0",
	`heft_read_depth#tier="disk"`:                 "",
	`heft_read_busy_seconds_total#tier="disk"`:    "0",
	"heft_memory_limit_bytes":                     "",
	`vllm:request_success_total#"length"`:         "1",
	`vllm:request_success_total#"stop"`:           "0",
	`heft_tier_bytes#tier="cpu"`:                  "",
	`heft_tier_read_bytes_total#tier="disk"`:      "0",
	`heft_memory_bytes#purpose="kv"`:              "",
	`heft_plan_tokens_per_second#"measured"`:      "",
	`heft_plan_first_token_seconds#"measured"`:    "",
	`vllm:time_to_first_token_seconds_bucket#Inf`: "1",

	"vllm:request_time_per_output_token_seconds_count":                 "1",
	"vllm:request_inference_time_seconds_count":                        "1",
	`vllm:request_params_n_bucket#le="1"`:                              "1",
	`vllm:request_params_n_bucket#le="20"`:                             "1",
	"vllm:request_params_max_tokens_sum":                               "4",
	`vllm:request_params_max_tokens_bucket#le="2000"`:                  "1",
	"vllm:request_max_num_generation_tokens_sum":                       "4",
	"vllm:request_prefill_kv_computed_tokens_count":                    "1",
	"vllm:prompt_tokens_cached_total":                                  "0",
	`vllm:prompt_tokens_by_source_total#source="local_compute"`:        "",
	`vllm:prompt_tokens_by_source_total#source="local_cache_hit"`:      "0",
	`vllm:prompt_tokens_by_source_total#source="external_kv_transfer"`: "0",
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
	for name, want := range metricsOfOneRequest {
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
	for _, name := range []string{"go_goroutines", "go_memstats_heap_alloc_bytes", "process_cpu_seconds_total", "process_resident_memory_bytes"} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("no line of %s", name)
		}
	}
	if strings.Contains(text, `request_params_max_tokens_bucket{engine="0",model_name="heft-demo",le="5000"}`) {
		t.Error("the buckets of token counts go beyond the context")
	}
}

// TestMetricsCountARequestOfSeveralChoicesOnce: n and the longest answer are of the request.
func TestMetricsCountARequestOfSeveralChoicesOnce(t *testing.T) {
	m := generatetest.Fake(t, &enginetest.Model{}, engine.Options{})
	m.Name = "m"
	s := serve(t, m)
	s.answers(completions, obj{"prompt": []int{1, 2, 3, 4, 5, 6}, "max_tokens": 7, "n": 3, "ignore_eos": true})
	var text string
	eventually(t, "the request has ended", func() bool {
		_, text = s.text("GET", "/metrics", nil)
		return strings.Contains(text, `vllm:request_params_n_count{engine="0",model_name="m"} 1`+"\n")
	})
	for _, want := range []string{
		`vllm:request_params_n_sum{engine="0",model_name="m"} 3`, `vllm:request_max_num_generation_tokens_sum{engine="0",model_name="m"} 7`,
		`vllm:request_max_num_generation_tokens_count{engine="0",model_name="m"} 1`, `vllm:request_params_max_tokens_count{engine="0",model_name="m"} 3`,
		`vllm:request_prefill_kv_computed_tokens_count{engine="0",model_name="m"} 3`, `vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="m"} 10`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %s", want)
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

// logged runs f with a log in JSON at level info and returns its lines about requests.
func logged(t *testing.T, f func(lines func() []obj)) string {
	t.Helper()
	var log strings.Builder
	var mu sync.Mutex
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewJSONHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	}), nil)))
	text := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	f(func() (lines []obj) {
		for line := range strings.Lines(text()) {
			if o := parse(t, line); o["msg"] == "request" {
				lines = append(lines, o)
			}
		}
		return lines
	})
	return text()
}

// TestLongPathsAreShortInTheLog: each request of a client could write 64 KiB to the log.
func TestLongPathsAreShortInTheLog(t *testing.T) {
	text := logged(t, func(lines func() []obj) {
		s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}))
		s.text("GET", "/"+strings.Repeat("a", 50_000), nil)
		eventually(t, "the request is logged", func() bool { return len(lines()) == 1 })
	})
	if n := strings.Count(text, "a"); n < 1000 || n > 2000 {
		t.Errorf("the log has %d bytes of the path", n)
	}
}

// TestOneLogLineARequest: at level info, with status and tokens, without key and prompt.
func TestOneLogLineARequest(t *testing.T) {
	text := logged(t, func(lines func() []obj) {
		s := serve(t, generatetest.Fake(t, &enginetest.Model{}, engine.Options{}), "secret-key")
		s.key = "secret-key"
		s.stream(completions, obj{"prompt": []int{1, 2, 61, 60, 59}, "max_tokens": 2, "ignore_eos": true})
		eventually(t, "the stream is logged", func() bool { return len(lines()) == 1 })
		s.text("POST", completions+"?key=secret-key", obj{"prompt": [][]int{{1, 2, 3}, {4}}, "max_tokens": 2, "ignore_eos": true})
		eventually(t, "the answer is logged", func() bool { return len(lines()) == 2 })
		s.text("POST", completions, obj{"prompt": "secret text"})
		eventually(t, "the error is logged", func() bool { return len(lines()) == 3 })
		s.text("GET", "/v1/models", nil)
		eventually(t, "the list is logged", func() bool { return len(lines()) == 4 })
		for i, want := range []struct {
			method, path, status string
			prompt, answer       any
		}{
			{"POST", completions, "200", "5", "2"}, {"POST", completions, "200", "4", "4"}, {"POST", completions, "400", nil, nil}, {"GET", "/v1/models", "200", nil, nil},
		} {
			got := lines()[i]
			if got["method"] != want.method || got["path"] != want.path || fmt.Sprint(got["status"]) != want.status || got["level"] != "INFO" || got["duration_seconds"] == nil {
				t.Errorf("line %d: %v", i, got)
			}
			for key, n := range map[string]any{"prompt_tokens": want.prompt, "completion_tokens": want.answer} {
				if (got[key] == nil) != (n == nil) || n != nil && fmt.Sprint(got[key]) != n {
					t.Errorf("line %d: %s is %v, want %v", i, key, got[key], n)
				}
			}
		}
	})
	if strings.Contains(text, "secret") || strings.Contains(text, "61") && strings.Contains(text, "59]") {
		t.Errorf("the log has a key or a prompt: %s", text)
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

// TestAccessLogHasALogger: lines of requests went to slog.Default(), so that a program mixed them into its output.
func TestAccessLogHasALogger(t *testing.T) {
	var usual, own bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&usual, nil)))
	defer slog.SetDefault(before)
	s := serveWith(t, api.Options{Models: []*generate.Model{generatetest.Fake(t, &enginetest.Model{}, engine.Options{})},
		AccessLog: slog.New(slog.NewTextHandler(&own, nil))})
	s.text("GET", "/version", nil)
	s.Close() // after the line was written
	if strings.Contains(usual.String(), "path=/version") || !strings.Contains(own.String(), "msg=request method=GET path=/version status=200") {
		t.Errorf("got %q in the default log, %q in the other", &usual, &own)
	}
}
