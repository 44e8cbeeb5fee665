package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/heftai/heft/internal/atomicfile"
)

const (
	headDim      = 32
	vocabSize    = 1024
	maxPositions = 2048
)

// shape is the size of a model. Of its heads of headDim numbers, three share keys and values.
type shape struct{ Hidden, Layers int }

// embedded is the shape of the embedded model.
var embedded = shape{Hidden: 192, Layers: 5}

var specials = []string{"<|pad|>", "<|bos|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"}

const (
	bosID       = 1
	userID      = 2
	assistantID = 3
	systemID    = 4
	endID       = 5
)

const chatTemplate = `{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('the demo model knows the roles system, user and assistant, not ' ~ message.role) }}
    {%- endif %}
    {{- '<|' ~ message.role ~ '|>' ~ message.content ~ '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}`

func config(s shape) map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama",
		"hidden_size": s.Hidden, "num_hidden_layers": s.Layers, "num_attention_heads": s.Hidden / headDim, "num_key_value_heads": s.Hidden / headDim / 3,
		"head_dim": headDim, "intermediate_size": s.Hidden * 8 / 3, "vocab_size": vocabSize,
		"max_position_embeddings": maxPositions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
		"attention_bias": false, "mlp_bias": false, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
		"bos_token_id": bosID, "eos_token_id": endID, "pad_token_id": 0,
	}
}

func generationConfig() map[string]any {
	return map[string]any{"bos_token_id": bosID, "eos_token_id": []int{endID}, "pad_token_id": 0,
		"do_sample": true, "temperature": 0.4, "top_p": 0.9}
}

func tokenizerConfig() map[string]any {
	return map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|end|>",
		"pad_token": "<|pad|>", "model_max_length": maxPositions, "chat_template": chatTemplate}
}

func tokenizerFile(v vocabulary) map[string]any {
	ids := map[string]int{}
	for id, t := range v.tokens {
		ids[t] = id
	}
	var added []map[string]any
	for id, s := range specials {
		added = append(added, map[string]any{"id": id, "content": s, "single_word": false, "lstrip": false,
			"rstrip": false, "normalized": false, "special": true})
	}
	byteLevel := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": byteLevel, "decoder": byteLevel,
		"post_processor": map[string]any{"type": "TemplateProcessing",
			"single": []any{special("<|bos|>"), sequence("A", 0)},
			"pair":   []any{special("<|bos|>"), sequence("A", 0), sequence("B", 1)},
			"special_tokens": map[string]any{"<|bos|>": map[string]any{
				"id": "<|bos|>", "ids": []int{bosID}, "tokens": []string{"<|bos|>"}}}},
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": ids, "merges": v.merges},
	}
}

func special(id string) map[string]any {
	return map[string]any{"SpecialToken": map[string]any{"id": id, "type_id": 0}}
}

func sequence(id string, typeID int) map[string]any {
	return map[string]any{"Sequence": map[string]any{"id": id, "type_id": typeID}}
}

// writeJSON writes v with sorted keys and unescaped characters, so that the file is the same every
// time.
func writeJSON(dir, name string, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return atomicfile.WriteFile(filepath.Join(dir, name), b.Bytes())
}
