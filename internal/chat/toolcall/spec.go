package toolcall

// A spec describes the notation of a family. All texts are literal.
type spec struct {
	name string
	// all and none are used by [Detect]: the template must contain every text of one of the lists
	// in all and no text of none.
	all  [][]string
	none []string

	thinks []think
	forms  []form
	// drops are markers around the answer that the parser removes.
	drops []string
	// ends are drops of learned notations. They end content and may also end reasoning.
	ends []string
	// frames are drops that apply only if the template mentions them.
	frames []string
	// seeds are texts at the end of a prompt that belong to the answer: the parser reads
	// them before the answer. Markers that open reasoning need no seed.
	seeds []string
	ids   idStyle
	// written is the notation of calls if the templates do not show it; otherwise nil.
	written *Notation
}

// A think is a pair of markers with reasoning between them.
type think struct {
	open, close string
	// implied are markers that also end the reasoning, without close.
	implied []string
}

// A form is one notation of calls:
//
//	open { call head arguments end } close
//
// White space may stand between all parts; close and end may be missing.
type form struct {
	// open starts a section of calls. If it is empty, the section starts at a byte of peek, in a
	// message that has no text yet.
	open, close string
	peek        string
	// call starts each call of a section; it is empty if the head itself does.
	call string
	// sep separates two calls of a section; it is empty if only a comma does.
	sep string
	// bare means that models may leave out open and start with call.
	bare bool
	// head has the fields between call and arguments, in order. A form without a head has objects
	// only.
	head []field
	// last means that the head follows the arguments, which are JSON. The call is held back until
	// its name is known.
	last bool
	// body is the notation of the arguments after a head.
	body body
	tags *tags // for bodyTags
	// end ends a call. If it is empty, JSON ends itself, and parameters between tags end before the
	// first text that is not a parameter of the function.
	end string
	// again means that the call ends with end, the repeated name, and tail: </tool:NAME>.
	again bool
	tail  string
	// objects means that calls may be JSON objects instead: {"name": …, "arguments": …},
	// one or several, or a list of them.
	objects bool
	// keyed objects have one key, the name, and the arguments as its value.
	keyed bool
	// keys are additional keys of objects and their meanings.
	keys map[string]role
	// counted ends a number between the opening marker and an object: <call 1>. It is "" if there
	// is no number.
	counted string
	// countedClose means that the same number and counted follow close, too: </call 1>.
	countedClose bool
	// pairs are set if the arguments of objects are a list: [{"name": KEY, "value": VALUE}, …].
	pairs *pairs
	// quote surrounds the strings of bodyBare.
	quote string
}

// objectEnd returns the text that closes an object or a Python call with its own markers in a
// section.
func (f *form) objectEnd() string {
	if f.call != "" && (f.objects && f.head == nil || f.body == bodyPython) {
		return f.end
	}
	return ""
}

// A field is text that ends before until or before a byte of stop. The parser consumes
// until, and leaves the byte of stop.
type field struct {
	kind  fieldKind
	until string
	stop  string
}

type fieldKind uint8

const (
	skipField      fieldKind = iota // has no meaning
	emptyField                      // must be empty
	nameField                       // name of the function
	idField                         // id of the call
	idNameField                     // functions.NAME:NUMBER, an id that contains the name
	nameIDField                     // NAME, or NAME[CALL_ID]ID
	recipientField                  // functions.NAME, possibly with more text after a space or a marker
)

type body uint8

const (
	bodyJSON   body = iota // a JSON object, possibly in a code fence
	bodyTags               // parameters between tags
	bodyPython             // keyword arguments, up to ")"
	bodyBare               // after "{", an object with bare keys and strings between special quotes
)

// tags describe the notation of parameters between tags:
//
//	open KEY key value TEXT close
type tags struct {
	open  string
	key   string   // ends the key
	value []string // the texts that may precede the value; nil for none
	named bool     // a parameter is an element whose closing tag has its key, which is layout.KeyMark in close: <KEY>TEXT</KEY>
	json  bool     // all values are JSON, including strings
	ended bool     // a JSON value needs no end: open and close may be empty, or occur only between parameters
	typed bool     // value[0] means that the text is a string, value[1] that it is JSON
	close string
	lines bool // the text is on lines of its own: a newline at each end is markup
	cdata bool // the text may be in a CDATA section and is then a string
	// flipped means that the text precedes the key: open TEXT key KEY close.
	flipped bool
	plain   *plainValues
	// counted follows the number before each key; "" if there is no number.
	counted string
}

// plainValues describe values without quotes or an end of their own, as in YAML or KEY=VALUE: a
// value ends where the next parameter or the end of the call starts.
type plainValues struct {
	next string // text between a value and the next key
	last string // white space between the last value and the end of the call
	gap  int    // spaces between the end of a key and its value
}

// idStyle is the form of ids that a family's templates accept.
type idStyle uint8

const (
	plainID   idStyle = iota // call_ and random letters
	mistralID                // nine letters or digits
	kimiID                   // functions.NAME:INDEX
)

// xmlThink is the reasoning notation of most families.
var xmlThink = think{open: "<think>", close: "</think>"}
