package openai

import (
	"strings"

	"github.com/heftai/heft/api/wire"
)

// The fields that other servers' requests have, in two tables. unsupported are those that change
// the answer there and that this server does not have: a request that sets one is a 400, since an
// answer without it would be silently wrong. ignored are those that change no answer: they tune,
// place or label a request. docs/http.md shows both tables; a test keeps them equal.
//
// Fields that are in neither table and that no endpoint reads are ignored too.

// A foreign is a row of the tables: fields that have a reason in common.
type foreign struct {
	on    endpoints
	names string // of the fields, separated by spaces
	known string // servers that have them
	// why is a sentence: what to use instead, or why the field changes no answer.
	why  string
	off  []string // see wire.Unsupported
	with string   // see wire.Unsupported, separated by spaces
}

// endpoints is a set of endpoints.
type endpoints uint8

const (
	inCompletions endpoints = 1 << iota
	inChat
	inEmbeddings
	inTokenize
	inDetokenize

	inBoth = inCompletions | inChat
	inAll  = inBoth | inEmbeddings | inTokenize
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
var unsupportedIn = func() map[endpoints][]wire.Unsupported {
	lists := map[endpoints][]wire.Unsupported{}
	for _, on := range []endpoints{inCompletions, inChat, inEmbeddings, inTokenize, inDetokenize} {
		for _, row := range unsupported {
			if row.on&on == 0 {
				continue
			}
			for _, name := range strings.Fields(row.names) {
				lists[on] = append(lists[on], wire.Unsupported{Field: name, Reason: row.why, Off: row.off, With: strings.Fields(row.with)})
			}
		}
	}
	return lists
}()

// refuse fails with the first field of an endpoint's request that is unsupported and asks for
// something.
func refuse(f *wire.Fields, on endpoints) { f.Refuse(unsupportedIn[on]) }
