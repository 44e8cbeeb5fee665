// Package ollama implements Ollama's API: /api/chat, /api/generate, /api/embed and the lists of
// models.
//
// A request is decoded into a [generate.Request] (request.go, options.go, messages.go). The answer
// is one JSON object, or one object per line in a stream (answer.go). Requests that would change
// the server's models return 501 and name the command to use instead (lists.go).
//
// The package does not depend on routes or on the internals of models. Errors are {"error": "…"}
// (error.go).
package ollama
