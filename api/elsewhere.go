package api

import "strings"

// elsewhere has endpoints of other servers that this one does not have. The text says what to use
// instead, or why there is no such endpoint. An entry also applies to all paths below its path; the
// longest matching path wins.
var elsewhere = map[string]string{
	// llama-server
	"/completion":      "use POST /v1/completions",
	"/embedding":       "use POST /v1/embeddings",
	"/infill":          "text is not inserted; put both parts into the prompt of POST /v1/completions",
	"/props":           "GET /v1/models has the context, POST /api/show the chat template, and GET /plan the memory",
	"/slots":           "GET /activity has the requests that run, and GET /metrics their counters",
	"/lora-adapters":   "GET /v1/models lists adapters, and model chooses one",
	"/models/load":     "the first request that names a model loads it",
	"/models/unload":   "POST /api/generate with the model and \"keep_alive\": 0 unloads it",
	"/rerank":          noRanks,
	"/reranking":       noRanks,
	"/v1/rerank":       noRanks,
	"/v1/reranking":    noRanks,
	"/api/web_search":  "the server does not search the web",
	"/api/web_fetch":   "the server does not search the web",
	"/api/v0":          lmStudio,
	"/api/v1":          lmStudio,
	"/v1/internal":     "use GET /v1/models",
	"/generate":        "use POST /v1/completions",
	"/generate_stream": "use POST /v1/completions with \"stream\": true",
	// vLLM and SGLang
	"/v2/rerank":             noRanks,
	"/score":                 noRanks,
	"/v1/score":              noRanks,
	"/pooling":               noPools,
	"/classify":              noPools,
	"/v1/classify":           noPools,
	"/encode":                "use POST /v1/embeddings",
	"/load":                  "use GET /activity",
	"/ping":                  "use GET /health",
	"/health_generate":       "use GET /health",
	"/server_info":           "use GET /plan",
	"/get_server_info":       "use GET /plan",
	"/get_model_info":        "use GET /v1/models",
	"/invocations":           "use POST /v1/chat/completions",
	"/sleep":                 unloads,
	"/wake_up":               unloads,
	"/is_sleeping":           unloads,
	"/v1/completions/render": "use POST /tokenize",
	// OpenAI
	"/v1/chat/completions/render": "use POST /apply-template",
	"/v1/chat/completions":        "the server keeps no conversations",
	"/v1/conversations":           "the server keeps no conversations; use previous_response_id of POST /v1/responses",
	"/v1/assistants":              "use POST /v1/responses",
	"/v1/threads":                 "use POST /v1/responses",
	"/v1/realtime":                "use POST /v1/responses with \"stream\": true",
	"/v1/uploads":                 "use POST /v1/files",
	"/v1/vector_stores":           "the server searches no files",
	"/v1/containers":              "the server runs no code",
	"/v1/fine_tuning":             "train run fine-tunes models",
	"/v1/evals":                   "the server has no evaluations",
	"/v1/moderations":             "the server filters nothing",
	"/v1/audio":                   textOnly,
	"/v1/images":                  textOnly,
	"/v1/videos":                  textOnly,
	"/v1/engines":                 "use GET /v1/models",
	// Anthropic
	"/v1/messages/batches": "use POST /v1/batches, with requests of OpenAI's API and without the header anthropic-version",
	"/v1/complete":         "use POST /v1/messages",
	"/v1/skills":           "the server runs no code",
}

const (
	noRanks  = "models of this server do not rank; compare embeddings of POST /v1/embeddings"
	noPools  = "models of this server do not classify; use POST /v1/embeddings"
	lmStudio = "this is LM Studio's API; use that of OpenAI, Anthropic or Ollama"
	textOnly = "models of this server read and write text only"
	unloads  = "models are unloaded by --idle-unload, or by POST /api/generate with \"keep_alive\": 0"
)

// insteadOf returns what to use instead of another server's path, or "" if the path is unknown.
func insteadOf(path string) string {
	for path != "" {
		if why := elsewhere[path]; why != "" {
			return why
		}
		path = path[:strings.LastIndexByte(path, '/')]
	}
	return ""
}
