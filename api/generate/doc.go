// Package generate is text generation over the engine, for every dialect of HTTP.
//
// A Model is an engine with a tokenizer and a chat template beside it. A dialect decodes
// its request into a Request, of which Model.Start makes a Run; the Run's Deltas are
// pieces of text with the ids, and the log-probabilities, that they came with. Text is
// decoded as it streams, ends before the earliest stop string, and never shows half a
// character.
//
// An answer of a chat may be parted (Request.Parse) as the model's family of package
// toolcall writes it: Delta.Text is then the content alone, in which stop strings are
// looked for, beside it stand Delta.Reasoning and Delta.Calls. Special tokens that are
// markers reach the parser as text. Whether an answer comes whole or in pieces, it says the
// same: a call that breaks off keeps the arguments that it had, and what follows is content.
//
// It knows neither HTTP nor the wire form of any dialect. Errors of the caller's making
// are of type *Error, which names the parameter at fault.
package generate
