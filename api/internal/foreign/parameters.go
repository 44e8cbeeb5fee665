// Package foreign knows the fields that other servers' requests have, in two tables. The unsupported
// ones change the answer there, and this server does not have them: a request that sets one is a 400,
// since an answer without it would be silently wrong. The ignored ones change no answer: they tune,
// place or label a request. docs/parameters.md shows both tables; a test keeps them equal.
//
// Fields that are in neither table and that no endpoint reads are ignored too.
package foreign

import (
	"strings"

	"github.com/heftai/heft/api/wire"
)

// A row of the tables has fields that have a reason in common.
type row struct {
	on    Endpoints
	names string // of the fields, separated by spaces
	known string // servers that have them
	// why is a sentence: what to use instead, or why the field changes no answer.
	why  string
	off  []string // see wire.Unsupported
	with string   // see wire.Unsupported, separated by spaces
}

// Endpoints is a set of endpoints.
type Endpoints uint8

// The endpoints.
const (
	Completions Endpoints = 1 << iota
	Chat
	Embeddings
	Tokenize
	Detokenize
	Responses
	Template // /apply-template
	Messages

	both  = Completions | Chat
	texts = both | Responses | Messages // all that generate text
	all   = texts | Embeddings | Tokenize
)

// Values that ask for nothing. null always does.
var (
	never    = []string{} // but null
	off0     = []string{"0", "false"}
	off1     = []string{"1"}
	off01    = []string{"0", "1"}
	offBelow = []string{"-1", "0"}
	onFlag   = []string{"true"}
)

// unsupportedIn is what each endpoint refuses.
var unsupportedIn = func() map[Endpoints][]wire.Unsupported {
	lists := map[Endpoints][]wire.Unsupported{}
	for _, on := range []Endpoints{Completions, Chat, Embeddings, Tokenize, Detokenize, Responses, Template, Messages} {
		for _, r := range unsupported {
			if r.on&on == 0 {
				continue
			}
			for _, name := range strings.Fields(r.names) {
				lists[on] = append(lists[on], wire.Unsupported{Field: name, Reason: r.why, Off: r.off, With: strings.Fields(r.with)})
			}
		}
	}
	return lists
}()

// Refuse fails with the first field of a request to one endpoint that is unsupported and asks for
// something. The error is kept in f.
func Refuse(f *wire.Fields, on Endpoints) { f.Refuse(unsupportedIn[on]) }
