// Package toolcall reads what a chat model generates: it parts text into the
// answer, the reasoning and the calls of tools, while the text still comes.
//
// The way a model writes calls is fixed by its training and shows in its chat
// template. A [Family] is one such way; [Detect] finds it by markers in the
// template's source, [ByName] by its name. Families are tables, one file each, of
// the notions in spec.go: texts that open and close things, and how the arguments
// between them are written. One machine runs them all.
//
// A [Parser] takes the text of one answer in pieces of any size ([Parser.Feed],
// then [Parser.Finish]) and returns [Event]s; how the text is cut changes how the
// events are cut, and nothing else. [Family.Parse] is the same for a whole text.
// Special tokens must stand in the text as text; [Family.Markers] says which.
//
// # What becomes of the text
//
// Markers vanish. So does white space next to a marker, up to 32 bytes before it:
// templates put it there. All else comes out:
//
//   - A call is held back until its name is known and its arguments begin as they
//     should. What is held and turns out to be no call is content, marker and all;
//     so is what is held when the text ends. No more than 64 KiB are held.
//   - From then on the arguments stream, as JSON whatever the model's notation. If
//     they break off or break a rule, the call ends with Event.Broken, the
//     arguments are left as they are, without an end, and the text from the
//     offending byte on is content. A client that reads arguments as JSON sees that
//     they are none; nothing is repaired into a call that the model did not make.
//     [Family.Parse], which has the whole text, gives a broken call as content.
//   - A call whose arguments are complete is whole, whatever follows. Keys of its
//     object that say nothing, and an unfinished closing marker, vanish.
//   - Raw control characters in a JSON string are escaped.
//
// Notations that do not tell a number from a string of digits are read by the
// types of the tool's parameters ([Options].Tools); where these say nothing, what
// reads as JSON (or as Python, for templates that print so) is that value.
//
// The package knows nothing of tokens, models or HTTP.
package toolcall
