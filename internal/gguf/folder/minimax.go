package folder

// lightningGate is a tensor of the blocks with lightning attention, and of no others.
const lightningGate = "attn_gate.weight"

// minimax01Names are those of MiniMax-Text-01, whose two kinds of attention have other names for the projection of
// the result.
var minimax01Names = names{
	layers: llamaNames.layers, whole: llamaNames.whole, block: llamaNames.block,
	mark: lightningGate, other: map[string]string{"attn_output": "self_attn.out_proj"},
}.with(mixtralNames).with(map[string]string{
	"attn_qkv": "self_attn.qkv_proj", "attn_gate": "self_attn.output_gate", "attn_norm_2": "self_attn.norm",
})

// minimax01Config: the file has one factor of the residual stream for all branches, whose results have none.
func minimax01Config(k *keys, c object) {
	c["num_local_experts"], c["num_experts_per_tok"] = k.size("expert_count"), k.size("expert_used_count")
	k.partial(c, "partial_rotary_factor")
	keep := k.float("residual_scale", 1)
	for _, branch := range []string{"full_attn", "linear_attn", "mlp"} {
		c[branch+"_alpha_factor"], c[branch+"_beta_factor"] = keep, 1
	}
	linear := make([]bool, k.layers())
	for i := range linear {
		linear[i] = k.hasAt(i, lightningGate)
	}
	c["layer_types"] = kinds(linear, "full_attention", "linear_attention")
}
