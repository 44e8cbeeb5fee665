package folder

import "github.com/heftai/heft/meta"

// Conventions of llama.cpp's files. A model that it rotates by neighbouring dimensions has permuted rows of
// queries and keys, unless transformers rotates it so as well.
var (
	pairs        = meta.Conventions{RopePairs: true}
	wholeNorms   = meta.Conventions{WholeNorms: true}
	fusedInParts = meta.Conventions{FusedInParts: true}
)

var (
	decays                   = meta.Conventions{DecayRates: true}
	decayPairs               = meta.Conventions{DecayRates: true, RopePairs: true}
	splitDelta               = meta.Conventions{WholeNorms: true, DecayRates: true, SplitDelta: true}
	tiledDelta               = meta.Conventions{WholeNorms: true, DecayRates: true, TiledHeads: true}
	graniteHybridConventions = meta.Conventions{RopePairs: true, DecayRates: true, SeparateGates: true}
)

// architectures is the table, sorted by name. Of rows of one name the first counts whose condition holds.
var architectures = []architecture{
	{name: "afmoe", modelType: "afmoe", names: llamaNames.with(expertNames).with(deepseekNames).with(afMoENames), config: afMoEConfig},
	{name: "apertus", modelType: "apertus", names: llamaNames.with(apertusNames), config: apertusConfig, extras: xielu},
	{name: "arcee", modelType: "arcee", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "bailingmoe2", modelType: "glm4_moe", names: llamaNames.with(expertNames).with(deepseekNames), config: glm4MoEConfig},
	{name: "bailingmoe3", modelType: "bailing_hybrid", names: bailing3Names, conventions: meta.Conventions{DecayRates: true, SplitLatent: true},
		config: bailing3Config, extras: bailing3Rates, lists: sparse},
	{name: "bitnet", modelType: "bitnet", names: llamaNames.with(bitnetNames), config: bitnetConfig},
	{name: "bloom", modelType: "bloom", names: bloomNames, conventions: fusedInParts, config: bloomConfig},
	{name: "chatglm", modelType: "glm", names: llamaNames.with(map[string]string{"ffn_up": "mlp.gate_up_proj"}), config: glm4Config},
	{name: "cohere2", modelType: "cohere2", names: llamaNames, config: cohere2Config},
	{name: "cohere2moe", modelType: "cohere2_moe", names: llamaNames.with(expertNames).with(deepseekNames), config: cohere2MoEConfig},
	{name: "command-r", modelType: "cohere", names: llamaNames, config: cohereConfig},
	{name: "dbrx", modelType: "dbrx", names: dbrxNames, config: dbrxConfig},
	{name: "deepseek2", modelType: "youtu", when: lacksExperts, names: llamaNames.with(deepseekNames), conventions: meta.Conventions{SplitLatent: true}, config: (*keys).latent},
	{name: "deepseek2", modelType: "deepseek_v3", when: hasSplitLatent, others: []string{"deepseek_v2"}, names: llamaNames.with(expertNames).with(deepseekNames), conventions: meta.Conventions{SplitLatent: true}, config: deepseekConfig},
	{name: "deepseek2", modelType: "deepseek_v3", names: llamaNames.with(expertNames).with(deepseekNames), config: deepseekConfig},
	{name: "deepseek32", modelType: "deepseek_v32", names: llamaNames.with(expertNames).with(deepseekNames), conventions: splitLatent, config: sparseConfig},
	{name: "deepseek4", modelType: "deepseek_v4", names: deepseek4Names, config: deepseek4Config},
	{name: "dots1", modelType: "dots1", names: llamaNames.with(expertNames).with(deepseekNames), config: dotsConfig},
	{name: "dots3note", modelType: "dots3_note_text", names: dots3Names, conventions: meta.Conventions{SplitLatent: true, ScaledLatent: true}, config: dots3Config, lists: uneven},
	{name: "ernie4_5", modelType: "ernie4_5", names: llamaNames, config: ernieConfig},
	{name: "ernie4_5-moe", modelType: "ernie4_5_moe", names: llamaNames.with(expertNames).with(deepseekNames).with(ernieMoENames), config: ernieMoEConfig},
	{name: "exaone", modelType: "llama", names: llamaNames, config: llamaConfig},
	{name: "exaone-moe", modelType: "exaone_moe", names: llamaNames.with(expertNames).with(deepseekNames), config: exaoneMoEConfig},
	{name: "exaone4", modelType: "exaone4", names: llamaNames.with(sandwichNames), config: exaoneConfig},
	{name: "falcon", modelType: "falcon", when: hasTwoNorms, names: falconNames.with(falconTwoNorms), conventions: fusedInParts, config: falconConfig},
	{name: "falcon", modelType: "falcon", names: falconNames, conventions: fusedInParts, config: falconConfig},
	{name: "falcon-h1", modelType: "falcon_h1", names: falconH1Names, conventions: meta.Conventions{DecayRates: true, Scaled: true}, config: falconH1Config},
	{name: "gemma", modelType: "gemma", names: llamaNames, conventions: wholeNorms},
	{name: "gemma2", modelType: "gemma2", names: llamaNames.with(sandwichNames), conventions: wholeNorms, config: gemma2Config},
	{name: "gemma3", modelType: "gemma3_text", names: llamaNames.with(sandwichNames), conventions: wholeNorms, config: gemma3Config},
	{name: "gemma3n", modelType: "gemma3n_text", names: gemma3nNames, config: gemma3nConfig, lists: uneven},
	{name: "gemma4", modelType: "gemma4_text", names: gemma4Names, config: gemma4Config, lists: uneven},
	{name: "glm-dsa", modelType: "glm_moe_dsa", names: llamaNames.with(expertNames).with(deepseekNames), conventions: splitLatent, config: glmSparseConfig},
	{name: "glm4", modelType: "glm4", when: hasSections, names: llamaNames.with(glm4Names), conventions: meta.Conventions{RopeHalves: true}, config: glm4Config},
	{name: "glm4", modelType: "glm4", names: llamaNames.with(glm4Names), config: glm4Config},
	{name: "glm4moe", modelType: "glm4_moe", names: llamaNames.with(expertNames).with(deepseekNames).with(postNormNames), config: glm4MoEConfig},
	{name: "gpt-oss", modelType: "gpt_oss", names: llamaNames.with(expertNames).with(gptOSSNames), conventions: meta.Conventions{SeparateGates: true}, config: gptOSSConfig},
	{name: "gpt2", modelType: "gpt2", names: gpt2Names, config: gpt2Config},
	{name: "gptneox", modelType: "gpt_neox", names: neoXNames, conventions: fusedInParts, config: neoXConfig},
	{name: "granite", modelType: "granite", names: llamaNames, conventions: pairs, config: graniteConfig},
	{name: "granite_swa", modelType: "granitemoe_swa", when: hasExperts, names: graniteSWANames.with(graniteMoESWANames), conventions: pairs, config: graniteMoESWAConfig},
	{name: "granite_swa", modelType: "granite_swa", names: graniteSWANames, conventions: pairs, config: graniteSWAConfig},
	{name: "granitehybrid", modelType: "bamba", when: isBamba, names: falconH1Names, conventions: meta.Conventions{RopeSpread: true, DecayRates: true}, config: bambaConfig, lists: sparse},
	{name: "granitehybrid", modelType: "granitemoehybrid", when: hasExperts, names: graniteHybridNames.with(graniteMoENames),
		conventions: graniteHybridConventions, config: graniteHybridConfig, lists: sparse},
	{name: "granitehybrid", modelType: "granitemoehybrid", names: graniteHybridNames, conventions: graniteHybridConventions, config: graniteHybridConfig, lists: sparse},
	{name: "granitemoe", modelType: "granitemoe", others: []string{"granitemoeshared"}, names: llamaNames.with(graniteMoENames), conventions: meta.Conventions{RopePairs: true, SeparateGates: true}, config: graniteMoEConfig},
	{name: "hrm_text", modelType: "hrm_text", names: hrmTextNames, config: hrmTextConfig},
	{name: "hunyuan-dense", modelType: "hunyuan_v1_dense", names: llamaNames.with(hunyuanNames), config: hunyuanConfig},
	{name: "hunyuan-moe", modelType: "hunyuan_v1_moe", names: llamaNames.with(hunyuanNames).with(hunyuanMoENames), config: hunyuanMoEConfig},
	{name: "hy_v3", modelType: "hy_v3", names: llamaNames.with(expertNames).with(deepseekNames).with(hyV3Names), config: hyV3Config},
	{name: "hy_v4", modelType: "hy_v4", names: hy4Names, conventions: splitLatent, config: hy4Config},
	{name: "internlm2", modelType: "llama", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "jais2", modelType: "jais2", names: llamaNames, config: jais2Config},
	{name: "jamba", modelType: "jamba", names: jambaNames, conventions: decays, config: jambaConfig, lists: sparse},
	{name: "kimi-linear", modelType: "kimi_linear", when: hasAnySplitLatent, names: kimiNames, conventions: meta.Conventions{DecayRates: true, SplitLatent: true},
		config: kimiConfig, lists: sparse},
	{name: "kimi-linear", modelType: "kimi_linear", names: kimiNames, conventions: decays, config: kimiConfig, lists: sparse},
	{name: "laguna", modelType: "laguna", names: gatedNames, config: lagunaConfig, lists: uneven},
	{name: "lfm2", modelType: "lfm2", names: lfm2Names, config: lfm2Config, lists: sparse},
	{name: "lfm2moe", modelType: "lfm2_moe", names: lfm2Names.with(lfm2MoENames), config: lfm2MoEConfig, lists: sparse},
	{name: "llama", modelType: "mixtral", when: hasExperts, names: llamaNames.with(mixtralNames), conventions: pairs, config: mixtralConfig},
	{name: "llama", modelType: "llama", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "llama4", modelType: "llama4_text", names: llamaNames.with(llama4Names), conventions: meta.Conventions{SeparateGates: true}, config: llama4Config},
	{name: "mamba", modelType: "falcon_mamba", when: hasBareNorms, names: mambaNames, conventions: decays, config: mambaConfig},
	{name: "mamba", modelType: "mamba", names: mambaNames, conventions: decays, config: mambaConfig},
	{name: "mamba2", modelType: "mamba2", names: mamba2Names, conventions: decays, config: mamba2Config},
	{name: "mellum", modelType: "mellum", names: llamaNames.with(expertNames), config: mellumConfig},
	{name: "mimo2", modelType: "mimo_v2_flash", names: llamaNames.with(expertNames).with(deepseekNames).with(mimoNames), config: mimoConfig, lists: uneven},
	{name: "minicpm", modelType: "granite", names: llamaNames, conventions: pairs, config: miniCPMConfig},
	{name: "minicpm3", modelType: "minicpm3", names: llamaNames.with(deepseekNames), config: miniCPM3Config},
	{name: "minimax-01", modelType: "minimax", names: minimax01Names, config: minimax01Config},
	{name: "minimax-m2", modelType: "minimax_m2", names: llamaNames.with(mixtralNames).with(minimaxNames), config: minimaxConfig},
	{name: "minimax-m3", modelType: "minimax_m3_vl_text", names: minimax3Names, conventions: wholeNorms, config: minimax3Config},
	{name: "mistral3", modelType: "ministral3", when: scalesQueries, names: llamaNames, conventions: pairs, config: ministral3Config},
	{name: "mistral3", modelType: "mistral", names: llamaNames, conventions: pairs, config: mistralConfig},
	{name: "mistral4", modelType: "mistral4", names: llamaNames.with(expertNames).with(deepseekNames), conventions: splitLatent, config: mistral4Config},
	{name: "mpt", modelType: "mpt", names: mptNames, config: mptConfig},
	{name: "muse-glimmer", modelType: "muse_glimmer", names: museGlimmerNames,
		conventions: meta.Conventions{RopePairs: true, WholeNorms: true}, config: museGlimmerConfig},
	{name: "nemotron", modelType: "nemotron", names: llamaNames, conventions: wholeNorms, config: nemotronConfig},
	{name: "nemotron_h", modelType: "nemotron_h", names: nemotronHNames, conventions: decayPairs, config: nemotronHConfig, lists: sparse},
	{name: "nemotron_h_moe", modelType: "nemotron_h", names: nemotronHNames.with(nemotronHMoENames), conventions: decayPairs, config: nemotronHMoEConfig, lists: sparse},
	{name: "olmo", modelType: "olmo", names: llamaNames, conventions: pairs, config: olmoConfig},
	{name: "olmo2", modelType: "olmo3", when: hasWindow, names: llamaNames.with(sandwichNames), config: olmo3Config},
	{name: "olmo2", modelType: "olmo2", names: llamaNames.with(sandwichNames)},
	{name: "olmoe", modelType: "olmoe", names: llamaNames.with(expertNames), config: olmoeConfig},
	{name: "paddleocr", modelType: "llama", names: llamaNames, config: llamaConfig},
	{name: "pangu-embedded", modelType: "llama", names: llamaNames, config: llamaConfig},
	{name: "phi2", modelType: "phi", names: phiNames, config: phiConfig},
	{name: "phi3", modelType: "phi3", names: llamaNames.with(phi3Names), config: phi3Config},
	{name: "phimoe", modelType: "phimoe", names: llamaNames.with(mixtralNames), config: phiMoEConfig},
	{name: "qwen2", modelType: "qwen2", names: llamaNames},
	{name: "qwen2moe", modelType: "qwen2_moe", names: llamaNames.with(expertNames).with(sharedNames), config: qwen2MoEConfig},
	{name: "qwen2vl", modelType: "qwen2", names: llamaNames},
	{name: "qwen3", modelType: "qwen3", names: llamaNames},
	{name: "qwen35", modelType: "qwen3_5_text", names: deltaNames, conventions: tiledDelta, config: qwen35Config},
	{name: "qwen35moe", modelType: "qwen3_5_moe_text", names: qwen3NextNames, conventions: tiledDelta, config: qwen35MoEConfig},
	{name: "qwen3moe", modelType: "qwen3_moe", names: llamaNames.with(expertNames), config: qwen3MoEConfig},
	{name: "qwen3next", modelType: "qwen3_next", when: hasGateOfDelta, names: qwen3NextNames, conventions: splitDelta, config: qwen3NextConfig},
	{name: "qwen3next", modelType: "qwen3_next", names: qwen3NextNames, conventions: meta.Conventions{WholeNorms: true, DecayRates: true}, config: qwen3NextConfig},
	{name: "qwen3vl", modelType: "qwen3", names: llamaNames},
	{name: "qwen3vlmoe", modelType: "qwen3_moe", names: llamaNames.with(expertNames), config: qwen3MoEConfig},
	{name: "qwen4exp", modelType: "qwen4_exp_text", names: qwen4Names, conventions: tiledDelta, config: qwen4Config, extras: qwen4Hashes, own: qwen4Tables},
	{name: "seed_oss", modelType: "seed_oss", names: llamaNames.with(postNormNames), config: seedConfig},
	{name: "smollm3", modelType: "smollm3", names: llamaNames, conventions: pairs, config: llamaConfig},
	{name: "stablelm", modelType: "stablelm", names: llamaNames, config: stableLMConfig},
	{name: "starcoder", modelType: "gpt_bigcode", names: gpt2Names, config: bigCodeConfig},
	{name: "starcoder2", modelType: "starcoder2", names: llamaNames.with(starcoderNames), config: starcoderConfig},
	{name: "step35", modelType: "step3p5", names: gatedNames, conventions: wholeNorms, config: step35Config, lists: uneven},
	{name: "xverse", modelType: "llama", names: llamaNames, conventions: pairs, config: llamaConfig},
}

func hasExperts(k *keys) bool { return k.int("expert_count", 0) > 0 }

// lacksExperts: of the models with latent attention, Youtu's have MLPs alone.
func lacksExperts(k *keys) bool { return !hasExperts(k) && hasSplitLatent(k) }

// hasSections: models with images have positions in three dimensions, for which llama.cpp has no rope that
// rotates neighbours.
func hasSections(k *keys) bool { return k.meta[k.arch+".rope.dimension_sections"] != nil }

func hasWindow(k *keys) bool { return k.int("attention.sliding_window", 0) > 0 }

// hasSplitLatent: files of 2025 and later have the expansion of keys and values in two, of keys transposed.
func hasSplitLatent(k *keys) bool {
	return k.has("blk.0.attn_k_b.weight") && !k.has("blk.0.attn_kv_b.weight")
}

var splitLatent = meta.Conventions{SplitLatent: true}

const temperatureScaleKey = "attention.temperature_scale"

// scalesQueries: of Mistral's models of 2025, Ministral 3 scales queries by their position.
func scalesQueries(k *keys) bool { return k.float(temperatureScaleKey, 0) != 0 }

func hasTwoNorms(k *keys) bool { return k.has("blk.0.attn_norm_2.weight") }

// hasGateOfDelta: files of 2026 have the output gates of delta nets apart.
func hasGateOfDelta(k *keys) bool { return k.hasIn("attn_gate.weight") }

// isBamba: Bamba's files have the name of Granite's hybrids, and say that they have rope.
func isBamba(k *keys) bool { return k.bool("rope.scaling.finetuned", false) }

// hasBareNorms: Falcon Mamba has norms without weights on steps, B and C. Their epsilon is not in files.
func hasBareNorms(k *keys) bool { return k.bool("ssm.dt_b_c_rms", false) }

// hasAnySplitLatent is hasSplitLatent of models whose first layers have no attention.
func hasAnySplitLatent(k *keys) bool { return k.hasIn("attn_k_b.weight") }
