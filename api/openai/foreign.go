package openai

import (
	"slices"

	"github.com/heftai/heft/api/wire"
)

// Parameters that vLLM, llama-server, SGLang, TGI, Ollama, OpenAI and others have, that change the
// answer, and that this server does not support. A request that sets one is a 400, since an answer
// without it would be silently wrong. Parameters that only tune or label a request (user, metadata,
// priority, cache_prompt, …) are ignored.

// Reasons that several parameters share.
const (
	notConstrained = "answers cannot be constrained."
	noBeams        = "there is no beam search."
	noSampler      = "there is no such sampler."
	useMaxTokens   = "use max_tokens."
	useStop        = "use stop."
	noTruncation   = "prompts are not truncated."
	noThinking     = "use chat_template_kwargs or reasoning_effort, as the chat template has them."
)

// Values that ask for nothing.
var (
	never    = []string{} // but null
	off0     = []string{"0", "false"}
	off1     = []string{"1"}
	off01    = []string{"0", "1"}
	offBelow = []string{"-1", "0"}
	onFlag   = []string{"true"}
)

// each makes an entry for every name.
func each(reason string, off []string, names ...string) []wire.Unsupported {
	var list []wire.Unsupported
	for _, name := range names {
		list = append(list, wire.Unsupported{Field: name, Reason: reason, Off: off})
	}
	return list
}

// foreignConstraints constrain what the answer may be.
var foreignConstraints = slices.Concat(
	each(notConstrained, []string{`""`}, "guided_json", "json_schema"), // {} allows any JSON
	each(notConstrained, nil, "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "structural_tag", "regex", "ebnf",
		"grammar", "grammar_string", "grammar_lazy", "grammar_triggers", "format"),
)

// foreignSamplers change how tokens are chosen.
var foreignSamplers = slices.Concat(
	each(noBeams, nil, "use_beam_search", "early_stopping"),
	each(noBeams, off01, "length_penalty", "num_beams", "num_beam_groups"),
	each(noBeams, off0, "diversity_penalty"),
	each(noSampler, off0, "mirostat", "mirostat_mode", "dry_multiplier", "xtc_probability", "dynatemp_range", "smoothing_factor",
		"dynamic_temperature", "temperature_last", "top_a", "top_h", "skew", "eta_cutoff", "epsilon_cutoff", "no_repeat_ngram_size", "penalty_alpha",
		"repetition_detection", "min_keep", "watermark"),
	each(noSampler, off01, "typical_p", "typical", "tfs_z", "tfs", "cfg_scale", "guidance_scale"),
	each(noSampler, offBelow, "top_n_sigma", "nsigma", "adaptive_target"),
	each(noSampler, nil, "samplers", "sampler_priority", "sampler_order", "negative_prompt", "negative_prompt_ids", "logits_processors",
		"custom_logit_processor", "custom_params", "vllm_xargs"),
	[]wire.Unsupported{
		{Field: "mirostat_tau", Reason: noSampler, Off: []string{"5"}, With: []string{"mirostat", "mirostat_mode"}},
		{Field: "mirostat_eta", Reason: noSampler, Off: []string{"0.1"}, With: []string{"mirostat", "mirostat_mode"}},
		{Field: "dry_base", Reason: noSampler, Off: []string{"1.75"}, With: []string{"dry_multiplier"}},
		{Field: "dry_allowed_length", Reason: noSampler, Off: []string{"2"}, With: []string{"dry_multiplier"}},
		{Field: "dry_penalty_last_n", Reason: noSampler, Off: offBelow, With: []string{"dry_multiplier"}},
		{Field: "dry_sequence_breakers", Reason: noSampler, Off: []string{`[]`, `["\n",":","\"","*"]`}, With: []string{"dry_multiplier"}},
		{Field: "xtc_threshold", Reason: noSampler, Off: []string{"0.1"}, With: []string{"xtc_probability"}},
		{Field: "dynatemp_exponent", Reason: noSampler, Off: off1, With: []string{"dynatemp_range"}},
		{Field: "smoothing_curve", Reason: noSampler, Off: off1, With: []string{"smoothing_factor"}},
		{Field: "adaptive_decay", Reason: noSampler, Off: []string{"0.9"}, With: []string{"adaptive_target"}},
		{Field: "repeat_penalty", Reason: "use repetition_penalty.", Off: off01},
		{Field: "repeat_last_n", Reason: "penalties count the whole text.", Off: []string{"64", "-1", "0"}, With: []string{"repeat_penalty"}},
		{Field: "rep_pen", Reason: "use repetition_penalty.", Off: off01},
		{Field: "rep_pen_range", Reason: "penalties count the whole text.", Off: offBelow, With: []string{"rep_pen"}},
		{Field: "rep_pen_slope", Reason: "penalties count the whole text.", Off: off01, With: []string{"rep_pen"}},
		{Field: "repetition_penalty_range", Reason: "penalties count the whole text.", Off: offBelow},
		{Field: "encoder_repetition_penalty", Reason: "use repetition_penalty.", Off: off01},
		{Field: "penalize_nl", Reason: "use logit_bias.", Off: off0},
		{Field: "do_sample", Reason: "use temperature 0.", Off: onFlag},
		{Field: "random_seed", Reason: "use seed.", Off: never},
		{Field: "sampling_seed", Reason: "use seed.", Off: never},
		{Field: "sampler_seed", Reason: "use seed.", Off: []string{"-1"}},
		{Field: "bad_words", Reason: "use logit_bias."},
		{Field: "banned_tokens", Reason: "use logit_bias."},
		{Field: "banned_strings", Reason: "use logit_bias."},
		{Field: "custom_token_bans", Reason: "use logit_bias."},
		{Field: "ban_eos_token", Reason: "use ignore_eos."},
	},
)

// foreignLimits bound prompts and answers.
var foreignLimits = slices.Concat(
	each(useMaxTokens, never, "n_predict", "num_predict", "max_new_tokens", "max_output_tokens", "max_length", "max_gen_len"),
	each("use min_tokens.", off0, "min_new_tokens", "min_length"),
	each("answers have no limit of time.", offBelow, "t_max_predict_ms"),
	each("answers have no limit of indentation.", off0, "n_indent"),
	each("use n.", off1, "n_cmpl"),
	each(noTruncation, []string{"-1"}, "truncate_prompt_tokens"),
	each(noTruncation, never, "prompt_truncate_len", "truncation_length", "max_context_length", "num_ctx"),
	each(noTruncation, []string{"false", `"NONE"`, `""`}, "truncate", "truncate_sequence"),
	each(noTruncation, []string{`"error"`, `"none"`}, "context_length_exceeded_behavior"),
	each(useStop, nil, "stop_sequences", "stop_sequence", "stop_strings", "stop_words", "stopping_strings", "custom_stop_strings", "stop_regex"),
	each(noTruncation, nil, "transforms"),
	each("text ends before a stop string; use include_stop_str_in_output.", nil, "no_stop_trim"),
)

// foreignAnswers change what an answer shows.
var foreignAnswers = slices.Concat(
	each("use echo with logprobs of /v1/completions.", []string{"false"}, "prompt_logprobs"),
	each("use logprobs.", []string{"0", "false"}, "n_probs", "top_n_tokens", "return_logprob", "top_logprobs_num", "post_sampling_probs"),
	each("use logprobs.", nil, "logprob_token_ids", "decoder_input_details"),
	each("log-probabilities name tokens by their text.", nil, "return_tokens_as_token_ids"),
	each("use return_token_ids.", nil, "return_tokens"),
	each("use echo of /v1/completions.", nil, "return_full_text"),
	each("answers have the fields that OpenAI's have.", nil, "response_fields", "return_hidden_states", "return_routed_experts", "kv_transfer_params"),
	each("choose an adapter with model.", nil, "lora", "lora_path", "adapter_id", "adapters"),
	each("put its fields into the request itself.", nil, "extra_body", "nvext", "options", "parameters"),
	each("the model reads text only.", nil, "image_data", "images"),
)

// foreignThinking change whether and how long a model reasons.
var foreignThinking = slices.Concat(
	each("a budget of reasoning cannot be set.", []string{"-1"}, "thinking_budget", "thinking_token_budget", "thinking_budget_tokens",
		"reasoning_budget", "reasoning_budget_tokens", "max_thinking_tokens"),
	each("a budget of reasoning cannot be set.", nil, "reasoning_budget_message"),
	each(noThinking, never, "enable_thinking", "think"),
	each(noThinking, []string{"{}"}, "thinking", "reasoning"),
	each(noThinking, nil, "prompt_mode", "thinking_forced_open"),
)

// foreignGeneration are the parameters of both endpoints.
var foreignGeneration = slices.Concat(foreignConstraints, foreignSamplers, foreignLimits, foreignAnswers, foreignThinking)

// foreignCompletion are those of /v1/completions alone.
var foreignCompletion = slices.Concat(
	each("the model only continues.", nil, "suffix", "input_prefix", "input_suffix", "input_extra"),
	each(useMaxTokens, never, "max_completion_tokens"),
	each("use logprobs with a number.", off0, "top_logprobs"),
	each("use /v1/chat/completions.", nil, "system", "template", "tools", "raw", "context"),
)

// foreignChat are those of /v1/chat/completions alone.
var foreignChat = slices.Concat(
	each("use tools.", nil, "functions", "function_call"),
	each("audio output is not supported.", nil, "audio"),
	each("answers are text.", []string{`["text"]`, "[]"}, "modalities"),
	each("the server does not search the web.", never, "web_search_options"),
	each("the model has no such setting.", []string{`"medium"`, `""`}, "verbosity"),
	each("a request cannot bring a template.", nil, "chat_template", "template", "instruction_template"),
	each("use a message with the role system.", nil, "system", "instructions", "tool_prompt", "guideline", "safe_prompt"),
	each("the answer is a message of its own; use continue_final_message.", nil, "echo", "suffix"),
	each("reasoning is apart from content.", []string{`"auto"`, `"deepseek"`, `""`}, "reasoning_format"),
	each("reasoning is apart from content.", nil, "reasoning_in_content"),
	each("reasoning is apart from content and streams.", onFlag, "separate_reasoning", "stream_reasoning"),
	each("calls are parsed.", onFlag, "parse_tool_calls"),
)

// foreignEmbedding are those of /v1/embeddings.
var foreignEmbedding = slices.Concat(
	each(noTruncation, []string{"-1"}, "truncate_prompt_tokens"),
	each(noTruncation, []string{"false", `"NONE"`, `""`}, "truncate"),
	each("the model's own files say whether embeddings are normalised.", never, "normalize", "embd_normalize", "use_activation"),
	each("put the instruction into the input.", nil, "input_type", "task", "task_type", "prompt_name", "instruction"),
	each("use dimensions.", never, "output_dimension"),
	each("use encoding_format.", []string{`"float"`, `"float32"`}, "output_dtype", "embed_dtype"),
	each("use encoding_format.", nil, "embedding_types"),
	each("base64 is in little-endian order.", []string{`"native"`, `"little"`}, "endianness"),
	each("inputs are embedded one by one.", nil, "late_chunking"),
	each("use input.", nil, "content"),
	each("put its fields into the request itself.", nil, "extra_body", "options"),
)

// foreignTokenize are those of /tokenize.
var foreignTokenize = slices.Concat(
	each(noTruncation, []string{"-1"}, "truncate_prompt_tokens"),
	each("use return_token_strs.", nil, "with_pieces"),
	each("use add_special_tokens.", never, "add_special"),
	each("special tokens in a text are read as such.", onFlag, "parse_special"),
	each("a request cannot bring a template.", nil, "chat_template"),
	each("put its fields into the request itself.", nil, "extra_body"),
)
