package messages

import "github.com/heftai/heft/api/wire"

// ErrorType returns a value of the type of errors, for the API description.
func ErrorType() any { return errorBody{} }

// tokenCount is the response of POST /v1/messages/count_tokens.
type tokenCount struct {
	Tokens int `json:"input_tokens"`
}

// Types returns the types of this package's endpoints by method and path.
func Types() map[string]wire.Types {
	return map[string]wire.Types{
		"GET /v1/models":   {Answer: modelList{}, Reads: wire.ReadsQuery}, // with the header anthropic-version
		"GET /v1/models/*": {Answer: modelCard{}},
		"POST /v1/messages": {Summary: "Answers a conversation as Anthropic's API does.", Reads: wire.ReadsBody, Answer: reply{},
			Events: []any{messageStart{}, plainEvent{}, blockStart{}, blockDelta{}, blockStop{}, messageDelta{}, errorBody{}}},
		"POST /v1/messages/count_tokens": {Summary: "Counts the tokens of a request's prompt.", Reads: wire.ReadsBody, Answer: tokenCount{}},
	}
}
