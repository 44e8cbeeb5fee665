// Package messages is the Messages API: /v1/messages and /v1/messages/count_tokens as Anthropic's clients have
// them.
//
// A request is decoded into a [generate.Conversation] (request.go, content.go, tools.go). The model's
// answer becomes content blocks: thinking, text and tool_use. A builder (builder.go) makes the message of them, or the
// events of a stream. The server keeps nothing between requests.
//
// The package knows no routes and no model internals. Errors have Anthropic's shape (error.go).
package messages
