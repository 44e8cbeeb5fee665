package foreign

// Reasons that several rows share.
const (
	labels    = "It labels the request."
	caches    = "It says how caches are used, which changes no answer."
	schedules = "It says when and where the request is computed."
	speedsUp  = "It says how fast tokens are computed or sent, not which."
	noMedia   = "It is about images, audio and video, which the model does not read."
)

// ignored are fields of other servers that do not change the answer. No code reads them: a request
// may set them to any value.
var ignored = []row{
	{on: both | Embeddings | Tokenize, names: "user metadata safety_identifier", known: "OpenAI", why: labels},
	{on: both, names: "store", known: "OpenAI", why: schedules},
	{on: texts, names: "service_tier", known: "OpenAI", why: schedules},
	{on: texts, names: "guided_decoding_backend", known: "vLLM", why: "There is one way to constrain answers."},
	{on: both, names: "prompt_cache_key", known: "OpenAI", why: caches},
	{on: texts, names: "prompt_cache_retention prompt_cache_options", known: "OpenAI", why: caches},
	{on: Responses, names: "background_options access_programs", known: "OpenAI", why: schedules},
	{on: Responses, names: "image", known: "OpenAI", why: noMedia},
	{on: Messages, names: "metadata user_profile_id workspace_id diagnostics billing_policy fallback_credit_token", known: "Anthropic", why: labels},
	{on: Messages, names: "fallbacks", known: "Anthropic", why: "It names models for requests that Anthropic declines by its policies."},
	{on: Messages, names: "speed inference_geo betas anthropic_beta anthropic_version", known: "Anthropic", why: schedules},
	{on: Messages, names: "context_management", known: "Anthropic", why: "It drops old parts of conversations that are long; here a conversation that exceeds the context is a 400."},
	{on: all, names: "request_id rid extra_key custom_labels", known: "vLLM, SGLang", why: labels},
	{on: texts, names: "session_id user_id trace compliance genkey", known: "vLLM, SGLang, OpenRouter, Zhipu, Together, KoboldCpp", why: labels},
	{on: texts, names: "cache_prompt n_cache_reuse cache_control prompt_cache_max_len prompt_cache_isolation_key static_cache", known: "vLLM, llama.cpp, OpenRouter, Fireworks", why: caches},
	{on: all, names: "priority data_parallel_rank routed_dp_rank disagg_prefill_dp_rank provider route", known: "vLLM, SGLang, OpenRouter", why: schedules},
	{on: all, names: "keep_alive ttl", known: "Ollama, LM Studio", why: schedules},
	{on: texts, names: "id_slot num_batch num_gpu main_gpu num_thread use_mmap use_mlock low_vram numa f16_kv backend_sampling", known: "llama.cpp, Ollama", why: schedules},
	{on: texts, names: "draft_model draft_num_predict speculative_ngram prompt_lookup_num_tokens ngram_corpus_id speculative.n_max speculative.n_min speculative.p_min speculative.type", known: "LM Studio, Ollama, tabbyAPI, SGLang, llama.cpp", why: speedsUp},
	{on: texts, names: "stream_interval sse_ping_interval return_progress max_tokens_second tool_stream", known: "vLLM, llama.cpp, text-generation-webui, Zhipu", why: speedsUp},
	{on: texts, names: "timings_per_token", known: "llama.cpp", why: "It shows how long tokens took; GET /metrics does."},
	{on: Completions, names: "parallel_tool_calls", known: "OpenAI", why: "There are no tools."},
	{on: texts, names: "spaces_between_special_tokens", known: "vLLM", why: "The tokenizer decodes as fast tokenizers do, for which it has no effect."},
	{on: texts, names: "return_token_offsets return_mm_kwargs", known: "vLLM", why: "vLLM reads it in /render alone."},
	{on: texts, names: "routed_experts_prompt_start routed_experts_start_len", known: "vLLM, SGLang", why: "It is about routed experts, which answers do not have."},
	{on: all, names: "mm_processor_kwargs media_io_kwargs images_config image_config max_dynamic_patch min_dynamic_patch use_audio_in_video document_image_limit document_page_limit vl_high_resolution_images",
		known: "vLLM, SGLang, OpenRouter, Mistral, DashScope", why: noMedia},
}
