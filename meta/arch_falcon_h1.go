package meta

import "strconv"

// falconH1 is FalconH1ForCausalLM: each layer has a Mamba2 mixer parallel to its attention, and
// nearly everything has a multiplier.
func falconH1(f *fields, b *Builder) {
	d := readDecoder(f, "FalconH1", decoderDefaults{
		vocab: 128000, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 8192, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	m := &mixer{class: d.class, act: d.act, bias: f.bool("mamba_proj_bias", false), hidden: d.hidden, eps: float64(d.normSpec.Eps)}
	inner := f.count("mamba_expand", 2, 1, 1<<10) * d.hidden
	if !f.null("mamba_d_ssm") {
		inner = f.size("mamba_d_ssm", 1024)
	}
	m.readHybrid(f, mixerDefaults{heads: 128, groups: 1, state: 256, inner: inner})
	m.limits(f, "time_step_limit")
	m.separateBias, m.outBias = true, f.bool("projectors_bias", false)
	if f.bool("mamba_rms_norm", false) {
		m.normClass, m.spec.NormFirst = "FalconH1RMSNormGated", f.bool("mamba_norm_before_gate", true)
	}
	m.spec.InScale, m.spec.OutScale = f.multiplier("ssm_in_multiplier"), f.multiplier("ssm_out_multiplier")
	copy(m.spec.Scales[:], f.multipliers("ssm_multipliers", 5))
	mlp := MLPSpec{Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Act: d.act.act}
	if by := f.multipliers("mlp_multipliers", 2); by != nil {
		mlp.GateScale, mlp.Scale = by[0], by[1]
	}
	block := BlockSpec{AttentionNorm: "input_layernorm", Attention: "self_attn", AddedMixer: "mamba",
		AttentionIn: f.multiplier("attention_in_multiplier"), AttentionOut: f.multiplier("attention_out_multiplier"),
		MLPNorm: "pre_ff_layernorm", MLP: "feed_forward"}
	keys := f.multiplier("key_multiplier")
	spec := CausalLMSpec{Embed: "model.embed_tokens", EmbedScale: f.multiplier("embedding_multiplier"), Layers: "model.layers",
		Norm: "model.final_layernorm", Head: "lm_head", LogitScale: f.multiplier("lm_head_multiplier"),
		Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context)}
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &spec)
	model := b.Child("model", "FalconH1Model")
	embed := model.Embedding("embed_tokens", "Embedding", d.vocab, d.hidden)
	layers := model.Child("layers", "ModuleList")
	for i := range d.layers {
		layer := layers.Child(strconv.Itoa(i), "FalconH1DecoderLayer").Runs(KindBlock, &block)
		ff := layer.Child("feed_forward", d.mlpClass)
		d.gatedMLPIn(ff, d.inner, mlpBias)
		ff.Runs(KindMLP, &mlp)
		a := m.add(layer, "mamba", "FalconH1Mixer", i)
		a.Buffer("mup_vector", a.tree.dtype, false, 1, 1, a.node.Child("in_proj").Params[0].Shape[0])
		d.attention(layer, bias, bias, AttentionSpec{Layer: i, Scale: rootScale(float64(d.headDim)) * keys})
		d.norms(layer, "input_layernorm", "pre_ff_layernorm")
	}
	d.norm(model, "final_layernorm", d.hidden)
	model.Rotary("FalconH1RotaryEmbedding", d.rope)
	b.head(embed, d.hidden, d.vocab, d.tied, "lm_head.weight")
	b.Ignore("model.layers.*.self_attn.rotary_emb.inv_freq")
}

// multiplier returns a multiplier, which must not be 0. The default is 1.
func (f *fields) multiplier(name string) float32 {
	x := float32(f.float(name, 1))
	if x == 0 {
		f.fail(name, "is 0")
	}
	return x
}

// multipliers returns a list of n multipliers, which must not be 0, or nil if there is none.
func (f *fields) multipliers(name string, n int) []float32 {
	list := f.floats(name)
	if list == nil {
		return nil
	}
	out := make([]float32, n)
	if len(list) != n {
		f.fail(name, "%d numbers instead of %d", len(list), n)
		return out
	}
	for i, x := range list {
		if out[i] = float32(x); out[i] == 0 {
			f.fail(name, "holds a 0")
		}
	}
	return out
}
