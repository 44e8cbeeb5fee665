// Package toolcall parses the text that a chat model generates. It splits the text into
// content, reasoning and tool calls while the text still arrives.
//
// Training fixes how a model writes calls and reasoning, and the chat template shows it. A
// [Family] is one such notation. [Find] learns it from the template: it renders calls and
// thoughts with known words, finds the markers around those words, and checks that the
// notation reads back what the template writes. A table has the families that cannot be
// learned: some templates do not render calls at all, and some models write more forms than
// their template. [Detect] finds a family in the table by markers in the template's source,
// and [ByName] finds it by its name. Learned families and those of the table are the same
// data (spec.go), and one parser runs them all.
//
// A [Parser] takes the text of one answer in pieces of any size ([Parser.Feed], then
// [Parser.Finish]) and returns events ([Event]). The cuts between pieces change where events are
// cut and nothing else. [Family.Parse] does the same for a whole text. Special tokens must
// be part of the text; [Family.Markers] lists those that matter.
//
// # What the parser does with the text
//
// It removes markers, white space after a marker and up to 32 bytes of white space before
// one, because templates write space there. Everything else becomes an event:
//
//   - The parser holds a call back until its name is known and its arguments begin
//     correctly. If the held text turns out to be no call, or the answer ends, the text and
//     its marker become content. It holds at most 64 KiB.
//   - Then the arguments stream as JSON, whatever notation the model uses. If they break a
//     rule or stop early, the call ends with Event.Broken and the rest of the text is
//     content. Nothing is repaired into a call that the model did not make.
//     [Family.Parse] has the whole text and returns a broken call as content.
//   - A call with complete arguments is complete, whatever follows. Unknown keys of its
//     object and an unfinished closing marker are dropped.
//   - Raw control characters in a JSON string are escaped.
//
// Some notations do not distinguish a number from a string of digits. The parser then uses
// the types of the tool's parameters ([Options].Tools). Without a type, a text that is a
// JSON value, or a Python value where templates print those, becomes that value.
//
// The package does not know tokens, models or HTTP.
package toolcall
