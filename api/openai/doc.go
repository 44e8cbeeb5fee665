// Package openai is OpenAI's HTTP dialect, with vLLM's extensions under vLLM's names.
//
// A [Server] holds the models. Its methods are the endpoints, one file each with its wire types.
// An endpoint decodes the fields of a body into requests of package generate and encodes the
// results, at once or as server-sent events. Errors have the shape of OpenAI's error object
// ([WriteError]).
//
// Fields of other servers are in the tables of package foreign: those that change the answer and are
// not supported are rejected by name, those that change no answer are ignored.
//
// Reasoning is sent under two names, reasoning_content and reasoning, because clients know one or
// the other. Some models write the id of a call after its arguments. A whole answer has that id; in
// a stream the first piece of a call needs an id, so the server makes one.
//
// The package knows no routes, no API keys and no model internals.
package openai
