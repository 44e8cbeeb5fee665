// Package generate generates text for Go programs and for the HTTP dialects.
//
// A [Model] has an engine, a tokenizer and chat templates. [Model.Complete], [Model.Stream],
// [Model.Reply] and [Model.StreamReply] take text and return text. A dialect decodes its body into
// a [Conversation] or a prompt and makes a [Request]. [Model.Start] returns a [Generation], whose
// deltas ([Delta]) are pieces of text with their ids and log-probabilities. Text is decoded as it
// streams. It ends before the earliest stop string, and a piece never ends within a character.
//
// With Request.Parse an answer is split into content, reasoning and tool calls. Stop strings apply
// to the content only. A collected answer and a streamed one have the same text. A call that is cut
// off keeps the arguments it had.
//
// The package does not depend on HTTP or on the format of a dialect. Errors that the caller caused
// are of type *wire.Error and name the invalid field.
package generate
