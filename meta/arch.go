package meta

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/spelling"
)

// An architecture builds a tree from the fields of a config.json.
type architecture struct {
	modelType string
	class     string // of the root; "" for one that exists within a wrapper only
	base      string // the reference's base_model_prefix
	noSplit   string // classes that stay on one device, with spaces between them
	bos       int    // default token ids; -1 or nil for none
	eos       []int
	build     func(*fields, *Builder)
}

// architectures returns the table of supported architectures. Each has one line, here or in the parts of
// families with many generations, and one file.
func architectures() []architecture {
	return append(slices.Concat(qwens(), gemmas(), glms(), olmos(), granites(), gpts(), deepseeks(), lfms(), mambas(), minimaxes(), hunyuans(), mistrals(), ernies(), singles()), []architecture{
		{"afmoe", "AfmoeForCausalLM", "model", "AfmoeDecoderLayer", -1, nil, afMoE},
		{"apertus", "ApertusForCausalLM", "model", "ApertusDecoderLayer", 1, []int{2}, apertus},
		{"apertus1p5_text", "Apertus1p5TextForCausalLM", "model", "Apertus1p5TextDecoderLayer", 1, []int{2}, apertus1p5},
		{"arcee", "ArceeForCausalLM", "model", "ArceeDecoderLayer", 128000, []int{128001}, arcee},
		{"aria_text", "AriaTextForCausalLM", "model", "AriaTextDecoderLayer", 1, []int{2}, aria},
		{"bamba", "BambaForCausalLM", "model", "BambaDecoderLayer", 1, []int{2}, bamba},
		{"bitnet", "BitNetForCausalLM", "model", "BitNetDecoderLayer", 128000, []int{128001}, bitNet},
		{"codegen", "CodeGenForCausalLM", "transformer", "CodeGenBlock", 50256, []int{50256}, codeGen},
		{"cohere", "CohereForCausalLM", "model", "CohereDecoderLayer", 5, []int{255001}, cohere},
		{"cohere2", "Cohere2ForCausalLM", "model", "Cohere2DecoderLayer", 5, []int{255001}, cohere2},
		{"cohere2_moe", "Cohere2MoeForCausalLM", "model", "Cohere2MoeDecoderLayer", 5, []int{255001}, cohere2MoE},
		{"cohere_compass_text", "CohereCompassForCausalLM", "model", "CohereCompassDecoderLayer", 5, []int{255001}, cohereCompass},
		{"cwm", "CwmForCausalLM", "model", "CwmDecoderLayer", 128000, []int{128001, 128008, 128009}, cwm},
		{"dbrx", "DbrxForCausalLM", "transformer", "DbrxBlock", -1, nil, dbrx},
		{"diffllama", "DiffLlamaForCausalLM", "model", "DiffLlamaDecoderLayer", 1, []int{2}, diffLlama},
		{"doge", "DogeForCausalLM", "model", "DogeDecoderLayer", -1, nil, doge},
		{"dory", "DoryForCausalLM", "model", "DoryDecoderLayer", -1, nil, dory},
		{"dots3_note_text", "Dots3NoteForCausalLM", "model", "Dots3NoteTextDecoderLayer", 151643, []int{151668}, dots3Note},
		{"emu3_text_model", "", "model", "Emu3DecoderLayer", 151849, []int{151850}, emu3},
		{"exaone", "LlamaForCausalLM", "model", "LlamaDecoderLayer", 1, []int{361}, exaone},
		{"exaone4", "Exaone4ForCausalLM", "model", "Exaone4DecoderLayer", 0, []int{2}, exaone4},
		{"exaone_moe", "ExaoneMoeForCausalLM", "model", "ExaoneMoeDecoderLayer", 1, []int{53}, exaoneMoE},
		{"falcon", "FalconForCausalLM", "transformer", "FalconDecoderLayer", 11, []int{11}, falcon},
		{"falcon_h1", "FalconH1ForCausalLM", "model", "FalconH1DecoderLayer", 1, []int{2}, falconH1},
		{"gpt_oss", "GptOssForCausalLM", "model", "GptOssDecoderLayer", -1, nil, gptOSS},
		{"helium", "HeliumForCausalLM", "model", "HeliumDecoderLayer", 1, []int{2}, helium},
		{"hyperclovax", "HyperCLOVAXForCausalLM", "model", "HyperCLOVAXDecoderLayer", 1, []int{2}, hyperCLOVAX},
		{"jetmoe", "JetMoeForCausalLM", "model", "JetMoeDecoderLayer", 1, []int{2}, jetMoE},
		{"jamba", "JambaForCausalLM", "model", "JambaAttentionDecoderLayer JambaMambaDecoderLayer", 1, []int{2}, jamba},
		{"jais2", "Jais2ForCausalLM", "model", "Jais2DecoderLayer", 0, []int{150024}, jais2},
		{"inkling_text", "InklingForCausalLM", "model", "InklingDecoderLayer", 1, []int{2}, inkling},
		{"internlm3", "LlamaForCausalLM", "model", "LlamaDecoderLayer", 1, []int{2}, internLM3},
		{"iquestcoder", "LlamaForCausalLM", "model", "LlamaDecoderLayer", 1, []int{2}, iquestCoder},
		{"llama", "LlamaForCausalLM", "model", "LlamaDecoderLayer", 1, []int{2}, llama},
		{"llama4_text", "Llama4ForCausalLM", "language_model", "Llama4TextDecoderLayer", 1, []int{2}, llama4},
		{"mellum", "MellumForCausalLM", "model", "MellumDecoderLayer", -1, nil, mellum},
		{"minicpm3", "MiniCPM3ForCausalLM", "model", "MiniCPM3DecoderLayer", 1, []int{2}, miniCPM3},
		{"mllama_text_model", "", "model", "MllamaSelfAttentionDecoderLayer", 128000, []int{128001}, mllama},
		{"mimo_v2_flash", "MiMoV2FlashForCausalLM", "model", "MiMoV2FlashDecoderLayer", 1, nil, mimoV2Flash},
		{"nanochat", "NanoChatForCausalLM", "model", "NanoChatDecoderLayer", 0, []int{1}, nanoChat},
		{"nemotron", "NemotronForCausalLM", "model", "NemotronDecoderLayer", 2, []int{3}, nemotron4},
		{"nemotron_h", "NemotronHForCausalLM", "model", "NemotronHBlock", 1, []int{2}, nemotronH},
		{"opt", "OPTForCausalLM", "model", "OPTDecoderLayer", 2, []int{2}, opt},
		{"paddleocr_vl_text", "", "model", "PaddleOCRDecoderLayer", 1, []int{2}, paddleOCR},
		{"persimmon", "PersimmonForCausalLM", "model", "PersimmonDecoderLayer", 1, []int{2}, persimmon},
		{"phi", "PhiForCausalLM", "model", "PhiDecoderLayer", 1, []int{2}, phi},
		{"phi3", "Phi3ForCausalLM", "model", "Phi3DecoderLayer", 1, []int{32000}, phi3},
		{"phi4_multimodal", "Phi4MultimodalForCausalLM", "model", "Phi4MultimodalDecoderLayer", 199999, []int{199999, 200020}, phi4Multimodal},
		{"phimoe", "PhimoeForCausalLM", "model", "PhimoeDecoderLayer", 1, []int{2}, phiMoE},
		{"seed_oss", "SeedOssForCausalLM", "model", "SeedOssDecoderLayer", 0, []int{2}, seedOSS},
		{"smollm3", "SmolLM3ForCausalLM", "model", "SmolLM3DecoderLayer", 128000, []int{128001}, smollm3},
		{"solar_open", "SolarOpenForCausalLM", "model", "SolarOpenDecoderLayer", -1, nil, solarOpen},
		{"stablelm", "StableLmForCausalLM", "model", "StableLmDecoderLayer", 0, []int{0}, stableLM},
		{"starcoder2", "Starcoder2ForCausalLM", "model", "Starcoder2DecoderLayer", 50256, []int{50256}, starcoder2},
		{"xglm", "XGLMForCausalLM", "model", "XGLMDecoderLayer", 0, []int{2}, xglm},
	}...)
}

// singles returns models of 2026 that are the only ones of their makers in the table.
func singles() []architecture {
	return []architecture{
		{"beam", "BeamForCausalLM", "model", "BeamDecoderLayer", -1, nil, beam},
		{"hrm_text", "HrmTextForCausalLM", "model", "HrmTextDecoderLayer", -1, nil, hrmText},
		{"flint", "FlintForCausalLM", "model", "FlintDecoderLayer", -1, nil, flint},
		{"kolibri1", "Kolibri1ForCausalLM", "model", "Kolibri1DecoderLayer", -1, nil, kolibri1},
		{"laguna", "LagunaForCausalLM", "model", "LagunaDecoderLayer", -1, nil, laguna},
		{"lara_mini", "LaraMiniForCausalLM", "model", "LaraMiniDecoderLayer", -1, []int{151643}, laraMini},
		{"molmo2_text", "", "model", "Molmo2DecoderLayer", -1, nil, molmo2},
		{"zaya", "ZayaForCausalLM", "model", "ZayaDecoderLayer", 2, []int{106}, zaya},
		{"muse_glimmer_text", "", "model", "MuseGlimmerTextDecoderLayer", 200000, []int{200001}, museGlimmer},
		{"step3p5", "Step3p5ForCausalLM", "model", "Step3p7DecoderLayer", -1, nil, step37},
	}
}

// ernies returns Baidu's ERNIE models in the table.
func ernies() []architecture {
	return []architecture{
		{"ernie4_5", "Ernie4_5ForCausalLM", "model", "Ernie4_5DecoderLayer", 1, []int{2}, ernie45},
		{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", "model", "Ernie4_5_MoeDecoderLayer", 1, []int{2}, ernie45MoE},
		{"ernie4_5_vl_moe_text", "", "model", "Ernie4_5_VLMoeDecoderLayer", -1, nil, ernie45VLMoE},
	}
}

// hunyuans returns Tencent's Hunyuan models in the table.
func hunyuans() []architecture {
	return []architecture{
		{"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", "model", "HunYuanDenseV1DecoderLayer", 1, []int{2}, hunyuanDense},
		{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", "model", "HunYuanMoEV1DecoderLayer", 1, []int{2}, hunyuanMoE},
		{"hunyuan_vl_text", "", "model", "HunYuanVLDenseV1DecoderLayer", 1, []int{2}, hunyuanVL},
		{"hy_v3", "HYV3ForCausalLM", "model", "HYV3DecoderLayer", -1, nil, hyV3},
		{"hy_v4", "HYV4ForCausalLM", "model", "HYV4DecoderLayer", 120000, []int{120025}, hyV4},
		{"hy_v4_vl_text", "", "model", "HYV4VLDecoderLayer", 120000, []int{120025}, hyV4VL},
	}
}

// mistrals returns Mistral's models in the table.
func mistrals() []architecture {
	return []architecture{
		{"ministral", "MinistralForCausalLM", "model", "MinistralDecoderLayer", 1, []int{2}, ministral},
		{"ministral3", "Ministral3ForCausalLM", "model", "Ministral3DecoderLayer", 1, []int{2}, ministral3},
		{"mistral", "MistralForCausalLM", "model", "MistralDecoderLayer", 1, []int{2}, mistral},
		{"mistral4", "Mistral4ForCausalLM", "model", "Mistral4DecoderLayer", 1, []int{2}, mistral4},
		{"mistral_large4_text", "", "model", "MistralLarge4TextDecoderLayer", 1, []int{2}, mistralLarge4},
		{"mixtral", "MixtralForCausalLM", "model", "MixtralDecoderLayer", 1, []int{2}, mixtral},
	}
}

// minimaxes returns MiniMax's models in the table.
func minimaxes() []architecture {
	return []architecture{
		{"minimax", "MiniMaxForCausalLM", "model", "MiniMaxDecoderLayer", 1, []int{2}, miniMax},
		{"minimax_m2", "MiniMaxM2ForCausalLM", "model", "MiniMaxM2DecoderLayer", 200034, []int{200020}, minimaxM2},
		{"minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", "model", "MiniMaxM3VLDecoderLayer", 200034, []int{200020}, minimaxM3},
	}
}

// qwens returns Qwen's models in the table.
func qwens() []architecture {
	return []architecture{
		{"qwen2", "Qwen2ForCausalLM", "model", "Qwen2DecoderLayer", -1, nil, qwen2},
		{"qwen2_5_vl_text", "", "model", "Qwen2_5_VLDecoderLayer", 151643, []int{151645}, qwen2VL("Qwen2_5_VL")},
		{"qwen2_5_omni_text", "", "model", "Qwen2_5OmniDecoderLayer", -1, nil, qwen25Omni},
		{"qwen2_moe", "Qwen2MoeForCausalLM", "model", "Qwen2MoeDecoderLayer", -1, nil, qwen2MoE},
		{"qwen2_vl_text", "", "model", "Qwen2VLDecoderLayer", 151643, []int{151645}, qwen2VL("Qwen2VL")},
		{"qwen3", "Qwen3ForCausalLM", "model", "Qwen3DecoderLayer", -1, nil, qwen3},
		{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", "model", "Qwen3_5MoeDecoderLayer", -1, nil, qwen35MoE},
		{"qwen3_5_text", "Qwen3_5ForCausalLM", "model", "Qwen3_5DecoderLayer", -1, nil, qwen35},
		{"qwen4_exp_text", "Qwen4ExpForCausalLM", "model", "Qwen4ExpTextDecoderLayer", -1, nil, qwen4Exp},
		{"qwen3_moe", "Qwen3MoeForCausalLM", "model", "Qwen3MoeDecoderLayer", -1, nil, qwen3MoE},
		{"qwen3_omni_moe_text", "", "model", "Qwen3OmniMoeThinkerTextDecoderLayer", -1, nil, qwen3Omni},
		{"qwen3_next", "Qwen3NextForCausalLM", "model", "Qwen3NextDecoderLayer", -1, nil, qwen3Next},
		{"qwen3_vl_moe_text", "", "model", "Qwen3VLMoeTextDecoderLayer", -1, nil, qwen3VLMoE},
		{"qwen3_vl_text", "", "model", "Qwen3VLTextDecoderLayer", -1, nil, qwen3VL},
	}
}

// gemmas returns Gemma's generations in the table.
func gemmas() []architecture {
	return []architecture{
		{"gemma", "GemmaForCausalLM", "model", "GemmaDecoderLayer", 2, []int{1}, gemma1},
		{"gemma2", "Gemma2ForCausalLM", "model", "Gemma2DecoderLayer", 2, []int{1}, gemma2},
		{"gemma3_text", "Gemma3ForCausalLM", "model", "Gemma3DecoderLayer", 2, []int{1}, gemma3},
		{"gemma3n_text", "Gemma3nForCausalLM", "model", "Gemma3nTextDecoderLayer", 2, []int{1}, gemma3n},
		{"recurrent_gemma", "RecurrentGemmaForCausalLM", "model", "RecurrentGemmaDecoderLayer", 2, []int{1}, recurrentGemma},
		{"vaultgemma", "VaultGemmaForCausalLM", "model", "VaultGemmaDecoderLayer", 2, []int{1}, vaultGemma},
		{"gemma4_text", "Gemma4ForCausalLM", "model", "Gemma4TextDecoderLayer", 2, []int{1}, gemma4},
		{"gemma4_unified_text", "Gemma4UnifiedForCausalLM", "model", "Gemma4UnifiedTextDecoderLayer", 2, []int{1}, gemma4Unified},
	}
}

// glms returns GLM's models in the table.
func glms() []architecture {
	return []architecture{
		{"glm", "GlmForCausalLM", "model", "GlmDecoderLayer", -1, []int{151329, 151336, 151338}, glm},
		{"glm4", "Glm4ForCausalLM", "model", "Glm4DecoderLayer", -1, []int{151329, 151336, 151338}, glm4},
		{"glm4_moe", "Glm4MoeForCausalLM", "model", "Glm4MoeDecoderLayer", -1, nil, glm4MoE},
		{"glm4_moe_lite", "Glm4MoeLiteForCausalLM", "model", "Glm4MoeLiteDecoderLayer", 0, []int{1}, glm4MoELite},
		{"glm4v_moe_text", "", "model", "Glm4vMoeTextDecoderLayer", -1, nil, glm4VMoE},
		{"glm4v_text", "", "model", "Glm4vTextDecoderLayer", -1, nil, glm4V},
		{"glm_ocr_text", "", "model", "GlmOcrTextDecoderLayer", -1, nil, glmOCR},
		{"glm_moe_dsa", "GlmMoeDsaForCausalLM", "model", "GlmMoeDsaDecoderLayer", 0, []int{1}, glmMoEDSA},
	}
}

// gpts returns the GPTs in the table except OpenAI's newest, and BLOOM, CTRL, MPT and the
// ModernBERT decoder.
func gpts() []architecture {
	return []architecture{
		{"biogpt", "BioGptForCausalLM", "biogpt", "BioGptDecoderLayer", 0, []int{2}, bioGPT},
		{"bloom", "BloomForCausalLM", "transformer", "BloomBlock", 1, []int{2}, bloom},
		{"ctrl", "CTRLLMHeadModel", "transformer", "EncoderLayer", -1, nil, ctrl},
		{"gpt2", "GPT2LMHeadModel", "transformer", "GPT2Block", 50256, []int{50256}, gpt2},
		{"gpt_bigcode", "GPTBigCodeForCausalLM", "transformer", "GPTBigCodeBlock", 50256, []int{50256}, gptBigCode},
		{"gpt_neo", "GPTNeoForCausalLM", "transformer", "GPTNeoBlock", 50256, []int{50256}, gptNeo},
		{"gpt_neox_japanese", "GPTNeoXJapaneseForCausalLM", "gpt_neox_japanese", "GPTNeoXJapaneseLayer", 31996, []int{31999}, gptNeoXJapanese},
		{"gpt_neox", "GPTNeoXForCausalLM", "gpt_neox", "GPTNeoXLayer", 0, []int{2}, gptNeoX},
		{"gptj", "GPTJForCausalLM", "transformer", "GPTJBlock", 50256, []int{50256}, gptJ},
		{"modernbert-decoder", "ModernBertDecoderForCausalLM", "model", "ModernBertDecoderLayer", 50281, []int{50282}, modernBERTDecoder},
		{"openai-gpt", "OpenAIGPTLMHeadModel", "transformer", "Block", -1, nil, openAIGPT},
		{"mpt", "MptForCausalLM", "transformer", "MptBlock", -1, nil, mpt},
	}
}

// lfms returns Liquid's models with short convolutions.
func lfms() []architecture {
	return []architecture{
		{"lfm2", "Lfm2ForCausalLM", "model", "Lfm2DecoderLayer", 1, []int{2}, lfm2},
		{"lfm2_moe", "Lfm2MoeForCausalLM", "model", "Lfm2MoeDecoderLayer", 1, []int{2}, lfm2MoE},
		{"lfm3", "Lfm3ForCausalLM", "model", "Lfm3DecoderLayer", 124894, []int{124900}, lfm3},
	}
}

// mambas returns the models in the table whose layers are only mixers or RWKV blocks, or that
// have few transformer blocks.
func mambas() []architecture {
	return []architecture{
		{"falcon_mamba", "FalconMambaForCausalLM", "backbone", "FalconMambaBlock FalconMambaMixer", 0, []int{0}, falconMamba},
		{"mamba", "MambaForCausalLM", "backbone", "MambaBlock MambaMixer", 0, []int{0}, mamba1},
		{"mamba2", "Mamba2ForCausalLM", "backbone", "Mamba2Block", 0, []int{2}, mamba2},
		{"rwkv", "RwkvForCausalLM", "rwkv", "RwkvBlock", 0, []int{0}, rwkv},
		{"zamba", "ZambaForCausalLM", "model", "ZambaHybridLayer ZambaMambaDecoderLayer", 1, []int{2}, zamba1},
		{"zamba2", "Zamba2ForCausalLM", "model", "Zamba2HybridLayer Zamba2MambaDecoderLayer", 1, []int{2}, zamba2},
	}
}

// granites returns Granite's models in the table.
func granites() []architecture {
	return []architecture{
		{"granite", "GraniteForCausalLM", "model", "GraniteDecoderLayer", 1, []int{2}, granite},
		{"granite4_vision_text", "", "model", "Granite4VisionTextDecoderLayer", 1, []int{2}, granite4Vision},
		{"granite_docling_text", "", "model", "GraniteDoclingTextDecoderLayer", 100257, []int{100257}, graniteDocling},
		{"granite_swa", "GraniteSWAForCausalLM", "model", "GraniteSWADecoderLayer", 100257, []int{100257}, graniteSWA},
		{"granitemoe_swa", "GraniteMoeSWAForCausalLM", "model", "GraniteMoeSWADecoderLayer", 1, []int{2}, graniteMoESWA},
		{"granitemoehybrid", "GraniteMoeHybridForCausalLM", "model", "GraniteMoeHybridDecoderLayer", 1, []int{2}, graniteMoEHybrid},
		{"granitemoe", "GraniteMoeForCausalLM", "model", "GraniteMoeDecoderLayer", 1, []int{2}, graniteMoE},
		{"granitemoeshared", "GraniteMoeSharedForCausalLM", "model", "GraniteMoeSharedDecoderLayer", 1, []int{2}, graniteMoEShared},
	}
}

// deepseeks returns DeepSeek's models in the table, and models derived from them.
func deepseeks() []architecture {
	return []architecture{
		{"axk1", "AXK1ForCausalLM", "model", "AXK1DecoderLayer", 163691, []int{163691}, axK1},
		{"axk2", "AXK2ForCausalLM", "model", "AXK2DecoderLayer", 163691, []int{163691}, axK2},
		{"bailing_hybrid", "BailingHybridForCausalLM", "model", "BailingHybridDecoderLayer", -1, []int{156895}, bailingHybrid},
		{"deepseek_ocr2_text", "", "model", "DeepseekOcr2TextDecoderLayer", 1, []int{2}, deepseekOCR2},
		{"deepseek_v2", "DeepseekV2ForCausalLM", "model", "DeepseekV2DecoderLayer", 1, []int{2}, deepseekV2},
		{"deepseek_v3", "DeepseekV3ForCausalLM", "model", "DeepseekV3DecoderLayer", 0, []int{1}, deepseekV3},
		{"deepseek_v32", "DeepseekV32ForCausalLM", "model", "DeepseekV32DecoderLayer", 0, []int{1}, deepseekV32},
		{"deepseek_v4", "DeepseekV4ForCausalLM", "model", "DeepseekV4DecoderLayer", 0, []int{1}, deepseekV4},
		{"dots1", "Dots1ForCausalLM", "model", "Dots1DecoderLayer", -1, nil, dots1},
		// Kimi K2's config is DeepSeek-V3's to the letter.
		{"kimi_k2", "DeepseekV3ForCausalLM", "model", "DeepseekV3DecoderLayer", 0, []int{1}, deepseekV3},
		{"kimi_linear", "KimiLinearForCausalLM", "model", "KimiLinearDecoderLayer", 163584, []int{163586}, kimiLinear},
		{"longcat_flash", "LongcatFlashForCausalLM", "model", "LongcatFlashDecoderLayer", 1, []int{2}, longcatFlash},
		{"sarvam_mla", "DeepseekV3ForCausalLM", "model", "DeepseekV3DecoderLayer", 0, []int{1}, sarvamMLA},
		{"sarvam_moe", "Glm4MoeForCausalLM", "model", "Glm4MoeDecoderLayer", -1, []int{1}, sarvamMoE},
		{"youtu", "YoutuForCausalLM", "model", "YoutuDecoderLayer", 128000, []int{128001}, youtu},
	}
}

// olmos returns OLMo's generations in the table.
func olmos() []architecture {
	return []architecture{
		{"flex_olmo", "FlexOlmoForCausalLM", "model", "FlexOlmoDecoderLayer", -1, []int{100257}, flexOlmo},
		{"olmo", "OlmoForCausalLM", "model", "OlmoDecoderLayer", -1, []int{50279}, olmo},
		{"olmo2", "Olmo2ForCausalLM", "model", "Olmo2DecoderLayer", -1, []int{50279}, olmo2},
		{"olmo3", "Olmo3ForCausalLM", "model", "Olmo3DecoderLayer", -1, []int{50279}, olmo3},
		{"olmo_hybrid", "OlmoHybridForCausalLM", "model", "OlmoHybridAttentionDecoderLayer OlmoHybridLinearAttentionDecoderLayer", -1, []int{100257}, olmoHybrid},
		{"olmoe", "OlmoeForCausalLM", "model", "OlmoeDecoderLayer", -1, []int{50279}, olmoe},
	}
}

// RootClass returns the class of the root module of a model type, or "" if the type is not
// supported.
func RootClass(modelType string) string {
	if w := lookupWrapper(modelType); w != nil {
		return w.class
	}
	if a := lookup(modelType); a != nil {
		return a.class
	}
	return ""
}

// Architectures lists the model types that [New] builds, in alphabetical order.
func Architectures() []string {
	var names []string
	for _, a := range architectures() {
		if a.class != "" {
			names = append(names, a.modelType)
		}
	}
	for _, w := range wrappers() {
		names = append(names, w.modelType)
	}
	slices.Sort(names)
	return names
}

// An UnsupportedError says that no architecture supports a config's model_type.
type UnsupportedError struct {
	ModelType string
	Text      bool // it is the type of a wrapper's text model, in text_config
}

// Error names the type and the page that lists the supported ones.
func (e *UnsupportedError) Error() string {
	field := "model_type"
	if e.Text {
		field = "text_config.model_type"
	}
	names := Architectures()
	if e.ModelType == "" {
		return fmt.Sprintf("meta: config.json: %s: missing; docs/models.md lists the %d supported types", field, len(names))
	}
	advice := fmt.Sprintf("docs/models.md lists the %d supported types", len(names))
	if near := spelling.Nearest(e.ModelType, names, 2); len(near) > 0 {
		advice = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return fmt.Sprintf("meta: config.json: %s: %.60q is not supported; %s", field, e.ModelType, advice)
}

// New builds the skeleton of the model that cfg describes. It allocates and reads no weight.
//
// With a header, each parameter gets the dtype that the checkpoint has for it. Sources get the
// names that the checkpoint uses, where published names differ, and the tensors of quantised
// weights ([Quant]). Tensors that the header lacks keep the config's dtype. New does not report
// missing or misshapen tensors; loader.Bind does. Without a header (nil), weights are those of a
// published checkpoint with this config: quantization_config says which are quantised.
//
// New returns a [*ConfigError] for a bad field and an [*UnsupportedError] for a model_type that
// is not in [Architectures].
func New(cfg *Config, header CheckpointHeader) (*Model, error) { return newModel(cfg, header, 0) }

// newModel is New, or NewNext if next is not 0.
func newModel(cfg *Config, header CheckpointHeader, next int) (*Model, error) {
	if cfg == nil {
		return nil, errors.New("meta: new: got a nil config")
	}
	f := cfg.fields()
	w := lookupWrapper(cfg.ModelType)
	a := lookup(cfg.textType)
	if a == nil || w == nil && a.class == "" {
		return nil, &UnsupportedError{cfg.textType, w != nil}
	}
	class := a.class
	if w != nil {
		class = w.class
	}
	quantised := f.quantisation(cfg.quantFields(f))
	dtype := cfg.DType
	switch {
	case dtype != NoDType:
	case header == nil && len(quantised.formats) > 0:
		dtype = BFloat16 // gpt-oss names no dtype; what it leaves unquantised has 16 bits, as everywhere
	default:
		dtype = Float32
	}
	b := NewBuilder(class, dtype)
	b.tree.header, b.tree.base, b.tree.noSplit, b.tree.wrapper = header, a.base, strings.Fields(a.noSplit), w
	b.tree.textClass = a.class
	b.tree.renames = append([]Rename{{}, {Tree: a.base + "."}}, w.renames()...)
	b.tree.quantised, b.tree.next = quantised, next
	a.build(f, b)
	if spec, ok := b.node.Spec.(*CausalLMSpec); next > 0 && f.err() == nil && (!ok || spec.Join == nil) {
		f.fail("model_type", "multi-token prediction is not supported for %s", a.modelType)
	}
	if !f.errs.byLayer && f.object("per_layer_config") != nil {
		f.fail("per_layer_config", "is not supported for %s: its layers would differ in what it says", a.modelType)
	}
	if w != nil && b.node.Find(b.tree.textPath()) == nil {
		f.fail("model_type", "%q is not supported within %s", a.modelType, w.modelType)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	root, err := b.Build()
	if err != nil {
		return nil, err
	}
	b.tree.conventions().conform(root)
	pad(root, a.modelType, f)
	return &Model{
		Config:         cfg,
		Root:           root,
		NoSplitClasses: b.tree.noSplit,
		BasePrefix:     a.base,
		Ignore:         b.tree.ignore,
		UnreadBytes:    b.tree.unread,
		Renames:        w.renames(),
		textNames:      w.textNames(),
	}, nil
}

func lookup(modelType string) *architecture {
	for _, a := range architectures() {
		if a.modelType == modelType {
			return &a
		}
	}
	return nil
}

// modelTypeOf returns the model type for the class name of the whole model. Some configs have
// only the class name.
func modelTypeOf(classes []string) string {
	found := ""
	for _, name := range Architectures() {
		class := RootClass(name)
		// If several types have one class, the type that the class is named after wins: llama,
		// not internlm3.
		named := strings.HasPrefix(strings.ToLower(class), strings.ReplaceAll(name, "_", ""))
		if slices.Contains(classes, class) && (found == "" || named) {
			found = name
		}
	}
	return found
}
