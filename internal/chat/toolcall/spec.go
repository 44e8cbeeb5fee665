package toolcall

// A spec describes the notation of a family. All texts are literal.
type spec struct {
	name string
	// all and none decide [Detect]: the template has every text of one of the
	// lists in all and no text of none.
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
	// written is how calls are written where the templates do not show it; nil if they do.
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
	// open begins a section of calls. If it is empty the section begins, in a
	// message that has no text yet, at a byte of peek.
	open, close string
	peek        string
	// call begins each call of a section; empty if the head itself does.
	call string
	// sep stands between two calls of a section, once; empty if nothing but a comma does.
	sep string
	// bare means that models may leave out open and begin with call.
	bare bool
	// head are the fields between call and arguments, in order. A form without a
	// head has objects only.
	head []field
	// last means that the head comes after the arguments, which are JSON. The call is held back
	// up to its name.
	last bool
	// body is how arguments are written after a head.
	body body
	tags *tags // for bodyTags
	// end ends a call. If it is empty, JSON ends itself, and parameters between tags end before the
	// first text that is not a parameter of the function.
	end string
	// again means that the call ends with end, its name once more, and tail: </tool:NAME>.
	again bool
	tail  string
	// objects means that calls may be JSON objects instead: {"name": …, "arguments": …},
	// one or several, or a list of them.
	objects bool
	// keyed objects have one key, the name, and the arguments as its value.
	keyed bool
	// keys are further keys of objects and their meanings.
	keys map[string]role
	// counted ends a number between the opening marker and an object: <call 1>. It is "" if there is
	// no number.
	counted string
	// countedClose means that the same number and counted follow close, too: </call 1>.
	countedClose bool
	// pairs are the arguments of objects in a list: [{"name": KEY, "value": VALUE}, …].
	pairs *pairs
	// quote stands around the strings of bodyBare.
	quote string
}

// objectEnd closes an object or a Python call that has markers of its own in a section.
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
	skipField      fieldKind = iota // says nothing
	emptyField                      // has nothing before until
	nameField                       // name of the function
	idField                         // id of the call
	idNameField                     // functions.NAME:NUMBER, the id, which holds the name
	nameIDField                     // NAME, or NAME[CALL_ID]ID
	recipientField                  // functions.NAME with more after a space or a marker
)

type body uint8

const (
	bodyJSON   body = iota // a JSON object, in a code fence perhaps
	bodyTags               // parameters between tags
	bodyPython             // keyword arguments, up to ")"
	bodyBare               // an object with bare keys and strings between quotes of its own, after its "{"
)

// tags are how parameters are written that stand between tags:
//
//	open KEY key value TEXT close
type tags struct {
	open  string
	key   string   // ends the key
	value []string // stands before the text, in one of these ways; nil for nothing
	named bool     // a parameter is an element that ends with its key, which is layout.KeyMark in close: <KEY>TEXT</KEY>
	json  bool     // values are JSON, strings too
	ended bool     // a JSON value ends itself: open may be empty, close too, or stand only between parameters
	typed bool     // value[0] says that the text is a string, value[1] that it is JSON
	close string
	lines bool // the text stands on lines of its own: a newline at each end is markup
	cdata bool // the text may be in a CDATA section, and is a string then
	// flipped says that the text comes before the key: open TEXT key KEY close.
	flipped bool
	plain   *plainValues
	// counted follows the number that stands before each key; "" if there is none.
	counted string
}

// plainValues are values without quotes or an end of their own, as in YAML or KEY=VALUE: a value
// ends where the next parameter or the end of the call begins.
type plainValues struct {
	next string // stands between a value and the next key
	last string // white space between the last value and the end of the call
	gap  int    // spaces between what ends a key and its value
}

// idStyle is the shape of ids that a family's templates accept.
type idStyle uint8

const (
	plainID   idStyle = iota // call_ and random letters
	mistralID                // nine letters or digits
	kimiID                   // functions.NAME:INDEX
)

// xmlThink is the reasoning of most families.
var xmlThink = think{open: "<think>", close: "</think>"}
