package main

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
)

// gptOSSConfig is gpt-oss-120b as it was published, less the fields that size nothing.
var gptOSSConfig = map[string]any{"model_type": "gpt_oss", "num_hidden_layers": 36, "num_local_experts": 128, "num_experts_per_tok": 4,
	"hidden_size": 2880, "intermediate_size": 2880, "vocab_size": 201088, "torch_dtype": "bfloat16", "sliding_window": 128,
	"num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
	"quantization_config": map[string]any{"quant_method": "mxfp4",
		"modules_to_not_convert": []string{"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}}

// TestPlanOfABareConfigIsThatOfItsFiles: serve plan of a bare config.json sized weights by
// torch_dtype, 218 GiB instead of the 60.8 that are published.
func TestPlanOfABareConfigIsThatOfItsFiles(t *testing.T) {
	config := filepath.Join(writeConfig(t, gptOSSConfig), "config.json")
	var got devicemap.Plan
	parse(t, &got, "plan", config, "--no-probe", "--json", "--max-memory", "cpu=100GiB")
	bytes := int64(0)
	for _, d := range got.Devices {
		bytes += d.WeightsBytes
	}
	if gib := float64(bytes) / (1 << 30); !(math.Abs(gib-60.77) <= 0.05) {
		t.Errorf("weights of %.2f GiB, want 60.77", gib)
	}
}

// TestEstimateHasARowAsStored: the table said what gpt-oss-120b takes in five dtypes, and not what
// its own files take.
func TestEstimateHasARowAsStored(t *testing.T) {
	dir := writeConfig(t, gptOSSConfig)
	var got estimate
	parse(t, &got, "estimate", dir, "--json")
	d := got.DTypes[0]
	if gib := d.Total / (1 << 30); d.DType != "stored" || d.Stored != "mxfp4, bfloat16" || !(math.Abs(gib-60.77) <= 0.05) || d.Training != nil {
		t.Errorf("%+v", d)
	}
	if float64(d.Host) < d.Total || d.Host > 63<<30 || d.Least > 2<<30 {
		t.Errorf("host %d and %d bytes", d.Host, d.Least)
	}
	plain := writeConfig(t, llamaConfig)
	parse(t, &got, "estimate", plain, "--json", "--dtypes", "stored,bfloat16")
	if a, b := got.DTypes[0], got.DTypes[1]; a.Stored != "bfloat16" || !(math.Abs(a.Total-b.Total) <= 100) || a.Training == nil || *a.Training != *b.Training { // Accelerate halves the rotary tables too
		t.Errorf("stored %+v, bfloat16 %+v", a, b)
	}
}

// TestEstimateCountsWindowedLayersAtTheirWindow: every other layer of gpt-oss keeps 128 tokens,
// and was counted with all.
func TestEstimateCountsWindowedLayersAtTheirWindow(t *testing.T) {
	var got estimate
	parse(t, &got, "estimate", writeConfig(t, gptOSSConfig), "--json", "--dtypes", "bfloat16")
	const layer = 2 * 8 * 64 * 2 // keys and values, heads, width, bytes
	if want := int64(18*layer*1000 + 18*layer*128); got.DTypes[0].KVPer1K != want {
		t.Errorf("%d bytes for 1000 tokens, want %d", got.DTypes[0].KVPer1K, want)
	}
}

// TestAWarningIsPrintedOnce: the drawing of a plan and its explanation each had the warnings.
func TestAWarningIsPrintedOnce(t *testing.T) {
	dir := writeConfig(t, llamaConfig)
	text, errs := command(t, 0, "plan", dir, "--no-probe", "--max-memory", "cpu=100KiB")
	if n := strings.Count(text+errs, "is below the minimum"); n != 1 {
		t.Errorf("the warning is there %d times:\n%s%s", n, text, errs)
	}
}

// TestALowerCaseBWarns: --max-memory cpu=8gb is 1 GB, as in Accelerate, and was taken in silence.
// A size without a device is the CPU's.
func TestALowerCaseBWarns(t *testing.T) {
	dir := writeConfig(t, llamaConfig)
	for _, c := range []struct {
		limit string
		bytes int64
		warns bool
	}{{"cpu=8gb", 1e9, true}, {"8gb", 1e9, true}, {"8GB", 8e9, false}, {"cpu=8GB", 8e9, false}, {"cpu=8gib", 8 << 30, false}} {
		var got devicemap.Plan
		parse(t, &got, "plan", dir, "--no-probe", "--json", "--max-memory", c.limit)
		limit := got.Devices[0].LimitBytes
		if limit > c.bytes || limit < c.bytes-256<<20 {
			t.Errorf("%s: a limit of %d bytes, want %d", c.limit, limit, c.bytes)
		}
		if warned := strings.Contains(strings.Join(got.Warnings, "\n"), "write 8GB for bytes"); warned != c.warns {
			t.Errorf("%s: warnings %q", c.limit, got.Warnings)
		}
	}
}

// TestALimitWithoutUnitWarns: --max-memory cpu=8 is 8 bytes, as in Accelerate. The plan said only that this is below the minimum.
func TestALimitWithoutUnitWarns(t *testing.T) {
	dir := writeConfig(t, llamaConfig)
	for limit, warns := range map[string]bool{"cpu=8": true, "8": true, "cpu=0": false, "cpu=8000000000": false, "cpu=8GiB": false} {
		var got devicemap.Plan
		parse(t, &got, "plan", dir, "--no-probe", "--json", "--max-memory", limit)
		if warned := strings.Contains(strings.Join(got.Warnings, "\n"), "a number without a unit counts bytes"); warned != warns {
			t.Errorf("%s: warnings %q", limit, got.Warnings)
		}
	}
}

// TestPlansOfBareConfigsAreThoseOfThePublishedFiles: DeepSeek-V3, Kimi-K2 and gpt-oss-120b are
// published in 641.3, 958.5 and 60.8 GiB. What of them is not read is in the plan.
func TestPlansOfBareConfigsAreThoseOfThePublishedFiles(t *testing.T) {
	fp8 := map[string]any{"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": []int{128, 128}}
	oss := maps.Clone(gptOSSConfig)
	delete(oss, "torch_dtype") // as it is published
	for name, c := range map[string]struct {
		config       map[string]any
		read, unread float64 // GiB
	}{
		"DeepSeek-V3": {map[string]any{"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "quantization_config": fp8}, 626.9, 14.4},
		// V3's weights and 0.84 GiB of indexers, of which the unread layer has one too.
		"DeepSeek-V3.2": {map[string]any{"model_type": "deepseek_v32", "torch_dtype": "bfloat16", "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "quantization_config": fp8}, 627.7, 14.4},
		"Kimi-K2": {map[string]any{"model_type": "kimi_k2", "torch_dtype": "bfloat16", "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384,
			"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "vocab_size": 163840, "num_nextn_predict_layers": 0, "quantization_config": fp8}, 958.5, 0},
		"gpt-oss-120b": {oss, 60.77, 0},
	} {
		config := filepath.Join(writeConfig(t, c.config), "config.json")
		var got devicemap.Plan
		parse(t, &got, "plan", config, "--no-probe", "--json", "--max-memory", "cpu=100GiB")
		bytes := int64(0)
		for _, d := range got.Devices {
			bytes += d.WeightsBytes
		}
		if gib := float64(bytes) / (1 << 30); !(math.Abs(gib-c.read) <= 0.001*c.read) {
			t.Errorf("%s: weights of %.2f GiB, want %.2f", name, gib, c.read)
		}
		text, _ := command(t, 0, "plan", config, "--no-probe", "--max-memory", "cpu=100GiB")
		said := strings.Contains(text, fmt.Sprintf("%.1f GiB more, for predicting several tokens ahead, which Heft does not read", c.unread))
		if said != (c.unread > 0) {
			t.Errorf("%s: the plan names bytes that are not read: %t\n%s", name, said, text)
		}
	}
}
