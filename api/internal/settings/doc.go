// Package settings decodes the settings of a generation that several dialects read under the same names:
// sampling, stop strings, budgets of reasoning and arguments of the chat template. The names are OpenAI's and
// vLLM's; dialects read names of their own beside them. Nothing here knows a dialect: results are fields of
// [generate.Request] and [text.Conversation], and errors are kept in [wire.Fields] with the path of the field.
package settings
