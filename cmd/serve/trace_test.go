package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
)

// mixtureDir returns a folder with a small mixture of experts. It exists until t ends.
func mixtureDir(t *testing.T) string {
	return golden.Unpacked(t, filepath.Join(golden.Module(t), "testdata/golden/train/gradients/qwen3-moe"))
}

// TestTraceOfABench records the routing of a bench and plans with it: the plan uses the file that is
// given or kept, and ignores a damaged one with a line.
func TestTraceOfABench(t *testing.T) {
	dir, model := t.TempDir(), mixtureDir(t)
	file, cache := filepath.Join(dir, "routing.trace"), filepath.Join(dir, "cache")
	var bench benchResult
	parse(t, &bench, "bench", "--json", "--no-probe", "--prompt-tokens", "4", "--decode-tokens", "8", "--threads", "1",
		"--device-map", "disk", "--cache-dir", cache, "--trace", file, model)
	if bench.Experts == nil || bench.Experts.Hits+bench.Experts.Misses == 0 {
		t.Errorf("the bench counted %+v requests for experts", bench.Experts)
	}
	if r := bench.Replay; r == nil || r.Belady < r.Heft || r.Heft <= 0 {
		t.Errorf("the replay of the bench has %+v", r)
	}
	if bench.Settling == nil || bench.Settling.Tokens != 3 || bench.Settling.DiskBytesPerToken <= 0 {
		t.Errorf("a cache of experts is measured while it fills: settling %+v", bench.Settling)
	}
	var plan struct {
		Hits []dispatch.RoutingHits `json:"expert_hits"`
		Rate float64                `json:"expert_hit_rate"`
	}
	parse(t, &plan, "plan", "--json", "--no-probe", "--device-map", "disk", "--cache-dir", "none", "--trace", file, model)
	if n := len(plan.Hits); n == 0 || plan.Hits[n-1].Share < 0.99 || plan.Hits[n-1].Belady < plan.Hits[n-1].Heft {
		t.Errorf("the plan has hits %+v", plan.Hits)
	}
	out, _ := command(t, 0, "plan", "--no-probe", "--device-map", "disk", "--cache-dir", cache, "--trace", file, model)
	if !strings.Contains(out, "Belady") || strings.Contains(out, "ignoring") {
		t.Errorf("the plan prints %s", out)
	}
	kept, err := filepath.Glob(filepath.Join(cache, "routing-*.trace"))
	if err != nil || len(kept) != 1 {
		t.Fatal("kept in the cache folder:", kept, err)
	}
	for _, path := range []string{file, kept[0]} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b[:len(b)-3], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"--cache-dir", cache}, {"--cache-dir", "none", "--trace", file}} {
		out, _ := command(t, 0, append([]string{"plan", "--no-probe", "--json", "--device-map", "disk", model}, args...)...)
		if !strings.Contains(out, "ignoring the routing trace") || !json.Valid([]byte(out)) {
			t.Errorf("%v with a damaged trace prints %s", args, out)
		}
	}
}

// TestHitsOfABenchAreKept: a bench stores the hit rate of its cache of experts for later plans, and a
// plan ignores a damaged file with a line.
func TestHitsOfABenchAreKept(t *testing.T) {
	cache, model := t.TempDir(), mixtureDir(t)
	command(t, 0, "bench", "--no-probe", "--prompt-tokens", "2", "--decode-tokens", "30", "--threads", "1", "--device-map", "disk", "--cache-dir", cache, model)
	kept, err := filepath.Glob(filepath.Join(cache, "hits-*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatal("kept in the cache folder:", kept, err)
	}
	plan := []string{"plan", "--no-probe", "--device-map", "disk", "--cache-dir", cache, model}
	if out, _ := command(t, 0, plan...); !strings.Contains(out, "what an earlier run measured") || strings.Contains(out, "ignoring") {
		t.Errorf("the plan prints %s", out)
	}
	if err := os.WriteFile(kept[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := command(t, 0, plan...); !strings.Contains(out, "warning: ignoring the measured hits of experts: ") || !strings.Contains(out, "the curve of usual routings") {
		t.Errorf("with a damaged file the plan prints %s", out)
	}
}
