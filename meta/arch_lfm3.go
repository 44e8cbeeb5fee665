package meta

import "encoding/json"

// lfm3 is Lfm3ForCausalLM: lfm2 with windows in some of its attention, norms after each operator
// and MLP, a gate for each head, and a rope for each type of attention.
func lfm3(f *fields, b *Builder) {
	d := readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"), "Lfm3", decoderDefaults{
		vocab: 128000, hidden: 2048, inner: 7680, layers: 24, heads: 16, kvHeads: 4, headDim: 128,
		context: 128000, eps: 1e-5, epsField: "norm_eps", act: "silu", actField: derived, tied: true, rope: ropeDefaults{theta: 10000},
	})
	l := &lfm3Layers{decoder: d, bias: f.bool("attention_bias", false), gated: f.bool("use_attention_gate", true)}
	l.read(f)
	if l.sandwich = f.bool("use_sandwich_norm", true); l.sandwich {
		l.block.PostAttentionNorm, l.block.PostMLPNorm = "post_operator_norm", "post_ffn_norm"
	}
	convolve := d.shortConvolutions(f, 7)
	attentions := 0
	w := wiring{block: l.block, lastNorm: "embedding_norm", rotary: func(b *Builder) {
		b.layerRotary("Lfm3RotaryEmbedding", l.sliding, l.ropes[0], l.ropes[1])
	}}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		if l.kinds[i] == "conv" {
			convolve(b, l.block)
		} else {
			l.attention(b, attentions)
			attentions++
		}
		d.lfm2MLP(b)
		d.norms(b, "operator_norm", "ffn_norm")
		if l.sandwich {
			d.norms(b, "post_operator_norm", "post_ffn_norm")
		} else {
			b.Child("post_operator_norm", "Identity")
			b.Child("post_ffn_norm", "Identity")
		}
	})
}

// lfm3Layers holds properties of layers that decoder does not hold.
type lfm3Layers struct {
	*decoder
	block                 BlockSpec
	kinds                 []string // of layers: conv, sliding_attention or full_attention
	bias, gated, sandwich bool
	sliding               []bool // of layers with attention
	window                int
	ropes                 [2]*RopeSpec // of layers with full attention, and of those with a window; nil without such layers
}

func (l *lfm3Layers) read(f *fields) {
	l.block = BlockSpec{AttentionNorm: "operator_norm", Attention: "self_attn", MLPNorm: "ffn_norm", MLP: "feed_forward"}
	l.kinds = l.layerKinds(f, func(i int) string {
		switch {
		case i%4 == 2:
			return "full_attention"
		case i%4 == 0 && i > 0:
			return "sliding_attention"
		}
		return "conv"
	}, "conv", "full_attention", "sliding_attention")
	for _, kind := range l.kinds {
		if kind != "conv" {
			l.sliding = append(l.sliding, kind == "sliding_attention")
		}
	}
	l.window = f.slidingWindow(256, l.sliding)
	l.readRopes(f)
}

// readRopes reads the ropes. If a layer type's parameters are missing, full attention rotates
// half of each head.
func (l *lfm3Layers) readRopes(f *fields) {
	g := f.without()
	if f.object("rope_parameters") == nil {
		g.values["rope_parameters"] = map[string]any{
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": json.Number("10000")},
			"full_attention":    map[string]any{"rope_type": "proportional", "rope_theta": json.Number("1e6"), "partial_rotary_factor": json.Number("0.5")},
		}
	}
	rope := l.rope
	l.ropes = l.typedRopes(g, l.sliding, ropeDefaults{theta: 1e6, proportional: true}, ropeDefaults{theta: 10000, proportional: true})
	if l.rope == nil {
		l.rope = rope // convolutions alone have no rope, and the usual context
	}
}

func (l *lfm3Layers) attention(b *Builder, index int) {
	s := AttentionSpec{Layer: index, QNorm: "q_norm", KNorm: "k_norm", Rope: l.ropes[0]}
	if l.sliding[index] {
		s.Rope, s.Window = l.ropes[1], l.window
	}
	if l.gated {
		s.Gate, s.GateByHead = "g_proj", true
	}
	a := l.decoder.attention(b, l.bias, l.bias, s)
	l.norm(a, "q_norm", l.headDim)
	l.norm(a, "k_norm", l.headDim)
	if l.gated {
		g := a.Child("g_proj", "Linear").Published(a.path+".gate_proj").Runs(KindLinear, &LinearSpec{In: l.hidden, Out: l.heads})
		g.Param("weight", l.heads, l.hidden)
	}
}
