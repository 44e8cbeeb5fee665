// Package messages implements Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens.
//
// A request is decoded into a [generate.Conversation] (request.go, content.go, tools.go). The
// model's answer becomes content blocks: thinking, text and tool_use. A builder (builder.go) makes
// the message from them, or the events of a stream. The server keeps no state between requests.
//
// The package does not depend on routes or on the internals of models. Errors have Anthropic's form
// (error.go).
package messages
