// Package foreign has two tables of fields that other servers accept in requests. Unsupported
// fields change the answer there, and this server does not implement them. A request that sets one
// returns 400, because an answer without it would be silently wrong. Ignored fields do not change
// the answer: they tune, place or label a request. docs/parameters.md shows both tables; a test
// compares them.
//
// Fields that are in neither table and that no endpoint reads are ignored too.
package foreign

import (
	"strings"

	"github.com/heftai/heft/api/wire"
)

// A row has fields that share a reason.
type row struct {
	on    Endpoints
	names string // of the fields, separated by spaces
	known string // servers that have the fields
	// why is a sentence: what to use instead, or why the fields do not change the answer.
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
	texts = both | Responses | Messages // all endpoints that generate text
	all   = texts | Embeddings | Tokenize
)

// Values that request nothing. null never requests anything.
var (
	never    = []string{} // only null
	off0     = []string{"0", "false"}
	off1     = []string{"1"}
	off01    = []string{"0", "1"}
	offBelow = []string{"-1", "0"}
	onFlag   = []string{"true"}
)

// unsupportedIn has the unsupported fields of each endpoint.
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

// Refuse rejects a request to an endpoint if it sets an unsupported field. The error names the
// first such field and is kept in f.
func Refuse(f *wire.Fields, on Endpoints) { f.Refuse(unsupportedIn[on]) }
