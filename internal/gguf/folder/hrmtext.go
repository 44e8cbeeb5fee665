package folder

// hrmTextNames: the blocks of the low stack come before those of the high one. The projections of a block are one
// matrix in published folders; the model also takes them apart.
var hrmTextNames = names{
	stacks: []string{"model.L_module.layers.", "model.H_module.layers."},
	whole:  map[string]string{"token_embd": "model.embed_tokens", "output": "lm_head", "hrm.z_l_init": "model.z_L_init"},
	block:  llamaNames.block,
}.with(map[string]string{"attn_gate": "self_attn.gate_proj"})

// hrmTextConfig: block_count counts a block each time that a token passes it.
func hrmTextConfig(k *keys, c object) {
	blocks, high, low := k.size(stackKey), k.size("hrm.h_cycles"), k.size("hrm.l_cycles")
	c["num_layers_per_stack"], c["H_cycles"], c["L_cycles"] = blocks, high, low
	if most := int64(maxLayers); blocks < 1 || blocks > most || high > most || low > most || blocks*high*(low+1) != k.layers() {
		k.fail(k.arch+".block_count", "got %d, want hrm.h_cycles %d · (hrm.l_cycles %d + 1) · %s %d", k.layers(), high, low, stackKey, blocks)
	}
	c["embedding_scale"] = k.float("embedding_scale", 1)
	c["prefix_lm"] = k.bool("hrm.prefix_lm", false)
}

// stackKey has the number of blocks of each stack of a model with several.
const stackKey = "hrm.layers_per_stack"
