package foreign

// foreignPrompts change the text that the model gets.
var foreignPrompts = []row{
	{Completions, "suffix input_prefix input_suffix input_extra", "OpenAI, llama.cpp", "the model only continues.", nil, ""},
	{Completions, "message chat_history preamble", "Cohere", useChat, nil, ""},
	{Completions, "messages system template tools functions function_call raw context documents", "OpenAI, Ollama, vLLM", useChat, nil, ""},
	{Completions, "chat_template chat_template_kwargs template_vars continue_final_message instructions safe_prompt", "vLLM, tabbyAPI, OpenAI, Mistral", useChat, nil, ""},
	{Completions, "add_generation_prompt include_reasoning", "vLLM, OpenRouter", useChat, onFlag, ""},
	{Completions, "tool_choice", "OpenAI", useChat, []string{`"none"`, `"auto"`}, ""},
	{Completions, "reasoning_effort", "OpenAI", useChat, never, ""},
	{Completions, "reasoning_format reasoning_in_content separate_reasoning stream_reasoning parse_tool_calls", "llama.cpp, SGLang", useChat, append([]string{`"none"`, `""`}, off0...), ""},
	{Completions, "add_bos_token", "text-generation-webui, tabbyAPI", "use add_special_tokens.", onFlag, ""},
	{Chat | Responses | Messages, "add_bos_token", "text-generation-webui, tabbyAPI", "the chat template writes the first token.", onFlag, ""},
	{texts, "add_special parse_special", "llama.cpp", "use add_special_tokens; special tokens in a text are read as such.", onFlag, ""},
	{texts, "tokenize_special do_preprocess", "LMDeploy", "use /v1/completions for prompts without a template.", onFlag, ""},
	{Completions, "input inputs text query", "OpenAI, TGI, SGLang", "use prompt.", nil, ""},
	{texts, "input_ids prompt_token_ids", "SGLang, vLLM", "use prompt of /v1/completions.", nil, ""},
	{texts, "prompt_embeds input_embeds", "vLLM, SGLang", "a prompt is text or token ids.", nil, ""},
	{texts, "image_data images multimodal_data video_data audio_data", "llama.cpp, Ollama, SGLang", textOnly, nil, ""},
	{texts, "audio", "OpenAI", textOnly, nil, ""},
	{texts, "modalities", "OpenAI", textOnly, []string{`["text"]`, "[]"}, ""},
	{texts, "system_prompt memory prompt_template response_prefix", "llama.cpp, KoboldCpp, tabbyAPI", "put the text into the prompt or the messages.", nil, ""},
}

// foreignConversations change how a conversation becomes a prompt.
var foreignConversations = []row{
	{Chat, "prompt input inputs text query", "OpenAI, OpenRouter, TGI", "use messages.", nil, ""},
	{Chat, "message chat_history preamble", "Cohere", "use messages.", nil, ""},
	{Chat | Responses | Messages, "functions function_call", "OpenAI", "use tools.", nil, ""},
	{Chat, "suffix input_prefix input_suffix input_extra", "OpenAI, llama.cpp", "the answer is a message of its own; use continue_final_message.", nil, ""},
	{Chat | Tokenize | Responses | Template | Messages, "chat_template chat_template_str", "vLLM, text-generation-webui", "a request cannot bring a template.", nil, ""},
	{Chat | Responses | Messages, "template instruction_template instruction_template_str raw", "Ollama, text-generation-webui", "a request cannot bring a template.", nil, ""},
	{Chat | Responses | Messages, "template_vars", "tabbyAPI", "use chat_template_kwargs.", []string{"{}"}, ""},
	{Chat, "system instructions guideline safe_prompt tool_prompt task", "Anthropic, OpenAI, TGI, Mistral, SGLang", "use a message with the role system.", nil, ""},
	{Chat | Responses, "character bot_name context greeting user_name user_bio chat_instruct_command", "text-generation-webui", "use a message with the role system.", nil, ""},
	{Chat | Responses | Messages, "mode", "text-generation-webui", "a request cannot bring a template.", []string{`"instruct"`, `""`}, ""},
	{Chat, "continue_", "text-generation-webui", "use continue_final_message.", nil, ""},
}

// foreignServices belong to services that hosted APIs offer in addition to a model.
var foreignServices = []row{
	{texts, "web_search_options search_parameters enable_search search_options search_settings", "OpenAI, xAI, DashScope, Groq", "the server does not search the web.", append([]string{"false"}, never...), ""},
	{texts, "search_mode search_domain_filter search_recency_filter", "Perplexity", "the server does not search the web.", nil, ""},
	{texts, "plugins integrations mcp_servers connectors enable_code_interpreter translation_options", "OpenRouter, LM Studio, Cohere, DashScope", "the server has no plugins; use tools.", nil, ""},
	{texts &^ (Chat | Responses), "verbosity", "OpenAI", "the model has no such setting.", []string{`"medium"`, `""`}, ""},
	{texts &^ Chat, "prediction", "OpenAI, Mistral", "only /v1/chat/completions takes a prediction.", nil, ""},
	{texts, "speculation", "Fireworks", "use prediction of /v1/chat/completions.", nil, ""},
	{both, "previous_response_id conversation session_params", "OpenAI, LM Studio, SGLang", "the server keeps no conversations; send all messages.", nil, ""},
	{both, "include max_tool_calls", "OpenAI", "these are fields of /v1/responses.", nil, ""},
	{texts, "guardrails safety_model safety_mode mask_sensitive_info moderation", "Mistral, Together, Cohere, MiniMax", "answers are not filtered.", []string{`""`, "{}", "[]", "false", `"NONE"`, `"off"`}, ""},
	{texts, "models", "OpenRouter", "choose one with model.", nil, ""},
	{texts, "lora lora_path adapter_id adapter adapter_name adapters", "llama.cpp, SGLang, TGI, LMDeploy", "choose an adapter with model.", nil, ""},
	{texts | Embeddings | Tokenize, "extra_body", "openai-python", "put its fields into the request itself.", nil, ""},
	{texts | Embeddings, "nvext options parameters", "NIM, Ollama, TGI", "put its fields into the request itself.", nil, ""},
	{texts, "kv_transfer_params ec_transfer_params bootstrap_host bootstrap_port bootstrap_room", "vLLM, SGLang", "prompts and answers are computed by the same server.", nil, ""},
}

// foreignResponses are fields of the Responses API that other endpoints read, or that have another
// advice there.
var foreignResponses = []row{
	{Responses, "response_format json_schema format structured_outputs guided_json guided_regex guided_choice guided_grammar guided_whitespace_pattern structural_tag",
		"OpenAI, vLLM, llama.cpp", useTextFormat, []string{"false", `""`, "[]", "{}", `{"type":"text"}`}, ""},
	{Responses, "grammar regex ebnf grammar_string regex_pattern", "llama.cpp, SGLang, tabbyAPI", useTextFormat, nil, ""},
	{Responses, "max_tokens max_completion_tokens n_predict num_predict max_new_tokens max_length max_gen_len", "OpenAI, llama.cpp, Ollama, TGI", "use max_output_tokens.", never, ""},
	{Responses, "n best_of n_cmpl num_return_sequences", "OpenAI, vLLM, llama.cpp", "a response is one answer.", off1, ""},
	{Responses, "truncate_prompt_tokens", "vLLM", useTruncation, []string{"-1"}, ""},
	{Responses, "prompt_truncate_len truncation_length max_context_length num_ctx context_length", "Fireworks, text-generation-webui, Ollama, LM Studio", useTruncation, never, ""},
	{Responses, "truncation_side truncation_direction truncate truncate_sequence transforms context_length_exceeded_behavior context_management", "vLLM, TEI, TGI, OpenRouter, Together, OpenAI", useTruncation,
		[]string{"false", `"NONE"`, `""`, `"error"`, `"none"`, "[]"}, ""},
	{Responses, "logprobs n_probs top_n_tokens return_logprob top_logprobs_num post_sampling_probs", "OpenAI, llama.cpp, TGI, SGLang", useInclude, off0, ""},
	{Responses, "logprob_token_ids logprob_start_len decoder_input_details details", "vLLM, SGLang, TGI", useInclude, nil, ""},
	{Responses, "return_token_ids return_tokens return_prompt_token_ids return_full_text", "vLLM, llama.cpp, SGLang, TGI", "responses have the fields that OpenAI's have.", nil, ""},
	{Responses, "usage", "OpenRouter", "a response always has it.", []string{"{}", `{"include":false}`, `{"include":true}`}, ""},
	{Responses, "include_reasoning", "OpenRouter", "reasoning is an item of its own.", onFlag, ""},
	{Responses, "reasoning_effort enable_thinking think", "OpenAI, DashScope, SGLang, Ollama", useReasoning, never, ""},
	{Responses, "thinking prompt_mode thinking_forced_open preserve_thinking reasoning_history", "DeepSeek, Mistral, llama.cpp, text-generation-webui, Fireworks", useReasoning, nil, ""},
	{Responses, "messages inputs query message chat_history preamble", "OpenAI, TGI, Cohere", "use input.", nil, ""},
	{Responses, "prompt", "OpenAI", "the server keeps no prompts; use instructions and input.", nil, ""},
	{Responses, "system guideline safe_prompt tool_prompt task", "Anthropic, TGI, Mistral, SGLang", "use instructions.", nil, ""},
	{Responses, "documents", "vLLM", "put them into the input.", nil, ""},
	{Responses, "echo suffix input_prefix input_suffix input_extra continue_final_message continue_", "vLLM, OpenAI, llama.cpp, text-generation-webui", "the answer is a message of its own.", nil, ""},
	{Responses, "add_generation_prompt", "vLLM", "the answer is a message of its own.", onFlag, ""},
	{Responses, "add_special_tokens", "vLLM", "the chat template writes special tokens.", []string{"false"}, ""},
	{Responses, "conversation session_params", "OpenAI, SGLang", "the server keeps no conversations; use previous_response_id.", nil, ""},
}

// foreignMessages are fields of the Messages API that other endpoints read, or that have another
// advice there.
var foreignMessages = []row{
	{Messages, "response_format json_schema format structured_outputs guided_json guided_regex guided_choice guided_grammar guided_whitespace_pattern structural_tag",
		"OpenAI, vLLM, llama.cpp", useOutputFormat, []string{"false", `""`, "[]", "{}", `{"type":"text"}`}, ""},
	{Messages, "grammar regex ebnf grammar_string regex_pattern", "llama.cpp, SGLang, tabbyAPI", useOutputFormat, nil, ""},
	{Messages, "max_completion_tokens max_output_tokens max_tokens_to_sample n_predict num_predict max_new_tokens max_length max_gen_len", "OpenAI, Anthropic, llama.cpp, Ollama, TGI", useMaxTokens, never, ""},
	{Messages, "n best_of n_cmpl num_return_sequences", "OpenAI, vLLM, llama.cpp", "an answer is one message.", off1, ""},
	{Messages, "truncate_prompt_tokens prompt_truncate_len truncation_length max_context_length num_ctx context_length", "vLLM, Fireworks, text-generation-webui, Ollama, LM Studio", noTruncation, never, ""},
	{Messages, "truncation_side truncation_direction truncate truncate_sequence truncation transforms", "vLLM, TEI, TGI, OpenAI, OpenRouter", noTruncation, []string{"false", `"NONE"`, `""`, `"disabled"`, "[]"}, ""},
	{Messages, "stop_sequence stop_strings stop_words stopping_strings custom_stop_strings stop_regex stop_str", "KoboldCpp, transformers, SGLang", "use stop_sequences.", nil, ""},
	{Messages, "logprobs top_logprobs n_probs top_n_tokens return_logprob top_logprobs_num post_sampling_probs", "OpenAI, llama.cpp, TGI, SGLang", noLogProbs, off0, ""},
	{Messages, "logprob_token_ids logprob_start_len decoder_input_details details return_tokens_as_token_ids", "vLLM, SGLang, TGI", noLogProbs, nil, ""},
	{Messages, "return_token_ids return_tokens return_prompt_token_ids return_full_text", "vLLM, llama.cpp, SGLang, TGI", "messages have the fields that Anthropic's have.", nil, ""},
	{Messages, "reasoning reasoning_effort enable_thinking think", "OpenAI, OpenRouter, DashScope, SGLang, Ollama", "use thinking, output_config.effort, or chat_template_kwargs as the chat template has them.", never, ""},
	{Messages, "prompt input instructions query message chat_history preamble", "OpenAI, Cohere", "use messages and system.", nil, ""},
	{Messages, "documents", "vLLM", "put them into the messages.", nil, ""},
	{Messages, "compaction", "Anthropic", "ask for a summary in a message.", nil, ""},
	{Messages, "echo suffix continue_final_message continue_", "vLLM, OpenAI, text-generation-webui", "end the messages with one of the assistant, which the answer then continues.", nil, ""},
	{Messages, "parallel_tool_calls", "OpenAI", "use tool_choice.disable_parallel_tool_use.", onFlag, ""},
	{Messages, "previous_response_id conversation", "OpenAI", "the server keeps no conversations; send all messages.", nil, ""},
	{Messages, "container", "Anthropic", "the server runs no code; use tools.", nil, ""},
	{Messages, "stream_options", "OpenAI", "a stream always has its usage.", []string{"{}", `{"include_usage":true}`}, ""},
}

// foreignEmbeddings are fields of embeddings only.
var foreignEmbeddings = []row{
	{Embeddings, "normalize embd_normalize use_activation", "TEI, llama.cpp, vLLM", "the model's own files say whether embeddings are normalised.", never, ""},
	{Embeddings, "pooling_type pooling", "llama.cpp", "the model's own files say how states are pooled.", never, ""},
	{Embeddings, "input_type task task_type prompt_name instruction", "Cohere, Jina, TEI", "put the instruction into the input.", nil, ""},
	{Embeddings, "output_dimension", "Mistral, Voyage", "use dimensions.", never, ""},
	{Embeddings, "output_dtype embed_dtype", "Mistral, vLLM", "use encoding_format.", []string{`"float"`, `"float32"`}, ""},
	{Embeddings, "embedding_types", "Cohere", "use encoding_format.", nil, ""},
	{Embeddings, "endianness", "vLLM", "base64 is in little-endian order.", []string{`"native"`, `"little"`}, ""},
	{Embeddings, "late_chunking", "Jina", "inputs are embedded one by one.", nil, ""},
	{Embeddings, "content prompt inputs text texts messages", "llama.cpp, Ollama, TEI, Cohere, vLLM", "use input.", nil, ""},
	{Embeddings, "chat_template chat_template_kwargs instructions", "vLLM", "inputs are embedded without a template.", nil, ""},
	{Embeddings, "images image", "Cohere, SGLang", textOnly, nil, ""},
}

// foreignTokens are fields of /tokenize and /detokenize only.
var foreignTokens = []row{
	{Tokenize, "content text input inputs", "llama.cpp, TGI, SGLang", "use prompt.", nil, ""},
	{Tokenize, "with_pieces", "llama.cpp", "use return_token_strs.", nil, ""},
	{Tokenize, "add_special", "llama.cpp", "use add_special_tokens.", never, ""},
	{Tokenize, "parse_special", "llama.cpp", "special tokens in a text are read as such.", onFlag, ""},
	{Tokenize, "return_token_offsets return_offsets", "vLLM", "the answer has ids and, with return_token_strs, texts.", nil, ""},
	{Detokenize, "skip_special_tokens remove_special", "SGLang, llama.cpp", "special tokens are shown.", nil, ""},
	{Detokenize, "ids token_ids", "SGLang", "use tokens.", nil, ""},
}
