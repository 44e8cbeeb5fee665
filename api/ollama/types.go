package ollama

import "github.com/heftai/heft/api/wire"

// ErrorType returns a value of the type of errors, for the API description.
func ErrorType() any { return errorBody{} }

// The responses of lists, versions and single embeddings.
type (
	tagList struct {
		Models []listed `json:"models"`
	}
	runningList struct {
		Models []running `json:"models"`
	}
	versions struct {
		Version string `json:"version"`
		Heft    string `json:"heft"`
	}
	oneEmbedding struct {
		Embedding []float32 `json:"embedding"`
	}
)

// Types returns the types of this package's endpoints by method and path.
func Types() map[string]wire.Types {
	all := map[string]wire.Types{
		"POST /api/chat":       {Summary: "Answers a conversation as Ollama does.", Reads: wire.ReadsBody, Answer: reply{}, Events: []any{reply{}}, Lines: true},
		"POST /api/generate":   {Summary: "Answers a prompt as Ollama does.", Reads: wire.ReadsBody, Answer: reply{}, Events: []any{reply{}}, Lines: true},
		"POST /api/embed":      {Summary: "Returns embeddings of length 1.", Reads: wire.ReadsBody, Answer: embedded{}},
		"POST /api/embeddings": {Summary: "Returns the embedding of a prompt.", Reads: wire.ReadsBody, Answer: oneEmbedding{}},
		"POST /api/show":       {Summary: "Describes a model.", Reads: wire.ReadsBody, Answer: shown{}},
		"POST /api/pull":       {Summary: "Says that a served model is there. Others are not fetched: 501.", Reads: wire.ReadsBody, Answer: pulled{}, Events: []any{pulled{}}, Lines: true},
		"GET /api/tags":        {Summary: "Lists the models.", Answer: tagList{}},
		"GET /api/ps":          {Summary: "Lists the models in memory.", Answer: runningList{}},
		"GET /api/version":     {Summary: "Returns the version of Ollama's API and of Heft.", Answer: versions{}},
	}
	for _, name := range []string{"POST /api/push", "POST /api/create", "POST /api/copy", "DELETE /api/delete", "POST /api/blobs/{digest}", "GET /api/blobs/{digest}"} {
		all[name] = wire.Types{Summary: "Not supported: answers 501 with what to do instead.", Answer: errorBody{}, Status: 501}
	}
	return all
}
