// Package settings decodes the settings of a generation that several dialects read under the same
// names: sampling, stop strings, budgets of reasoning and arguments of the chat template. The names
// are OpenAI's and vLLM's; a dialect may read other names in addition. The package does not depend
// on a dialect. Results are fields of [generate.Request] and [text.Conversation]. Errors are kept
// in [wire.Fields] with the path of the field.
package settings
