package foreign

import "slices"

// unsupported are fields of other servers that change the answer.
var unsupported = slices.Concat(foreignConstraints, foreignSamplers, foreignPenalties, foreignLimits, foreignAnswers, foreignThinking,
	foreignPrompts, foreignConversations, foreignServices, foreignResponses, foreignMessages, foreignEmbeddings, foreignTokens)

// Reasons that several rows share.
const (
	noBeams      = "there is no beam search."
	noSampler    = "there is no such sampler."
	wholeText    = "penalties count the whole text."
	useMaxTokens = "use max_tokens."
	useStop      = "use stop."
	useBias      = "use logit_bias."
	useBadWords  = "use bad_words."
	usePenalty   = "use repetition_penalty."
	noTruncation = "prompts are not truncated."
	useTruncate  = "use truncate_prompt_tokens."
	noBudget     = "use thinking.budget_tokens."
	noThinking   = "use chat_template_kwargs or reasoning_effort, as the chat template has them."
	usualFields  = "answers have the fields that OpenAI's have."
	textOnly     = "the model reads and writes text only."
	useChat      = "use /v1/chat/completions."

	useTextFormat   = "use text.format."
	useTruncation   = "use truncation."
	useInclude      = "use top_logprobs, and include message.output_text.logprobs."
	useOutputFormat = "use output_config.format."
	noLogProbs      = "messages have no log-probabilities."
	useReasoning    = "use reasoning.effort, or chat_template_kwargs as the chat template has them."
)

// foreignConstraints restrict the answer.
var foreignConstraints = []row{
	{both, "guided_whitespace_pattern structural_tag", "vLLM, SGLang", "use structured_outputs.", nil, ""},
	{both, "regex ebnf", "SGLang", "use structured_outputs.", nil, ""},
	{texts, "grammar_lazy grammar_triggers grammar_type preserved_tokens", "llama.cpp", "a grammar constrains the whole answer.", nil, ""},
	{both, "grammar_string regex_pattern", "text-generation-webui, tabbyAPI", "use structured_outputs.", nil, ""},
	{both, "format", "Ollama", "use response_format.", nil, ""},
}

// foreignSamplers change how tokens are chosen.
var foreignSamplers = []row{
	{texts, "use_beam_search early_stopping", "vLLM", noBeams, nil, ""},
	{texts, "length_penalty num_beams num_beam_groups", "vLLM, transformers", noBeams, off01, ""},
	{texts, "diversity_penalty beam_search_diversity_rate", "transformers, TensorRT-LLM", noBeams, off0, ""},
	{texts, "beam_width", "TensorRT-LLM", noBeams, off01, ""},
	{texts, "mirostat mirostat_mode", "llama.cpp, Ollama, tabbyAPI", noSampler, off0, ""},
	{texts, "mirostat_tau", "llama.cpp, Ollama", noSampler, []string{"5"}, "mirostat mirostat_mode"},
	{texts, "mirostat_eta", "llama.cpp, Ollama", noSampler, []string{"0.1"}, "mirostat mirostat_mode"},
	{texts, "mirostat_target mirostat_lr", "Fireworks", noSampler, nil, ""},
	{texts, "dry_multiplier", "llama.cpp, text-generation-webui", noSampler, off0, ""},
	{texts, "dry_base", "llama.cpp", noSampler, []string{"1.75"}, "dry_multiplier"},
	{texts, "dry_allowed_length", "llama.cpp", noSampler, []string{"2"}, "dry_multiplier"},
	{texts, "dry_penalty_last_n dry_range", "llama.cpp, tabbyAPI", noSampler, offBelow, "dry_multiplier"},
	{texts, "dry_sequence_breakers", "llama.cpp", noSampler, []string{`[]`, `["\n",":","\"","*"]`}, "dry_multiplier"},
	{texts, "xtc_probability", "llama.cpp, tabbyAPI", noSampler, off0, ""},
	{texts, "xtc_threshold", "llama.cpp, tabbyAPI", noSampler, []string{"0.1"}, "xtc_probability"},
	{texts, "dynatemp_range dynamic_temperature", "llama.cpp, text-generation-webui", noSampler, off0, ""},
	{texts, "dynatemp_low dynatemp_high min_temp max_temp temp_exponent", "text-generation-webui, tabbyAPI", noSampler, off1, "dynamic_temperature dynatemp_range"},
	{texts, "dynatemp_exponent", "llama.cpp", noSampler, off1, "dynatemp_range dynamic_temperature"},
	{texts, "smoothing_factor", "text-generation-webui", noSampler, off0, ""},
	{texts, "smoothing_curve", "text-generation-webui", noSampler, off1, "smoothing_factor"},
	{texts, "adaptive_target", "llama.cpp", noSampler, offBelow, ""},
	{texts, "adaptive_decay", "llama.cpp", noSampler, []string{"0.9"}, "adaptive_target"},
	{texts, "top_n_sigma nsigma", "llama.cpp, Aphrodite", noSampler, offBelow, ""},
	{texts, "typical_p typical tfs_z tfs cfg_scale guidance_scale", "llama.cpp, Ollama, TGI, tabbyAPI", noSampler, off01, ""},
	{texts, "temperature_last top_a top_h skew eta_cutoff epsilon_cutoff no_repeat_ngram_size penalty_alpha min_keep token_healing", "text-generation-webui, tabbyAPI, OpenRouter", noSampler, off0, ""},
	{texts, "watermark watermarking", "TGI, vLLM", noSampler, off0, ""},
	{texts, "repetition_detection logits_processors vllm_xargs", "vLLM", noSampler, nil, ""},
	{texts, "custom_logit_processor custom_params", "SGLang", noSampler, nil, ""},
	{texts, "samplers sampler_priority sampler_order preset selected_preset overrides", "llama.cpp, text-generation-webui, KoboldCpp, tabbyAPI, OpenRouter", noSampler, nil, ""},
	{texts, "negative_prompt negative_prompt_ids", "text-generation-webui", noSampler, nil, ""},
	{texts, "do_sample", "TGI, transformers", "use temperature 0.", onFlag, ""},
	{texts, "random_seed sampling_seed", "Mistral, SGLang", "use seed.", never, ""},
	{texts, "sampler_seed", "KoboldCpp", "use seed.", []string{"-1"}, ""},
	{texts, "banned_tokens banned_strings custom_token_bans", "tabbyAPI", useBadWords, nil, ""},
	{texts, "suppress_tokens begin_suppress_tokens bad_words_ids force_words_ids sequence_bias", "transformers", useBias, nil, ""},
	{texts, "forced_bos_token_id forced_eos_token_id", "transformers", useBias, never, ""},
	{texts, "exponential_decay_length_penalty dola_layers", "transformers", noSampler, nil, ""},
	{texts, "encoder_no_repeat_ngram_size", "transformers", noSampler, off0, ""},
	{texts, "p", "Cohere", "use top_p.", off1, ""},
	{texts, "k", "Cohere", "use top_k.", off0, ""},
	{texts, "allowed_tokens", "tabbyAPI", "use allowed_token_ids.", nil, ""},
	{texts, "ban_eos_token bypass_eos", "text-generation-webui, KoboldCpp", "use ignore_eos.", nil, ""},
}

// foreignPenalties penalise tokens that the text already contains.
var foreignPenalties = []row{
	{texts, "repeat_penalty rep_pen", "llama.cpp, LM Studio, KoboldCpp", usePenalty, off01, ""},
	{texts, "encoder_repetition_penalty", "text-generation-webui", usePenalty, off01, ""},
	{texts, "repeat_last_n", "llama.cpp, Ollama", wholeText, []string{"64", "-1", "0"}, "repeat_penalty"},
	{texts, "rep_pen_range", "KoboldCpp", wholeText, offBelow, "rep_pen"},
	{texts, "rep_pen_slope", "KoboldCpp", wholeText, off01, "rep_pen"},
	{texts, "repetition_penalty_range presence_penalty_range frequency_penalty_range penalty_range repetition_range repetition_decay", "text-generation-webui, tabbyAPI, SillyTavern", wholeText, offBelow, ""},
	{texts, "repetition_context_size", "MLX", wholeText, never, ""},
	{texts, "penalty_prompt", "llama.cpp", wholeText, nil, ""},
	{texts, "penalize_nl", "llama.cpp, Ollama", useBias, off0, ""},
}

// foreignLimits limit prompts and answers.
var foreignLimits = []row{
	{both, "n_predict num_predict max_new_tokens max_output_tokens max_length max_gen_len", "llama.cpp, Ollama, TGI, OpenAI, KoboldCpp", useMaxTokens, never, ""},
	{Completions, "max_completion_tokens", "OpenAI", useMaxTokens, never, ""},
	{texts, "auto_max_new_tokens", "text-generation-webui", useMaxTokens, off0, ""},
	{texts, "min_new_tokens min_length", "LMDeploy, tabbyAPI", "use min_tokens.", off0, ""},
	{texts, "t_max_predict_ms t_max_prompt_ms", "llama.cpp", "answers have no limit of time.", offBelow, ""},
	{texts, "max_time", "transformers", "answers have no limit of time.", never, ""},
	{texts, "n_indent", "llama.cpp", "answers have no limit of indentation.", off0, ""},
	{both, "n_cmpl num_return_sequences", "llama.cpp, transformers", "use n.", off1, ""},
	{both | Embeddings | Tokenize, "truncation_side truncation_direction", "vLLM, TEI", "truncate_prompt_tokens keeps the last tokens.", nil, ""},
	{both, "prompt_truncate_len truncation_length max_context_length num_ctx context_length", "Fireworks, text-generation-webui, KoboldCpp, Ollama, LM Studio", useTruncate, never, ""},
	{both | Embeddings, "truncate truncate_sequence truncation", "TGI, Ollama, mistral.rs, Voyage", useTruncate, []string{"false", `"NONE"`, `""`, `"disabled"`}, ""},
	{both, "context_length_exceeded_behavior", "Together, Fireworks", useTruncate, []string{`"error"`, `"none"`}, ""},
	{both, "transforms", "OpenRouter", useTruncate, nil, ""},
	{texts, "n_keep num_keep n_discard shift", "llama.cpp, Ollama", "a full context ends the answer; no token of it is discarded.", []string{"-1", "0", "false"}, ""},
	{both | Responses, "stop_sequences stop_sequence stop_strings stop_words stopping_strings custom_stop_strings stop_regex stop_str", "Anthropic, KoboldCpp, transformers, SGLang", useStop, nil, ""},
	{texts, "no_stop_trim", "SGLang", "text ends before a stop string; use include_stop_str_in_output.", nil, ""},
	{texts, "rope_frequency_base rope_frequency_scale", "Ollama", "the model's own files say how positions are encoded.", never, ""},
}

// foreignAnswers change the fields of an answer.
var foreignAnswers = []row{
	{Responses | Messages, "prompt_logprobs", "vLLM", "use prompt_logprobs of /v1/completions or /v1/chat/completions.", []string{"false"}, ""},
	{both, "n_probs top_n_tokens return_logprob top_logprobs_num post_sampling_probs", "llama.cpp, TGI, SGLang", "use logprobs.", off0, ""},
	{both, "logprob_token_ids logprob_start_len decoder_input_details details", "vLLM, SGLang, TGI", "use logprobs.", nil, ""},
	{Completions, "top_logprobs", "OpenAI", "use logprobs with a number.", off0, ""},
	{Responses, "return_tokens_as_token_ids", "vLLM", "log-probabilities name tokens by their text.", nil, ""},
	{both, "return_tokens return_prompt_token_ids", "llama.cpp, SGLang", "use return_token_ids.", nil, ""},
	{both, "return_full_text", "TGI", "use echo of /v1/completions.", nil, ""},
	{Chat, "echo", "vLLM, Together", "the answer is a message of its own; use continue_final_message.", nil, ""},
	{texts, "return_prompt_text", "vLLM", usualFields, nil, ""},
	{texts, "response_fields verbose", "llama.cpp", usualFields, nil, ""},
	{texts, "return_hidden_states return_routed_experts return_meta_info return_cached_tokens_details", "SGLang", usualFields, nil, ""},
	{texts, "raw_output perf_metrics_in_response", "Fireworks", usualFields, nil, ""},
	{texts, "return_images return_related_questions return_citations citation_options", "Perplexity, Cohere", usualFields, nil, ""},
	{texts, "_debug_render_only debug", "Ollama, OpenRouter", usualFields, nil, ""},
	{both, "usage", "OpenRouter", "use stream_options.include_usage; an answer sent at once always has it.", []string{"{}", `{"include":false}`}, ""},
	{texts, "incremental_output", "DashScope", "chunks of a stream have new text only.", onFlag, ""},
	{texts, "result_format", "DashScope", usualFields, []string{`"message"`}, ""},
	{texts, "trim_stop render_special", "KoboldCpp", "use include_stop_str_in_output or skip_special_tokens.", nil, ""},
	{texts, "deferred background", "xAI, OpenAI", "an answer is sent on the connection of its request.", nil, ""},
	{Chat | Responses, "reasoning_format", "llama.cpp, Groq", "reasoning is apart from content.", []string{`"auto"`, `"deepseek"`, `"parsed"`, `""`}, ""},
	{Chat | Responses, "reasoning_in_content", "llama.cpp", "reasoning is apart from content.", nil, ""},
	{Chat | Responses, "separate_reasoning stream_reasoning reasoning_split", "SGLang, MiniMax", "reasoning is apart from content and streams.", onFlag, ""},
	{Chat | Responses, "parse_tool_calls", "llama.cpp", "calls are parsed.", onFlag, ""},
	{Chat | Responses, "chat_format chat_parser generation_prompt", "llama.cpp", "use --tool-call-parser of the server.", nil, ""},
}

// foreignThinking change whether and how long a model reasons.
var foreignThinking = []row{
	{Messages, "thinking_budget thinking_token_budget thinking_budget_tokens reasoning_budget reasoning_budget_tokens max_thinking_tokens", "vLLM, llama.cpp, DashScope, NIM", noBudget, []string{"-1"}, ""},
	{texts, "min_thinking_tokens", "NIM", "reasoning can be limited, not prolonged.", off0, ""},
	{texts, "reasoning_budget_message reasoning_budget_start_tag reasoning_budget_end_tag reasoning_budget_end_tags reasoning_control", "llama.cpp", "a budget ends reasoning with the marker of the chat template, and nothing else.", nil, ""},
	{both, "think", "Ollama", noThinking, never, ""},
	{Completions, "enable_thinking", "DashScope, SGLang", noThinking, never, ""},
	{Completions, "thinking", "DeepSeek, Anthropic", noThinking, []string{"{}"}, ""},
	{Completions, "reasoning", "OpenRouter, Ollama", noThinking, []string{"{}"}, ""},
	{both, "prompt_mode thinking_forced_open preserve_thinking reasoning_history", "Mistral, llama.cpp, text-generation-webui, Fireworks", noThinking, nil, ""},
}
