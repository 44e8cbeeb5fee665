// Package ollama is Ollama's API: /api/chat, /api/generate, /api/embed and the lists of models, as Ollama's clients
// have them.
//
// A request is decoded into a [generate.Request] (request.go, options.go, messages.go). The answer is one JSON
// object, or one object per line in a stream (answer.go). Requests that would change the server's models are
// rejected with 501 and the command to use instead (lists.go).
//
// The package knows no routes and no model internals. Errors are {"error": "…"} (error.go).
package ollama
