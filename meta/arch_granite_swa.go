package meta

import (
	"slices"
	"strconv"
)

// graniteSWA is GraniteSWAForCausalLM: granite with a window in most layers, sinks in attention,
// and a rotary base for each layer.
func graniteSWA(f *fields, b *Builder) {
	d := readDecoder(f, "GraniteSWA", decoderDefaults{
		vocab: 100352, hidden: 2560, inner: 8192, layers: 24, heads: 20, kvHeads: 4,
		context: 8192, eps: 1e-5, act: "silu", tied: true, rope: ropeDefaults{theta: 10000},
	})
	attentionBias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	w, scale := f.graniteWiring()
	attention := d.graniteWindows(f, &w, attentionBias, scale)
	d.causalLM(f, b, w, func(b *Builder, i int) {
		attention(b, i)
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// graniteMoESWA is GraniteMoeSWAForCausalLM: granitemoeshared with the attention of granite_swa.
func graniteMoESWA(f *fields, b *Builder) {
	d := readGraniteMoE(f, "GraniteMoeSWA")
	bias := f.bool("attention_bias", false)
	w, scale := f.graniteWiring()
	attention := d.graniteWindows(f, &w, bias, scale)
	d.graniteMixtures(f, b, w, attention)
}

// graniteWindows reads the windows and the rotary bases of layers, adds the rotary modules to w,
// and returns the function that adds a layer's attention.
func (d *decoder) graniteWindows(f *fields, w *wiring, bias bool, scale float32) func(b *Builder, layer int) {
	sliding := d.sliding(f, func(i int) bool { return i%4 != 0 })
	window := f.slidingWindow(128, sliding)
	ropes, bases := d.layerBases(f)
	w.rotary = func(b *Builder) {
		class := d.class + "RotaryEmbedding"
		b.Rotary(class, d.rope)
		list := b.Child("rotary_embs", "ModuleList")
		for i, r := range bases {
			list.rotaryNamed(strconv.Itoa(i), class, r)
		}
	}
	return func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, Scale: scale, Window: windowIf(sliding[i], window), Sinks: "sinks", Rope: ropes[i]})
		a.Param("sinks", d.heads)
	}
}

// layerBases reads layer_rope_theta. It returns the rotary embedding of each layer, which is
// noRope if the base is 0, and one rotary embedding per base, in their order. Without the field,
// all layers have the model's.
func (d *decoder) layerBases(f *fields) (ropes, bases []*RopeSpec) {
	const name = "layer_rope_theta"
	ropes = slices.Repeat([]*RopeSpec{d.rope}, d.layers)
	if !f.has(name) {
		return ropes, []*RopeSpec{d.rope}
	}
	thetas := f.floats(name)
	if len(thetas) != d.layers {
		f.fail(name, "%d bases for %d layers", len(thetas), d.layers)
		return ropes, nil
	}
	known := map[float64]*RopeSpec{0: noRope}
	for i, theta := range thetas {
		if theta < 0 {
			f.fail(name, "%v is negative", theta)
		}
		if known[theta] == nil {
			r := *d.rope
			r.Theta = theta
			known[theta] = &r
			bases = append(bases, &r)
		}
		ropes[i] = known[theta]
	}
	slices.SortFunc(bases, func(a, b *RopeSpec) int {
		if a.Theta < b.Theta {
			return -1
		}
		return 1
	})
	return ropes, bases
}
