// Package layout describes how a model writes an object that is not JSON, such as the arguments of a call: an
// [Object] has the texts around keys and values. Package toolcall learns it from a chat template and parses answers by
// it, package jsonschema makes the grammar of it. The package is data only.
package layout

import "strings"

// Kind is a way to write an object that is not JSON.
type Kind uint8

// The kinds.
const (
	// Tags writes each property between tags: strings as they are, other values as JSON.
	Tags Kind = iota + 1
	// Python writes keyword arguments, with True, False and None.
	Python
	// Bare writes keys without quotes, and strings between quotes of their own.
	Bare
	// Values writes keys without quotes, and all values as JSON.
	Values
	// Text writes a JSON object as it stands in a string of JSON.
	Text
)

// KeyMark stands in Object.End and Stop for the key, and NameMark in Plain.Ends for the name of the function.
// CountMark stands in Object.Next for the number of a property, from 2 on.
const (
	KeyMark   = "\x01"
	NameMark  = "\x02"
	CountMark = "\x03"
)

// An Object is how properties are written:
//
//	First KEY Equals VALUE End { Next KEY Equals VALUE End }
//
// and Empty if there are none. Before a string stands EqualsText in place of Equals. With Flipped keys and values change
// places, and a string has no text like Equals.
type Object struct {
	Kind               Kind
	First, Next, Empty string
	Equals, EqualsText string
	End                string
	// Stop ends the text of a value of Tags: no value has it, unless values are Plain. End ends with it.
	Stop string
	// Quote stands around each string of Bare.
	Quote string
	// JSONText says that strings of Tags are JSON, too.
	JSONText bool
	// CDATA says that a string of Tags may stand in a CDATA section.
	CDATA bool
	// Flipped says that VALUE Equals KEY is written, by Tags or Values.
	Flipped bool
	// Plain says where values of Tags end that have no end of their own: End and Stop are "" then.
	Plain Plain
}

// Named reports whether a property is an element that is called like its key.
func (o *Object) Named() bool { return strings.Contains(o.End, KeyMark) }

// Plain says where values end that have neither quotes nor an end of their own, as in YAML or KEY=VALUE: before Next,
// a key and Key; before one of Ends; and, behind a line break and white space, before one of Lines.
type Plain struct {
	Next        string // stands between a value and the next key; blanks may follow it
	Key         string // ends a key; "": values are not plain
	Close       string // stands before each of Ends, perhaps with white space between
	Ends, Lines []string
	Follow      []string // what stands behind values: with a text's end it must not look like an end
	Counted     string   // follows the number that stands behind Next; "" if there is none
}
