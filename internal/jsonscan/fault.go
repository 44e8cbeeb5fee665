package jsonscan

// A Kind says what is wrong with a text.
type Kind uint8

const (
	None          Kind = iota
	Expected           // another byte than Want
	ExpectedKey        // another byte than the quote of a key
	ExpectedComma      // neither a comma nor Want, the bracket that closes
	ExpectedValue      // no value begins here
	TrailingComma      // a comma before the bracket that closes
	TooDeep            // more than MaxDepth containers in each other

	Unterminated  // the text ends in a string
	UnclosedValue // the text ends in a container, see ValueEnd
	Control       // a control character in a string
	UnknownEscape
	HexDigits  // fewer than four digits after \u
	PairDigits // the same in the second half of a surrogate pair
	LoneHigh   // the first half of a surrogate pair without the second
	LoneLow    // the second half without the first

	LeadingZero
	FractionDigits // none after the point
	ExponentDigits
	NumberRange // no float64 holds the number
)

// A Fault is an error in a text before it has words.
type Fault struct {
	Kind   Kind
	Offset int    // of the byte that is wrong, from Scanner.Base
	Escape int    // offset of the backslash of a wrong escape, from Scanner.Base; otherwise -1
	What   string // names what Expected wants
	Want   byte   // the byte that Expected, ExpectedKey or ExpectedComma wants
	Got    byte   // the byte at Offset; 0 if AtEnd
	AtEnd  bool   // Offset is the end of the text
}
