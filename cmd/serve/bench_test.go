package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/loader/demo"
)

func TestBenchPrintsAllFields(t *testing.T) {
	var got map[string]any
	parse(t, &got, "bench", "--json", "--prompt-tokens", "8", "--decode-tokens", "4", "--batch", "2", "--threads", "1")
	for _, name := range strings.Fields(`prompt_tokens_per_second decode_tokens_per_second time_to_first_token_seconds
		weight_bytes_per_token decode_bytes_per_second memory_read_bytes_per_second decode_roof_share disk_bytes_per_token
		disk_bytes_per_second allocations_per_token threads batch`) {
		if v, ok := got[name].(float64); !ok || v < 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	reads, _ := got["reads"].(map[string]any)
	if depth, there := reads["depth"]; !there || depth != nil || reads["count"] != 0.0 {
		t.Errorf("reads of a model without a disk tier: %v", got["reads"])
	}
	tiers, _ := got["tiers"].(map[string]any)
	cpu, _ := tiers["cpu"].(map[string]any)
	if hits, _ := cpu["hits"].(float64); hits == 0 && cpu["misses"] == 0.0 || tiers["disk"] == nil {
		t.Errorf("no weights are counted: %v", got["tiers"])
	}
	if probe, there := got["disk_probe_bytes_per_second"]; !there || probe != nil {
		t.Errorf("the demo has no file, yet disk_probe_bytes_per_second is %v", probe)
	}
	if got["threads"] != 1.0 || got["batch"] != 2.0 || got["weights"] != "promoted" || got["variant"] == "" {
		t.Errorf("threads %v, batch %v, weights %v, variant %v", got["threads"], got["batch"], got["weights"], got["variant"])
	}
	if p, ok := got["promotion"].(map[string]any); !ok || p["before_tokens_per_second"].(float64) <= 0 || p["after_tokens_per_second"] != got["decode_tokens_per_second"] {
		t.Errorf("promotion: %v", got["promotion"])
	}
	if v, ok := got["prompt_operations_per_second"].(float64); !ok || v <= 0 {
		t.Errorf("prompt_operations_per_second is %v", got["prompt_operations_per_second"])
	}
	if roofs := got["roofs"].([]any); len(roofs) != 2 {
		t.Errorf("%d looks at the roofs, want one before and one after", len(roofs))
	}
}

// TestBenchComparesThePlan: bench prints predicted ÷ measured for memory, bytes, first token and speed.
func TestBenchComparesThePlan(t *testing.T) {
	two, four := pointer(2), pointer(4)
	p, m := &benchSpeed{two, four, nil, two}, &benchSpeed{four, four, two, pointer(0)}
	got := p.by(m)
	if *got.FirstTokenSeconds != 0.5 || *got.TokensPerSecond != 1 || got.DiskBytesPerToken != nil || got.MemoryBytes != nil {
		t.Errorf("ratios %+v of %+v and %+v", got, p, m)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.Files()); err != nil {
		t.Fatal(err)
	}
	out, _ := command(t, 0, "bench", "--model", dir, "--prompt-tokens", "3", "--decode-tokens", "4", "--device-map", "model.layers.1=disk")
	for _, name := range []string{"memory", "first token", "decode"} {
		if !regexp.MustCompile(`(?m)^  ` + name + ` .* predicted, .* measured: predicted ÷ measured [0-9.]+$`).MatchString(out) {
			t.Errorf("no line that compares %s: %s", name, out)
		}
	}
}

func TestBenchWithoutPromptOrDecode(t *testing.T) {
	var prompt, decode benchResult
	parse(t, &prompt, "bench", "--json", "--no-probe", "--prompt-tokens", "5", "--decode-tokens", "0")
	if prompt.DecodeTokensPerSecond != nil || prompt.PromptTokensPerSecond == nil || prompt.TimeToFirstTokenSeconds <= 0 {
		t.Errorf("a prompt alone: %+v", prompt)
	}
	parse(t, &decode, "bench", "--json", "--no-probe", "--prompt-tokens", "0", "--decode-tokens", "3")
	if decode.PromptTokensPerSecond != nil || decode.DecodeTokensPerSecond == nil || decode.TimeToFirstTokenSeconds <= 0 {
		t.Errorf("no prompt: %+v", decode)
	}
	if decode.MemoryReadBytesPerSecond != nil || decode.DecodeRoofShare != nil || len(decode.Roofs) != 0 {
		t.Errorf("--no-probe: %+v", decode)
	}
}

func TestBenchStreams(t *testing.T) {
	var got benchResult
	parse(t, &got, "bench", "--json", "--no-probe", "--decode-tokens", "4", "--device-map", "disk")
	if got.Weights != "streamed" || *got.DiskBytesPerToken < 0 || got.WeightBytesPerToken <= 0 {
		t.Errorf("%+v", got)
	}
}

// TestBenchStreamsFiles: of layers in files on the disk tier, all that concerns the disk is
// measured.
func TestBenchStreamsFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.Files()); err != nil {
		t.Fatal(err)
	}
	var got benchResult
	parse(t, &got, "bench", "--json", "--model", dir, "--prompt-tokens", "3", "--decode-tokens", "4", "--device-map", "model.layers.1=disk")
	if got.DiskBytesPerToken == nil || got.DiskBytesPerSecond == nil || got.DiskProbeBytesPerSecond == nil || *got.DiskProbeBytesPerSecond <= 0 {
		t.Errorf("of the disk: %+v", got)
	}
	// The count is of the whole process: package dispatch tests that decoding allocates nothing.
	if got.DecodeRoofShare == nil || got.AllocationsPerToken == nil {
		t.Errorf("share %v, allocations %v, want both", got.DecodeRoofShare, got.AllocationsPerToken)
	}
}

// TestBenchQuantizes: converted weights are counted as they are read.
func TestBenchQuantizes(t *testing.T) {
	read := map[string]float64{}
	for _, format := range []string{"none", "q8_0", "q4_0"} {
		var got benchResult
		parse(t, &got, "bench", "--json", "--no-probe", "--prompt-tokens", "3", "--decode-tokens", "2", "--quantize", format)
		if got.Quantize != format || got.DecodeTokensPerSecond == nil {
			t.Errorf("%s: %+v", format, got)
		}
		read[format] = float64(got.WeightBytesPerToken)
	}
	if q8, q4 := read["q8_0"]/read["none"], read["q4_0"]/read["none"]; !(math.Abs(q8-8.5/16) <= 0.01) || !(math.Abs(q4-4.5/16) <= 0.01) {
		t.Errorf("a token reads %.3f and %.3f of the bytes as stored, want 8.5/16 and 4.5/16", q8, q4)
	}
}

// TestPlanQuantizes: a plan counts converted weights, and refuses where even they do not fit.
func TestPlanQuantizes(t *testing.T) {
	args := []string{"plan", "--json", "--no-probe", "--max-model-len", "64", "--max-batch", "1"}
	var stored, converted struct {
		Devices []struct {
			Device       any   `json:"device"`
			WeightsBytes int64 `json:"weights_bytes"`
		} `json:"devices"`
	}
	parse(t, &stored, args...)
	parse(t, &converted, append(args, "--quantize", "q4_0")...)
	var a, b int64
	for i := range stored.Devices {
		a, b = a+stored.Devices[i].WeightsBytes, b+converted.Devices[i].WeightsBytes
	}
	if b == 0 || b > a/2 {
		t.Errorf("q4_0 takes %d bytes of %d", b, a)
	}
	var again struct{ Warnings []string }
	parse(t, &again, append(args, "--quantize", "q4_0", "--max-memory", "cpu=300KiB", "--cache-dir", "none")...)
	if all := strings.Join(again.Warnings, "\n"); !strings.Contains(all, "converted again in each pass") || !strings.Contains(all, "--cache-dir") {
		t.Errorf("too little memory and no folder: warnings %q", all)
	}
}

// TestBenchStreamsConverted: converted weights of the disk tier are kept in --cache-dir.
func TestBenchStreamsConverted(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		var got benchResult
		parse(t, &got, "bench", "--json", "--no-probe", "--decode-tokens", "4", "--device-map", "disk", "--quantize", "q8_0", "--cache-dir", dir)
		if got.Weights != "streamed" || got.Quantize != "q8_0" {
			t.Errorf("%+v", got)
		}
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*.safetensors")); err != nil || len(names) != 1 {
		t.Errorf("the folder has %v: %v", names, err)
	}
}

func TestBenchCompares(t *testing.T) {
	args := []string{"bench", "--no-probe", "--prompt-tokens", "4", "--decode-tokens", "2"}
	var first benchResult
	parse(t, &first, append(args, "--json")...)
	*first.DecodeTokensPerSecond /= 1e6
	b, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other, b, 0o644); err != nil {
		t.Fatal(err)
	}
	var second benchResult
	parse(t, &second, append(args, "--json", "--compare", other)...)
	if r := second.Ratios["decode_tokens_per_second"]; r < 100 {
		t.Errorf("ratio %v to a million times slower", r)
	}
	if _, there := second.Ratios["disk_bytes_per_second"]; there {
		t.Error("a ratio to 0")
	}
	if text, _ := command(t, 0, append(args, "--compare", other)...); !strings.Contains(text, "× the other's decode_tokens_per_second") {
		t.Errorf("no ratio in:\n%s", text)
	}
	for name, content := range map[string]string{"not JSON": "{", "no numbers": "{}"} {
		if err := os.WriteFile(other, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, errs := command(t, 2, append(args, "--compare", other)...); !strings.Contains(errs, "compare") {
			t.Errorf("%s: %s", name, errs)
		}
	}
}

func TestBenchRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--prompt-tokens", "0", "--decode-tokens", "0"},
		{"--prompt-tokens", "-1"},
		{"--batch", "0"},
		{"--prompt-tokens", "1000000"},
		{"--compare", "gone.json"},
		{"--quantize", "q5_0"},
		{"--threads", "-1"},
		{"--threads", "100000"}, // once spun for minutes, deaf to signals
		{"--cpu", "avx3"},       // HEFT_CPU is its twin
		{"--quantize", "q8_0", "--weights", "mapped"},
	} {
		command(t, 2, append([]string{"bench", "--no-probe"}, args...)...)
	}
}

// TestCompareWithAnotherFileNamesNoGoType: the error of a list had the type of a Go map.
func TestCompareWithAnotherFileNamesNoGoType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(path, []byte("[1]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readOther(path); err == nil || !strings.Contains(err.Error(), "got JSON of type array, want the object that bench --json prints") {
		t.Errorf("got %v", err)
	}
}
