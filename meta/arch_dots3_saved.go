package meta

import (
	"maps"
	"slices"
)

// dots3Windowed are the fields that layers with a window may override.
var dots3Windowed = []string{"num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "head_dim", "qk_nope_head_dim", "v_head_dim", "qk_rope_head_dim"}

// publishedDots3 returns a config that transformers saved in the form of published configs.
// Published configs state the fields of layers with a window once, with the prefix swa_.
// transformers states them per layer in per_layer_config, where a missing field has the value of
// the other layers. In its form, layer_types says which layers have an indexer, instead of
// use_dsa.
func (f *fields) publishedDots3() *fields {
	const name = "per_layer_config"
	layers, types := f.byLayer(name, f.count("num_hidden_layers", 46, 1, maxLayers)), f.texts("layer_types")
	if layers == nil {
		return f
	}
	out := f.without(name, "use_dsa")
	first := -1 // layer with a window
	for i, kind := range types {
		l := layers[i]
		if l == nil {
			l = &fields{at: f.at, values: nil, errs: f.errs}
		}
		switch {
		case kind != "sliding_attention" && len(l.values) > 0:
			f.fail(name, "layer %d has no window, and values of its own, which is not supported", i)
		case kind != "sliding_attention":
		case first < 0:
			first = i
			for _, field := range dots3Windowed {
				out.values["swa_"+field] = f.values[field]
				if v, there := l.values[field]; there {
					out.values["swa_"+field] = v
				}
			}
			for field := range l.values {
				if !slices.Contains(dots3Windowed, field) {
					l.fail(field, "is not supported by layer")
				}
			}
		case !maps.Equal(l.values, layers[first].all()):
			f.fail(name, "layers %d and %d have windows and different values, which is not supported", first, i)
		}
	}
	indexed, full := slices.Contains(types, "indexed_attention"), slices.Contains(types, "full_attention")
	if out.values["use_dsa"] = indexed; indexed && full {
		f.fail("layer_types", "indexed_attention and full_attention together are not supported")
	}
	return out
}

// all returns the values of f, which may be nil.
func (f *fields) all() map[string]any {
	if f == nil {
		return nil
	}
	return f.values
}
