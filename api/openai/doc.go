// Package openai speaks OpenAI's HTTP dialect, with vLLM's extensions under vLLM's names.
//
// A Server holds the models; its methods are the endpoints, one file each with its wire
// types beside it. An endpoint decodes a body field by field (fields), makes requests of
// package generate of it, and encodes what they give: at once, or as server-sent events.
// Every bad input is answered with OpenAI's error object, of which all four keys are
// always there (Error, WriteError).
//
// It knows neither routes, nor who may ask, nor how a token is computed.
package openai
