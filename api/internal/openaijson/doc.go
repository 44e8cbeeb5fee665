// Package openaijson writes the JSON objects that all of OpenAI's endpoints share: errors, tokens
// with their log-probabilities, and tools. It is used by the dialects openai and responses and by
// the endpoints of files and batches.
package openaijson
