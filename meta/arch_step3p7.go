package meta

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// step37 is the text model of Step 3.7, and Step 3.5: Laguna's attention with sigmoid gates,
// norms whose weights have an offset of 1, another number of query heads in layers with a window,
// and MoE layers whose gates are limited in some layers. Published files have the MoE layer under
// moe, and the shared expert next to it.
func step37(f *fields, b *Builder) {
	for _, alias := range [][2]string{{"num_key_value_heads", "num_attention_groups"}, {"n_routed_experts", "moe_num_experts"},
		{"num_experts_per_tok", "moe_top_k"}, {"share_expert_dim", "share_expert_dims"}, {"num_nextn_predict_layers", "num_mtp_layers"}} {
		f = f.renamed(alias[0], alias[1])
	}
	plain := f.without("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "hidden_act")
	s := &step37Layers{lagunaLayers: &lagunaLayers{decoder: readDecoder(plain, "Step3p7", decoderDefaults{
		vocab: 128815, hidden: 4096, inner: 11264, layers: 45, heads: 64, kvHeads: 8, headDim: 128,
		context: 128000, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})}}
	s.normSpec.Offset = 1
	ahead := f.count("num_nextn_predict_layers", 0, 0, maxLayers)
	f = f.layersAlone(s.layers, ahead, "layer_types", "mlp_layer_types", "swiglu_limits", "swiglu_limits_shared", "rope_theta", "partial_rotary_factors")
	s.sliding = s.decoder.sliding(f, func(int) bool { return false })
	s.window, s.bias, s.mlpBias = f.slidingWindow(0, s.sliding), f.bool("attention_bias", false), f.bool("mlp_bias", false)
	s.scale = rootScale(f.positive("query_pre_attn_scalar", float64(s.headDim)))
	s.readQueries(f)
	s.readGating(f)
	s.readTypedRopes(f)
	s.readMixture(f)
	if f.bool("use_bidirectional_attention", false) {
		f.fail("use_bidirectional_attention", "true is not supported")
	}
	b.publishes(".mlp.gate.e_score_correction_bias", ".moe.router_bias", ".mlp.gate.", ".moe.gate.", ".mlp.shared_experts.", ".share_expert.")
	w := wiring{block: preNorm(), modelClass: "Step3p7TextModel", rotary: func(b *Builder) { b.layerRotary("Step3p7RotaryEmbedding", s.sliding, s.ropes[0], s.ropes[1]) }}
	s.causalLM(f, b, w, func(b *Builder, i int) {
		s.attention(b, i)
		if s.sparse[i] {
			s.mixture(b, i)
		} else {
			s.limitedMLP(b.Child("mlp", s.mlpClass), s.inner, i)
		}
		s.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	for i := range ahead { // Step 3.7 is published with the names of its text model alone
		b.Ignore(fmt.Sprintf("%s.layers.%d.**", b.tree.textPath(), s.layers+i), fmt.Sprintf("model.layers.%d.**", s.layers+i))
	}
}

// layersAlone returns f with per-layer lists cut to the model's layers, where they also include
// layers for multi-token prediction.
func (f *fields) layersAlone(layers, ahead int, names ...string) *fields {
	g := f.without()
	for _, name := range names {
		if list, ok := g.values[name].([]any); ok && len(list) == layers+ahead {
			g.values[name] = list[:layers]
		}
	}
	return g
}

// step37Layers holds properties of layers that lagunaLayers does not hold.
type step37Layers struct {
	*lagunaLayers
	mlpBias       bool
	sparse        []bool
	moe           MoESpec
	routed, width int       // channels inside an expert, and inside the shared one
	limits        []float32 // of the gates of each layer's experts; 0: none
	sharedLimits  []float32 // of its other MLP
}

// readQueries reads the query heads of each layer, which transformers saves per layer. Published
// files state those of layers with a window in attention_other_setting.
func (s *step37Layers) readQueries(f *fields) {
	name, window := "num_sliding_attention_heads", s.heads
	if other := f.object("attention_other_setting"); other != nil {
		window = other.count("num_attention_heads", s.heads, 1, maxHeads)
		for field, want := range map[string]int{"num_attention_groups": s.kvHeads, "head_dim": s.headDim} {
			if got := other.count(field, want, 1, maxHeads); got != want {
				other.fail(field, "%d instead of the %d of other layers is not supported", got, want)
			}
		}
	}
	window = f.count(name, window, 1, maxHeads)
	layers := f.byLayer("per_layer_config", s.layers)
	for i, sliding := range s.sliding {
		n := s.heads
		if l := layers[i]; l != nil {
			n = l.count("num_attention_heads", n, 1, maxHeads)
			for field := range l.values {
				if field != "num_attention_heads" {
					l.fail(field, "is not supported by layer")
				}
			}
		} else if sliding && layers == nil {
			n = window
		}
		s.queries = append(s.queries, n)
	}
	s.checkQueries(f, name)
}

// readTypedRopes reads the ropes of both types of layers. Published files have a base and a
// rotated part of heads per layer, of which the first layer of a type states those of the type, and
// a scaling for layers with full attention.
func (s *step37Layers) readTypedRopes(f *fields) {
	def := ropeDefaults{theta: 10000, partial: 1}
	if f.object("rope_parameters") != nil {
		s.ropes = s.typedRopes(f, s.sliding, def, def)
		return
	}
	params := map[string]any{}
	for i, sliding := range s.sliding {
		name := "sliding_attention"
		if !sliding {
			name = "full_attention"
		}
		if params[name] != nil {
			continue // transformers takes the values of the first layer of a type
		}
		kind := map[string]any{"rope_type": "default"}
		s.ofLayer(f, kind, "rope_theta", "rope_theta", i)
		s.ofLayer(f, kind, "partial_rotary_factors", "partial_rotary_factor", i)
		if scaling := f.object("rope_scaling"); scaling != nil && !sliding {
			maps.Copy(kind, scaling.values)
		}
		params[name] = kind
	}
	nested := f.without("rope_scaling", "rope_theta", "partial_rotary_factor")
	nested.values["rope_parameters"] = params
	s.ropes = s.typedRopes(nested, s.sliding, def, def)
}

// ofLayer sets kind[name] to the value of field for layer i. The field states it per layer, or
// once for all layers.
func (s *step37Layers) ofLayer(f *fields, kind map[string]any, field, name string, i int) {
	switch v := f.values[field].(type) {
	case nil:
		if name == "rope_theta" {
			kind[name] = json.Number("10000")
		}
	case []any:
		if len(v) != s.layers {
			f.fail(field, "%d numbers for %d layers", len(v), s.layers)
			return
		}
		kind[name] = v[i]
	default:
		kind[name] = v
	}
}

func (s *step37Layers) readMixture(f *fields) {
	m := f.experts("n_routed_experts", 288, "num_experts_per_tok", 8)
	m.Router, m.Experts, m.Shared, m.Correction = "gate", "experts", "shared_experts", "e_score_correction_bias"
	m.Score, m.Renormalise, m.Act = ScoreSigmoid, true, ActSiLU
	m.Scale = float32(f.positive("moe_router_scaling_factor", 1))
	s.moe = *m
	s.routed, s.width = f.size("moe_intermediate_size", 1280), f.size("share_expert_dim", 1280)
	listed, named := f.layersNamed("moe_layers_enum")
	s.sparse = s.layersWithMixture(f, func(i int) bool { return named[i] || !listed && i >= 3 })
	s.limits, s.sharedLimits = s.readLimits(f, "swiglu_limits"), s.readLimits(f, "swiglu_limits_shared")
}

// layersNamed returns the layers that a field lists, as a list or as text separated by commas.
func (f *fields) layersNamed(name string) (listed bool, layers map[int]bool) {
	var list []any
	switch v := f.values[name].(type) {
	case nil:
		return false, nil
	case string:
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
	default:
		list = f.list(name)
	}
	layers = map[int]bool{}
	for _, v := range list {
		i := 0
		if _, err := fmt.Sscan(fmt.Sprint(v), &i); err != nil || fmt.Sprint(i) != fmt.Sprint(v) || i < 0 {
			f.fail(name, "%.40v is not the number of a layer", v)
		}
		layers[i] = true
	}
	return true, layers
}

// readLimits reads a limit for each layer. null and 0 mean none.
func (s *step37Layers) readLimits(f *fields, name string) []float32 {
	limits, list := make([]float32, s.layers), f.list(name)
	if list != nil && len(list) < s.layers {
		f.fail(name, "%d limits for %d layers", len(list), s.layers)
		return limits
	}
	for i := range list[:min(len(list), s.layers)] {
		if list[i] == nil {
			continue
		}
		v, ok := f.number(name, list[i])
		if limits[i] = float32(v); ok && v != 0 && v < 0.28 {
			f.fail(name, "%v, want at least 0.28, or 0 for none", v)
		}
	}
	return limits
}

// limitedMLP adds an MLP of layer i to m, its scope.
func (s *step37Layers) limitedMLP(m *Builder, inner, i int) {
	s.gatedMLPIn(m, inner, s.mlpBias)
	if limit := s.sharedLimits[i]; limit > 0 {
		spec := m.node.Spec.(*MLPSpec)
		spec.Act, spec.Limit = ActSiLUAtMost, limit
	}
}

func (s *step37Layers) mixture(b *Builder, i int) {
	spec := s.moe
	if limit := s.limits[i]; limit > 0 {
		spec.Act, spec.Limit = ActSiLUAtMost, limit
	}
	m := b.Child("mlp", s.class+"SparseMoeBlock").Runs(KindMoE, &spec)
	gate := m.Child("gate", s.class+"TopKRouter")
	gate.Param("weight", spec.Count, s.hidden)
	gate.Buffer(spec.Correction, b.tree.dtype, true, spec.Count)
	e := m.Child(spec.Experts, s.class+"Experts")
	published := b.path + ".moe."
	e.ParamFrom(spec.GateUp, []int{spec.Count, 2 * s.routed, s.hidden}, []TensorSource{
		{Tensor: published + "gate_proj.weight", Slabs: true, Into: RowRange{0, s.routed}},
		{Tensor: published + "up_proj.weight", Slabs: true, Into: RowRange{s.routed, 2 * s.routed}},
	}, []TensorSource{{Tensor: Join(e.path, spec.GateUp)}}, e.eachExpert(spec.Count, s.routed, "gate_proj", "up_proj"), e.eachExpert(spec.Count, 0, "gate_up_proj"))
	e.ParamFrom(spec.Down, []int{spec.Count, s.hidden, s.routed}, []TensorSource{{Tensor: published + "down_proj.weight"}},
		[]TensorSource{{Tensor: Join(e.path, spec.Down)}}, e.eachExpert(spec.Count, 0, "down_proj"))
	e.Activation("act_fn", s.act.class, s.act.act)
	s.limitedMLP(m.Child(spec.Shared, s.mlpClass), s.width, i)
}
