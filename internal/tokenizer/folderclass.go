package tokenizer

import "strings"

// generic is the class of tokenizers that transformers builds from the vocabulary's file alone.
const generic = "TokenizersBackend"

// registered are the classes that transformers has for model types. A type of a generic tokenizer
// takes no class from the files.
var registered = classTable(map[string]string{
	"GPT2Tokenizer": "gpt2 gpt_neo gptj opt phi starcoder2 codegen dbrx jais2 emu3",
	"Qwen2Tokenizer": "qwen2 qwen2_moe qwen2_vl qwen2_5_vl qwen2_5_omni qwen2_audio qwen3 qwen3_moe qwen3_next qwen3_vl " +
		"qwen3_vl_moe qwen3_omni_moe internvl ovis2",
	"Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text qwen4_exp",
	"GemmaTokenizer":   "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma zaya",
	"LlamaTokenizer":   "idefics idefics2",
	"CohereTokenizer":  "cohere cohere2 aya_vision",
	"GPTNeoXTokenizer": "gpt_neox mamba mamba2 falcon_mamba mpt olmo olmoe rwkv xlstm",
	generic: "mistral mistral3 ministral ministral3 mixtral pixtral voxtral " +
		"glm glm4 glm4_moe glm4_moe_lite glm4v gpt_bigcode granite granitemoe granitemoehybrid granitemoeshared " +
		"kimi_k25 kimi_linear mimo_v2_flash olmo2 olmo3 olmo_hybrid persimmon stablelm flex_olmo " +
		"ernie4_5 ernie4_5_moe internlm2 internlm3 iquestcoder jamba minicpm3 minimax_m2 nemotron phi3 phimoe llava llava_next vipllava " +
		"arctic hyperclovax smolvlm modernbert-decoder",
})

// corrected are model types whose class counts even if the files state another one.
var corrected = map[string]bool{"qwen2": true, "qwen3_5": true, "qwen3_5_moe": true, "qwen3_5_moe_text": true, "qwen4_exp": true}

func classTable(types map[string]string) map[string]string {
	m := map[string]string{}
	for class, list := range types {
		for _, model := range strings.Fields(list) {
			m[model] = class
		}
	}
	return m
}

// className returns the tokenizer's class as transformers chooses it.
func (s *settings) className() string {
	own := registered[s.model]
	switch {
	case own == generic || own != "" && (s.class == "" || corrected[s.model]):
		return own
	case s.class == "" || s.class == "PreTrainedTokenizer" || s.class == generic:
		return generic
	}
	return s.class
}
