// Package openai speaks OpenAI's HTTP dialect, with vLLM's extensions under vLLM's names.
//
// A Server holds the models; its methods are the endpoints, one file each with its wire
// types beside it. An endpoint decodes a body field by field (fields), makes requests of
// package generate of it, and encodes what they give: at once, or as server-sent events.
// Every bad input is answered with OpenAI's error object, of which all four keys are
// always there (Error, WriteError).
//
// An answer's reasoning has two names, reasoning_content and reasoning, as clients know one
// or the other. An id that a model writes behind a call's arguments is the call's in a whole
// answer; in a stream, where the first piece needs one, an id of our own is.
//
// It knows neither routes, nor who may ask, nor how a token is computed.
package openai
