package toolcall

// Kind is what an [Event] tells.
type Kind uint8

const (
	// Content is a piece of the answer.
	Content Kind = iota
	// Reasoning is a piece of the thoughts before it (reasoning_content).
	Reasoning
	// CallStart begins a call: Index, Name, and ID if it is known by then.
	CallStart
	// CallArguments is a piece of the arguments of call Index: JSON when joined.
	CallArguments
	// CallEnd ends call Index. ID is set if the format carries one, early or late.
	CallEnd
)

var kindNames = [...]string{"content", "reasoning", "start", "arguments", "end"}

func (k Kind) String() string { return kindNames[k] }

// An Event is one step of an answer. Calls do not overlap: between a CallStart and
// its CallEnd there are CallArguments only.
type Event struct {
	Kind Kind
	// Text of Content, Reasoning and CallArguments.
	Text string
	// Index counts the calls of the answer from 0.
	Index int
	// Name of the function, ID of the call as the model gave it, else empty.
	Name, ID string
	// Broken says at CallEnd that the arguments are no complete JSON object.
	Broken bool
	// Pos is an offset into the answer's text, in bytes: of the call's markup for
	// CallStart, of what follows the call for CallEnd.
	Pos int
}
