package responses

import (
	"github.com/heftai/heft/api/internal/openaijson"
	"github.com/heftai/heft/api/wire"
)

// inputTokens is the response of POST /v1/responses/input_tokens.
type inputTokens struct {
	Object string `json:"object"`
	Tokens int    `json:"input_tokens"`
}

// deleted is the response of DELETE /v1/responses/{id}.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Types returns the types of this package's endpoints by method and path.
func Types() map[string]wire.Types {
	events := []any{lifecycleEvent{}, itemAdded{}, partAdded{}, textDelta{}, textDone{}, reasoningDelta{}, reasoningDone{}, argumentsDelta{}, argumentsDone{}, inputDelta{}, inputDone{}, errorEvent{}}
	return map[string]wire.Types{
		"POST /v1/responses":                 {Summary: "Answers input items with output items.", Reads: wire.ReadsBody, Answer: response{}, Events: events},
		"POST /v1/responses/input_tokens":    {Summary: "Counts the tokens of a request's prompt.", Reads: wire.ReadsBody, Answer: inputTokens{}},
		"POST /v1/responses/compact":         {Summary: "Not supported: answers 404 with what to do instead.", Answer: openaijson.ErrorBody{}, Status: 404},
		"GET /v1/responses/{id}":             {Summary: "Returns a stored response.", Reads: wire.ReadsQuery, Answer: response{}, Events: events},
		"DELETE /v1/responses/{id}":          {Summary: "Deletes a stored response.", Answer: deleted{}},
		"POST /v1/responses/{id}/cancel":     {Summary: "Ends a response in progress.", Answer: response{}},
		"GET /v1/responses/{id}/input_items": {Summary: "Lists the input of a stored response.", Reads: wire.ReadsQuery, Answer: itemList{}},
	}
}
