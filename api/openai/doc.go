// Package openai implements OpenAI's HTTP API, with vLLM's extensions under vLLM's names.
//
// A [Server] serves a list of models. Its methods are the endpoints, one file each with its wire
// types. An endpoint decodes the fields of a body into requests of package generate. It encodes the
// results at once or as server-sent events. Errors have the form of OpenAI's error object
// ([WriteError]).
//
// Package foreign lists fields of other servers. If a field changes the answer and is unsupported,
// the error names it. Fields that do not change the answer are ignored.
//
// Reasoning is sent under two names, reasoning_content and reasoning, because clients read one or
// the other. Some models write the id of a call after its arguments. A complete answer has that id.
// In a stream the first piece of a call needs an id, so the server makes one.
//
// The package does not depend on routes, API keys or the internals of models.
package openai
