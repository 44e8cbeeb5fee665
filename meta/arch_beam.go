package meta

import (
	"math"
	"slices"
)

// beam is BeamForCausalLM: gated attention with norms of query and key heads, norms before and
// after the branches, and after dense layers MoE layers with grouped sigmoid routing. Layers with
// a window have a rope; the others scale queries by their position. Sums weigh the residual
// stream and all branches so far equally.
func beam(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta"), "Beam", decoderDefaults{
		vocab: 151936, hidden: 5120, inner: 20480, layers: 52, heads: 48, kvHeads: 8, headDim: 128,
		context: 8192, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})}
	m := &beamLayers{deepseek: d, bias: f.bool("attention_bias", false), sliding: d.sliding(f, func(i int) bool { return i+1 < d.layers && (i+1)%6 != 0 })}
	m.window = f.slidingWindow(512, m.sliding)
	m.readRopes(f)
	d.router, d.wideRouter, d.correction = "BeamTopKRouter", true, Float32
	d.readMixture(f, mixtureDefaults{inner: 2560, count: "num_experts", experts: 256, topK: 8, scale: 2.5, groups: 8, topGroups: 4})
	d.shared, d.moe.Shared = 0, "" // the reference has none regardless of the config
	sparse := d.layersWithMixture(f, func(i int) bool { return i >= 3 })
	w := wiring{
		spec:   CausalLMSpec{LogitSoftcap: f.cap("final_logit_softcapping", 30)},
		rotary: func(b *Builder) { b.layerRotary("BeamRotaryEmbedding", m.sliding, m.full, m.local) },
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		b.Runs(KindBlock, m.wired(i))
		m.attention(b, i)
		if sparse[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
	})
}

// beamLayers holds properties of layers that decoder does not hold.
type beamLayers struct {
	*deepseek
	bias        bool
	window      int
	sliding     []bool
	full, local *RopeSpec // noRope for none
}

// readRopes reads the ropes of the two kinds of layers. By default layers with a window have a
// rope. A kind whose parameters are null has none.
func (m *beamLayers) readRopes(f *fields) {
	params := f.object("rope_parameters")
	read := func(kind string, rope *RopeSpec) *RopeSpec {
		if params == nil {
			return rope
		}
		p := params.object(kind)
		switch {
		case p != nil:
			return f.ropeFrom(p, true, ropeDefaults{theta: 10000, headDim: m.headDim, context: m.context})
		case !params.null(kind):
			params.fail(kind, "missing, but there are layers of this type")
		}
		return noRope
	}
	if m.local = m.rope; slices.Contains(m.sliding, true) {
		m.local = read("sliding_attention", m.rope)
	}
	if m.full = noRope; slices.Contains(m.sliding, false) {
		m.full = read("full_attention", noRope)
	}
	m.rope = m.local
	if m.rope == noRope {
		m.rope = m.full
	}
}

// wired returns the block of a layer. In the n-th sum of the model, the square of the branch's
// factor is 1/n and that of the residual stream's is (n - 1)/n. The embeddings are the first
// term.
func (m *beamLayers) wired(layer int) *BlockSpec {
	n := float64(2 * (layer + 1))
	return &BlockSpec{
		AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
		MLPNorm: "pre_feedforward_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm",
		ResidualScale: float32(1 / math.Sqrt(n)), AttentionSkipScale: float32(math.Sqrt((n - 1) / n)),
		MLPScale: float32(1 / math.Sqrt(n+1)), MLPSkipScale: float32(math.Sqrt(n / (n + 1))),
	}
}

func (m *beamLayers) attention(b *Builder, i int) {
	s := AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm", Gate: "gate_proj", GateBias: "gate_bias", Window: windowIf(m.sliding[i], m.window), Rope: m.full}
	if m.sliding[i] {
		s.Rope = m.local
	}
	if s.Rope == noRope {
		s.QueryRope = &RopeSpec{Type: RopeNone, Dim: m.headDim, Growth: 0.1, GrowthEvery: 2048, GrowthShift: 1, GrowthPower: true}
	}
	a := m.decoder.attention(b, m.bias, m.bias, s)
	m.norm(a, "q_norm", m.headDim)
	m.norm(a, "k_norm", m.headDim)
	a.Linear("gate_proj", m.hidden, m.heads*m.headDim, false)
	a.Param("gate_bias", m.heads)
}
