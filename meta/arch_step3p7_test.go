package meta

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// step35 is Step 3.5 Flash as published, with fewer layers, of which the last one predicts a token ahead.
const step35 = `{"architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 5,
	"num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "vocab_size": 128896, "moe_layers_enum": "3,4,5", "moe_num_experts": 288, "moe_top_k": 8,
	"moe_intermediate_size": 1280, "share_expert_dim": 1280, "moe_router_scaling_factor": 3.0, "sliding_window": 512, "num_nextn_predict_layers": 1,
	"layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
	"attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
	"swiglu_limits": [0.0, 0.0, 0.0, 0.0, 7, 0.0], "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.0, 16, 0.0], "yarn_only_types": ["full_attention"],
	"partial_rotary_factors": [0.5, 1.0, 1.0, 1.0, 0.5, 1.0], "rope_theta": [5000000.0, 10000.0, 10000.0, 10000.0, 5000000.0, 10000.0],
	"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072, "low_freq_factor": 1.0, "high_freq_factor": 32.0}%s}`

// TestPublishedStep35: lists by layer say which layers have more heads, another rope, experts and limits.
func TestPublishedStep35(t *testing.T) {
	m := modelOf(t, fmt.Sprintf(step35, ""), nil)
	for layer, want := range []struct {
		heads, rope, window int
		theta               float64
		kind                RopeType
		sparse              bool
		limit               float32
	}{{64, 64, 0, 5e6, RopeLlama3, false, 0}, {96, 128, 512, 1e4, RopeDefault, false, 0}, {96, 128, 512, 1e4, RopeDefault, false, 0},
		{96, 128, 512, 1e4, RopeDefault, true, 0}, {64, 64, 0, 5e6, RopeLlama3, true, 7}} {
		at := m.Root.Find(fmt.Sprintf("model.layers.%d", layer))
		a := at.Find("self_attn").Spec.(*AttentionSpec)
		moe, sparse := at.Find("mlp").Spec.(*MoESpec)
		got := want
		got.heads, got.rope, got.window, got.theta, got.kind, got.sparse, got.limit = a.Heads, a.Rope.Dim, a.Window, a.Rope.Theta, a.Rope.Type, sparse, 0
		if sparse {
			got.limit = moe.Limit
			if limited := moe.Act == ActSiLUAtMost; limited != (want.limit > 0) || moe.Scale != 3 || moe.TopK != 8 {
				t.Errorf("layer %d: %+v", layer, moe)
			}
		}
		if got != want {
			t.Errorf("layer %d: got %+v, want %+v", layer, got, want)
		}
	}
	shared := m.Root.Find("model.layers.4.mlp.shared_experts").Spec.(*MLPSpec)
	if shared.Act != ActSiLUAtMost || shared.Limit != 16 {
		t.Errorf("the shared expert has the limit %v of %v", shared.Limit, shared.Act)
	}
	if len(m.Ignore) == 0 || !strings.Contains(strings.Join(m.Ignore, " "), "model.layers.5.**") {
		t.Errorf("the layer for multi-token prediction is not ignored: %q", m.Ignore)
	}
}

// TestPublishedStep37IgnoresFurtherLayers: published files of Step 3.7 have the layers for multi-token prediction under the names
// that the text model has alone.
func TestPublishedStep37IgnoresFurtherLayers(t *testing.T) {
	m := modelOf(t, `{"model_type": "step3p7", "text_config": `+fmt.Sprintf(step35, "")+`}`, nil)
	for _, want := range []string{"model.layers.5.**", "model.language_model.layers.5.**"} {
		if !slices.Contains(m.Ignore, want) {
			t.Errorf("%s is not ignored: %q", want, m.Ignore)
		}
	}
}

// TestExpertsOfStep35AreSlabs: published files have the gates of all experts in a tensor, and their other halves in another one, also
// as codes with scales. Files that transformers saves have both in one.
func TestExpertsOfStep35AreSlabs(t *testing.T) {
	config := fmt.Sprintf(step35, `, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}`)
	const moe, own = "model.layers.3.moe.", "model.layers.3.mlp.experts.gate_up_proj"
	blocks := &Quant{Format: QuantFP8, Rows: 128, Columns: 128, ScaleDType: Float32}
	coded := func(name string) *Quant {
		q := *blocks
		q.Scales = name + "_scale_inv"
		return &q
	}
	gate, up := moe+"gate_proj.weight", moe+"up_proj.weight"
	halves := []RowRange{{0, 1280}, {1280, 2560}}
	for _, c := range []struct {
		name   string
		header CheckpointHeader
		want   []TensorSource
	}{
		{"published", fakeHeader{gate: BFloat16, up: BFloat16}, []TensorSource{{Tensor: gate, Slabs: true, Into: halves[0]}, {Tensor: up, Slabs: true, Into: halves[1]}}},
		{"as codes", shapedHeader{}.add(gate, Float8E4M3, 288, 1280, 4096).add(up, Float8E4M3, 288, 1280, 4096).
			add(gate+"_scale_inv", Float32, 288, 10, 32).add(up+"_scale_inv", Float32, 288, 10, 32),
			[]TensorSource{{Tensor: gate, Slabs: true, Into: halves[0], Quant: coded(gate)}, {Tensor: up, Slabs: true, Into: halves[1], Quant: coded(up)}}},
		{"saved", fakeHeader{own: BFloat16}, []TensorSource{{Tensor: own}}},
	} {
		p := modelOf(t, config, c.header).Root.Find("model.layers.3.mlp.experts").Param("gate_up_proj")
		if !reflect.DeepEqual(p.Sources, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, p.Sources, c.want)
		}
		for i := range p.Sources {
			stored, reason := p.Sources[i].Stored(p.Shape)
			if h, ok := c.header.(shapedHeader); ok {
				for _, s := range stored {
					if got := h[s.Tensor].Shape; !reflect.DeepEqual(s.Shape, got) {
						t.Errorf("%s: %s has shape %v, want %v (%s)", c.name, s.Tensor, s.Shape, got, reason)
					}
				}
			}
		}
	}
}

// TestUnsupportedValuesOfStep35 is TestUnsupportedValuesOfFamilies for step3p5.
func TestUnsupportedValuesOfStep35(t *testing.T) {
	for more, want := range map[string]string{
		`"per_layer_config": {"0": {"head_dim": 8}}`: "per_layer_config.0.head_dim: is not supported by layer",
		`"num_sliding_attention_heads": 12, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 2`: "num_sliding_attention_heads: 12 is not a multiple of the 8 key/value heads",
		`"attention_other_setting": {"num_attention_groups": 4}`:                                                         "attention_other_setting.num_attention_groups: 4 instead of the 8 of other layers",
		`"layer_types": ["sliding_attention", "full_attention"]`:                                                         "sliding_window: null, but there are layers of type sliding_attention",
		`"layer_types": ["full_attention"]`:                                                                              "layer_types: 1 types for 2 layers",
		`"layer_types": ["full_attention", "full_attention", "full_attention"]`:                                          "layer_types: 3 types for 2 layers",
		`"rope_theta": [10000]`: "rope_theta: 1 numbers for 2 layers",
		`"rope_parameters": {"rope_type": "default", "rope_theta": 10000}`: "rope_parameters.full_attention: missing",
		`"swiglu_limits": [1]`:                "swiglu_limits: 1 limits for 2 layers",
		`"swiglu_limits_shared": [0, 0.1]`:    "swiglu_limits_shared: 0.1, want at least 0.28",
		`"moe_layers_enum": "1,x"`:            "moe_layers_enum: x is not the number of a layer",
		`"moe_layers_enum": [1.5]`:            "moe_layers_enum: 1.5 is not the number of a layer",
		`"gating": "per-row"`:                 `gating: "per-row" is not supported`,
		`"use_bidirectional_attention": true`: "use_bidirectional_attention: true is not supported",
	} {
		unsupported(t, `{"model_type": "step3p5", "num_hidden_layers": 2, `+more+`}`, want)
	}
}
