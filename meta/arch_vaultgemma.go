package meta

// vaultGemma is VaultGemmaForCausalLM: gemma2 without the norms after attention and MLP.
func vaultGemma(f *fields, b *Builder) {
	d := readDecoder(f, "VaultGemma", gemmaDefaults(256000, 8192))
	d.normSpec.Offset = 1
	g := d.readGemma(f, 50, 30)
	sliding := d.sliding(f, func(i int) bool { return i%2 == 0 })
	w := g.wiring(d)
	w.block.PostAttentionNorm, w.block.PostMLPNorm = "", ""
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.attention(b, g.bias, g.bias, AttentionSpec{
			Layer: i, Scale: g.scale, Softcap: g.softcap, Window: windowIf(sliding[i], g.window),
		})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "pre_feedforward_layernorm")
	})
}
