package api_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/generatetest"
)

// foreign are parameters of other servers with values that change the answer.
var foreign = map[string]string{
	// both endpoints
	"* ": `"grammar_lazy": true | "structural_tag": {"type": "x"} | "regex": "a" | "ebnf": "x" | "format": "json" |
		"truncate": 10 | "truncate": "END" | "num_ctx": 4096 |
		"n_predict": 5 | "n_predict": -1 | "num_predict": 5 | "max_new_tokens": 5 | "max_output_tokens": 5 | "max_length": 9 | "min_new_tokens": 2 | "t_max_predict_ms": 50 |
		"dry_multiplier": 0.8 | "dry_base": 2 | "dry_allowed_length": 3 | "dry_penalty_last_n": 64 | "dry_sequence_breakers": ["a"] |
		"xtc_probability": 0.5 | "xtc_threshold": 0.2 | "mirostat": 2 | "mirostat_mode": 1 | "mirostat_tau": 3 | "mirostat_eta": 0.5 |
		"typical_p": 0.5 | "tfs_z": 0.5 | "top_a": 0.2 | "top_n_sigma": 1.5 | "dynatemp_range": 0.5 | "smoothing_factor": 0.2 | "min_keep": 2 | "samplers": ["top_k"] |
		"repeat_penalty": 1.1 | "repeat_last_n": 32 | "rep_pen": 1.1 | "no_repeat_ngram_size": 3 | "epsilon_cutoff": 0.001 | "penalize_nl": true |
		"use_beam_search": true | "num_beams": 4 | "length_penalty": 0.8 | "early_stopping": true | "do_sample": false | "watermark": true |
		"random_seed": 0 | "sampling_seed": 7 | "banned_strings": ["a"] | "logits_processors": ["a"] | "vllm_xargs": {"a": 1} |
		"think": false |
		"stop_sequences": ["a"] | "stop_regex": "a" | "no_stop_trim": true |
		"prompt_logprobs": 21 | "prompt_logprobs": -1 | "prompt_logprobs": true | "n_probs": 5 | "top_n_tokens": 3 | "response_fields": ["a"] |
		"lora": [{"id": 0, "scale": 0.5}] | "lora_path": "a" | "adapter_id": "a" | "extra_body": {"top_k": 1} | "options": {"num_ctx": 1} | "images": ["x"] |
		"best_of": 3 | "n_cmpl": 2 | "model": null | "negative_prompt": "x" | "guidance_scale": 1.5 | "system": "x" | "transforms": ["middle-out"] |
		"add_bos_token": false | "presence_penalty_range": 64 | "truncation_side": "left" | "n_keep": 5 | "prediction": {"type": "text", "content": "x"} | "prediction": "x" |
		"functions": [{"name": "f"}] | "function_call": "auto" | "safe_prompt": true | "chat_template": "x" | "prompt_embeds": "x" | "return_prompt_text": true | "watermarking": true |
		"suppress_tokens": [3] | "begin_suppress_tokens": [3] | "bad_words_ids": [[3]] | "force_words_ids": [[3]] | "sequence_bias": [[[3], 1]] | "forced_bos_token_id": 0 |
		"forced_eos_token_id": 2 | "exponential_decay_length_penalty": [5, 1.1] | "dola_layers": "high" | "encoder_no_repeat_ngram_size": 2 | "num_return_sequences": 2 |
		"max_time": 3 | "beam_width": 4 | "beam_search_diversity_rate": 0.5 | "p": 0.5 | "k": 5 | "repetition_context_size": 20 | "message": "x" | "chat_history": [{"role": "USER"}] |
		"preamble": "x"`,
	completions: `"enable_thinking": false | "enable_thinking": true | "thinking": {"type": "disabled"} | "reasoning": {"effort": "low"} | "messages": [{"role": "user", "content": "x"}] | "input": "x" | "tool_choice": "required" | "suffix": "x" | "max_completion_tokens": 5 | "top_logprobs": 3 | "input_prefix": "x" | "tools": [{"type": "function"}]`,
	chat: `"input": "x" | "prompt": "x" | "input_ids": [1] | "instructions": "x" | "suffix": "x" | "audio": {"voice": "a"} | "modalities": ["text", "audio"] | "web_search_options": {} |
		"chat_template": "x" | "echo": true | "reasoning_format": "none" | "separate_reasoning": false | "parse_tool_calls": false |
		"tool_choice": "required" | "thinking": {"type": "often"}`,
	"/v1/embeddings": `"truncate": true | "normalize": false | "embd_normalize": -1 | "input_type": "query" | "task": "retrieval" |
		"output_dimension": 3 | "embed_dtype": "float16" | "endianness": "big" | "model": null | "extra_body": {"a": 1}`,
	"/tokenize": `"with_pieces": true | "add_special": true | "parse_special": false | "chat_template": "x" | "model": null`,
}

// harmless are parameters that ask for nothing, or that only tune and label a request.
var harmless = map[string]string{
	"* ": `"grammar": "" | "json_schema": null | "guided_json": null | "guided_choice": [] | "structured_outputs": null | "response_format": {"type": "text"} |
		"response_format": null | "truncate_prompt_tokens": null | "truncate_prompt_tokens": -1 | "truncate": null | "n_predict": null |
		"dry_multiplier": 0 | "dry_multiplier": 0.0, "dry_base": 3, "dry_allowed_length": 9, "dry_penalty_last_n": 100, "dry_sequence_breakers": ["a", "b"] |
		"dry_base": 1.75 | "dry_allowed_length": 2 | "dry_sequence_breakers": ["\n", ":", "\"", "*"] | "xtc_probability": 0, "xtc_threshold": 0.3 | "xtc_threshold": 0.1 |
		"mirostat": 0, "mirostat_tau": 8 | "mirostat_mode": 0, "mirostat_tau": 8.0, "mirostat_eta": 0.3 | "typical_p": 1.0 | "tfs_z": 1 | "top_a": 0 |
		"top_n_sigma": -1 | "dynatemp_range": 0 | "smoothing_factor": 0 | "min_keep": 0 | "samplers": [] | "repeat_penalty": 1, "repeat_last_n": 12 | "repeat_last_n": 64 |
		"use_beam_search": false | "length_penalty": 1.0 | "early_stopping": false | "do_sample": true | "watermark": false | "no_repeat_ngram_size": 0 |
		"thinking_budget": -1 | "reasoning_budget": -1 | "enable_thinking": null | "thinking": null | "bad_words": [] | "logits_processors": null |
		"prompt_logprobs": null | "n_probs": 0 | "return_tokens_as_token_ids": false | "lora": [] | "extra_body": {} | "best_of": 1 | "best_of": null | "n": 2, "best_of": 2 |
		"user": "u" | "metadata": {"a": "b"} | "store": false | "priority": 0 | "cache_prompt": true | "service_tier": "auto" | "prompt_cache_key": "k" |
		"safety_identifier": "s" | "cache_salt": "s" | "request_id": "r" | "keep_alive": "5m" | "spaces_between_special_tokens": true | "prediction": null |
		"id_slot": -1 | "timings_per_token": true | "num_return_sequences": 1 | "beam_width": 1 | "p": 1.0 | "k": 0 | "suppress_tokens": [] | "forced_bos_token_id": null`,
	completions:      `"suffix": null | "suffix": "" | "echo": false | "top_logprobs": null`,
	chat:             `"modalities": ["text"] | "audio": null | "verbosity": "low" | "reasoning_format": "auto" | "echo": false | "functions": [] | "tool_choice": "auto" | "separate_reasoning": true`,
	"/v1/embeddings": `"truncate_prompt_tokens": null | "truncate": false | "normalize": null | "user": "u" | "endianness": "little" | "embed_dtype": "float32"`,
	"/tokenize":      `"truncate_prompt_tokens": null | "with_pieces": false | "parse_special": true`,
}

// cases are the parts of the tables above that concern path.
func cases(table map[string]string, path string) []string {
	list := strings.Split(table[path], " |")
	if path == chat || path == completions {
		list = append(list, strings.Split(table["* "], " |")...)
	}
	return list
}

// TestForeignParametersThatChangeTheAnswerAre400: they were ignored, and the answer was another one
// than the client asked for.
func TestForeignParametersThatChangeTheAnswerAre400(t *testing.T) {
	m := generatetest.Spoken(t, &enginetest.Model{}, engine.Options{})
	s := serveWith(t, api.Options{Models: []*generate.Model{m}})
	for path, base := range map[string]obj{
		completions: {"prompt": "a", "max_tokens": 1}, chat: {"messages": hello, "max_tokens": 1}, "/v1/embeddings": {"input": "a"}, "/tokenize": {"prompt": "a"},
	} {
		ask := func(text string) (string, int, obj) {
			var extra map[string]json.RawMessage
			if err := json.Unmarshal([]byte("{"+text+"}"), &extra); err != nil {
				t.Fatal(text, err)
			}
			body, name := maps.Clone(base), ""
			for k, v := range extra {
				body[k], name = v, k
			}
			status, got := s.object("POST", path, body)
			return name, status, got
		}
		for _, c := range cases(foreign, path) {
			name, status, got := ask(c)
			param, _ := at(got, "error", "param").(string)
			if message, _ := at(got, "error", "message").(string); status != 400 || param != name && !strings.HasPrefix(param, name+".") || !strings.Contains(message, "'"+param+"'") {
				t.Errorf("%s with %s: got %d, %v", path, strings.TrimSpace(c), status, got)
			}
		}
		for _, c := range cases(harmless, path) {
			if _, status, got := ask(c); status != 200 {
				t.Errorf("%s with %s: got %d, %v", path, strings.TrimSpace(c), status, got)
			}
		}
	}
	for _, mark := range []string{"prefix", "partial"} {
		body := obj{"messages": []obj{{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", mark: true}}}
		if status, got := s.object("POST", chat, body); status != 400 || at(got, "error", "param") != "messages[1]."+mark {
			t.Errorf("%s: got %d, %v", mark, status, got)
		}
	}
}
