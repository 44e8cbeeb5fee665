// Package openaijson writes the JSON objects that all of OpenAI's endpoints share: errors, tokens with
// their log-probabilities, and the forms of tools. The dialects openai and responses, and the endpoints of files and batches, use it.
package openaijson
