package meta

import "encoding/json"

// paddings holds the default pad_token_id of model types that have one.
var paddings = map[string]int{
	"apertus": 3, "bamba": 0, "cohere": 0, "cohere2": 0, "cohere2_moe": 0, "exaone": 0, "sarvam_moe": 0, "vaultgemma": 0, "ernie4_5": 0, "ernie4_5_moe": 0, "exaone_moe": 0, "falcon_h1": 0, "gemma": 0, "gemma2": 0, "gemma3_text": 0, "gemma3n_text": 0, "gemma4_text": 0, "gemma4_unified_text": 0, "lfm3": 124893, "recurrent_gemma": 0,
	"flex_olmo": 100277, "glm": 151329, "glm4": 151329, "helium": 3, "hunyuan_v1_dense": 0, "hunyuan_v1_moe": 0, "internlm3": 2, "lfm2": 0, "lfm2_moe": 0, "ministral3": 11, "nanochat": 1, "olmo": 1, "olmo2": 1, "olmo3": 1, "olmoe": 1, "opt": 1, "phi3": 32000,
	"seed_oss": 1, "smollm3": 128004, "zamba": 0, "zamba2": 0, "zaya": 0,
	"apertus1p5_text": 3, "aria_text": 2, "bailing_hybrid": 156892, "biogpt": 1, "cohere_compass_text": 0, "dots3_note_text": 151659, "emu3_text_model": 151643, "granite_docling_text": 100256, "hy_v4": 120002, "hunyuan_vl_text": 0, "hy_v4_vl_text": 120002, "jamba": 0, "kimi_linear": 163839,
	"mistral4": 11, "mllama_text_model": 128004, "modernbert-decoder": 50283, "olmo_hybrid": 100277, "paddleocr_vl_text": 0, "phi4_multimodal": 199999, "step3p5": 1, "xglm": 1,
}

// unpadded are the model types whose embeddings train the padding token like any other.
var unpadded = map[string]bool{
	"bloom": true, "codegen": true, "ctrl": true, "falcon": true, "falcon_mamba": true, "gpt2": true, "gpt_bigcode": true, "gpt_neo": true, "gpt_neox": true, "gpt_neox_japanese": true,
	"gptj": true, "mamba": true, "mamba2": true, "mpt": true, "nemotron_h": true, "openai-gpt": true, "rwkv": true,
}

// pad marks the padding token's row of the embeddings below root, like the reference's
// padding_idx. A negative id counts from the end.
func pad(root *Module, modelType string, f *fields) {
	id, ok := f.padding(modelType)
	if !ok || unpadded[modelType] {
		return
	}
	others := map[string]bool{} // tables whose rows do not belong to tokens
	for path, node := range root.Walk() {
		switch s := node.Spec.(type) {
		case *CausalLMSpec:
			others[Join(path, s.Positions)] = s.Positions != ""
		case *BlockSpec:
			if s.NGrams != nil {
				others[Join(path, s.NGrams.Table)] = true
			}
		}
	}
	for path, node := range root.Walk() {
		s, ok := node.Spec.(*EmbeddingSpec)
		if !ok || others[path] {
			continue
		}
		row := id
		if row < 0 {
			row += s.Rows
		}
		if row >= 0 && row < s.Rows {
			s.Padding = row + 1
		}
	}
}

// padding returns pad_token_id, or false if there is none.
func (f *fields) padding(modelType string) (int, bool) {
	v, there := f.values["pad_token_id"]
	if !there {
		id, ok := paddings[modelType]
		return id, ok
	}
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	id, err := n.Int64()
	return int(id), err == nil
}
