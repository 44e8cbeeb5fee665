package toolcall

// Kind is the kind of an [Event].
type Kind uint8

const (
	// Content is a piece of the answer.
	Content Kind = iota
	// Reasoning is a piece of the reasoning (reasoning_content).
	Reasoning
	// CallStart starts a call. It has Index, Name, and ID if the ID is known by then.
	CallStart
	// CallArguments is a piece of the arguments of call Index. The joined pieces are JSON.
	CallArguments
	// CallEnd ends call Index. It has the ID if the notation has one.
	CallEnd
)

var kindNames = [...]string{"content", "reasoning", "start", "arguments", "end"}

func (k Kind) String() string { return kindNames[k] }

// An Event is one step of an answer. Calls do not overlap: only CallArguments occur between a
// CallStart and its CallEnd.
type Event struct {
	Kind Kind
	// Text of Content, Reasoning and CallArguments.
	Text string
	// Index counts the calls of the answer from 0.
	Index int
	// Name of the function, ID of the call as the model wrote it, or "".
	Name, ID string
	// Broken is set at CallEnd if the arguments are not a complete JSON object.
	Broken bool
	// Pos is an offset into the answer's text, in bytes: of the call's markup for CallStart, of the
	// text after the call for CallEnd.
	Pos int
}
