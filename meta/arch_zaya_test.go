package meta

import (
	"strings"
	"testing"
)

// TestUnsupportedValuesOfZaya checks the errors of fields whose other values transformers or Heft do not have.
func TestUnsupportedValuesOfZaya(t *testing.T) {
	for config, want := range map[string]string{
		`{"model_type": "zaya", "num_experts_per_tok": 2}`:                                                     "num_experts_per_tok: 2 is not supported, want 1",
		`{"model_type": "zaya", "cca_time1": 3}`:                                                               "cca_time1: 3 is not supported, want 2",
		`{"model_type": "zaya", "cca_time0": 1}`:                                                               "cca_time0: 1 is not within 2 and 1024",
		`{"model_type": "zaya", "num_hidden_layers": 1, "layer_types": ["hybrid_sliding"]}`:                    "sliding_window",
		`{"model_type": "zaya", "num_hidden_layers": 1, "layer_types": ["full_attention"]}`:                    `layer_types: "full_attention" is not supported`,
		`{"model_type": "zaya", "num_hidden_layers": 1, "rope_parameters": {"hybrid_sliding": {"a": 1}}}`:      "rope_parameters.hybrid: missing",
		`{"model_type": "zaya", "rope_parameters": {"hybrid": {"rope_type": "none"}, "rope_type": "default"}}`: `rope_parameters.hybrid.rope_type: "none" is not supported`,
	} {
		unsupported(t, config, want)
	}
}

// TestRouterStatesOfZayaBeginInTheFirstLayer: the first layer has no state before it, and its router no factor.
func TestRouterStatesOfZayaBeginInTheFirstLayer(t *testing.T) {
	m := build(t, []byte(`{"model_type": "zaya", "num_hidden_layers": 3, "hidden_size": 16, "vocab_size": 40, "num_experts": 3}`))
	for i, path := range []string{"model.layers.0.mlp", "model.layers.1.mlp", "model.layers.2.mlp"} {
		node := m.Root.Find(path)
		s := node.Spec.(*MoESpec)
		if has := node.Find("gate").Param("router_states_scale") != nil; has != (i > 0) || (s.Deep.Factor != "") != has {
			t.Errorf("%s: factor %q, parameter %v", path, s.Deep.Factor, has)
		}
		if s.Identity != 1 || !s.Skips {
			t.Errorf("%s: %d choices without an expert, skipped %v", path, s.Identity, s.Skips)
		}
	}
}

// TestRoutersOfZayaAreNotConverted: as routers of one map, those of several keep their dtype, because rounding changes choices.
func TestRoutersOfZayaAreNotConverted(t *testing.T) {
	m := build(t, []byte(`{"model_type": "zaya", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 64, "num_experts": 3, "router_hidden_size": 64, "moe_intermediate_size": 64, "torch_dtype": "bfloat16"}`))
	converted, queries := m.Root.Quantized(), 0
	for path, node := range m.Root.Walk() {
		p := node.Param("weight")
		if p == nil || converted[p] == 0 {
			continue
		}
		if strings.Contains(path, ".gate.") {
			t.Errorf("%s is converted", path)
		}
		if strings.HasSuffix(path, ".q_proj") {
			queries++
		}
	}
	if queries != 2 {
		t.Errorf("%d maps of queries are converted, want 2", queries)
	}
}
