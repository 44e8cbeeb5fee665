// Package generate generates text for Go programs and for the HTTP dialects.
//
// A [Model] has an engine, a tokenizer and chat templates. [Model.Complete], [Model.Stream],
// [Model.Reply] and [Model.StreamReply] take text and return text. A dialect decodes its body into a [Conversation] or a prompt and makes a
// [Request]; [Model.Start] returns a [Generation], whose deltas ([Delta]) are pieces of text with their ids and
// log-probabilities. Text is decoded as it streams, ends before the earliest stop string, and never
// has half a character.
//
// With Request.Parse an answer is split into content, reasoning and tool calls. Stop strings are
// looked for in the content only. A whole answer and a stream of it say the same. A call that
// breaks off keeps the arguments it had.
//
// The package knows neither HTTP nor the wire form of a dialect. Errors that the caller caused are
// of type *wire.Error and name the field at fault.
package generate
