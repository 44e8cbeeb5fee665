package openai

import (
	"encoding/json"

	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/internal/schema"
	"github.com/heftai/heft/api/wire"
)

// ErrorType returns a value of the type of errors, for the API description.
func ErrorType() any { return openaijson.ErrorBody{} }

// Types returns the types of this package's endpoints by method and path.
func Types() map[string]wire.Types {
	return map[string]wire.Types{
		"POST /v1/chat/completions": {Summary: "Answers a conversation.", Reads: wire.ReadsBody, Answer: body[chatChoice]{}, Events: []any{body[chatChunkChoice]{}}},
		"POST /v1/completions":      {Summary: "Continues prompts.", Reads: wire.ReadsBody, Answer: body[completionChoice]{}, Events: []any{body[completionChoice]{}}},
		"POST /v1/embeddings":       {Summary: "Returns an embedding of each input.", Reads: wire.ReadsBody, Answer: embeddings{}},
		"POST /tokenize":            {Summary: "Turns text or messages into token ids.", Reads: wire.ReadsBody, Answer: tokens{}},
		"POST /detokenize":          {Summary: "Turns token ids into text.", Reads: wire.ReadsBody, Answer: detokenized{}},
		"POST /apply-template":      {Summary: "Turns messages into the text of the prompt.", Reads: wire.ReadsBody, Answer: detokenized{}},
		"GET /tokenizer_info":       {Summary: "Returns the model's tokenizer_config.json.", Answer: map[string]json.RawMessage{}},
		"GET /v1/models":            {Summary: "Lists the models.", Answer: modelList{}},
		"GET /v1/models/*":          {Summary: "Describes a model.", Answer: modelCard{}},
		"POST /v1/load_lora_adapter": {Summary: "Loads a LoRA adapter.", Reads: wire.ReadsBody,
			Media: "text/plain"},
		"POST /v1/unload_lora_adapter": {Summary: "Unloads a LoRA adapter.", Reads: wire.ReadsBody, Media: "text/plain"},
	}
}

// Samples implements schema.Sampler: the list of a prompt's tokens replaces it.
func (*promptScores) Samples() []any {
	return []any{schema.Like{Value: []map[string]promptToken{}}}
}
