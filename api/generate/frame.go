package generate

import (
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/text"
)

// frame describes the text around the constrained content of an answer.
type frame struct {
	text.Frame
	special map[string]int32 // special tokens by their texts
}

// frameOf returns the frame of the answer to r.
func (m *Model) frameOf(r *Request) *frame {
	f := &frame{}
	if r.Parse == nil || m.Chat == nil {
		return f
	}
	f.Frame = m.Chat.Frame(*r.Parse)
	f.special = map[string]int32{}
	for id, content := range m.Tokenizer.SpecialTokens() {
		f.special[content] = id
	}
	return f
}

// String returns the part of f that identifies a grammar.
func (f *frame) String() string {
	return strings.Join([]string{f.Inside, f.Open, f.Close, f.Final, f.Next, strconv.FormatBool(f.Over)}, "\x00")
}

// around adds reasoning before content and calls, unless the prompt has already ended the
// reasoning. Reasoning is any text without special tokens.
func (f *frame) around(b *grammar.Builder, content, calls grammar.Pos) grammar.Pos {
	final := b.Split(f.marker(b, f.Final, content), calls)
	after := f.marker(b, f.Next, final)
	if f.Inside != "" {
		return f.until(b, f.Inside, space(b, after))
	}
	if f.Open == "" || f.Over {
		return final
	}
	return b.Split(f.marker(b, f.Open, f.until(b, f.Close, space(b, after))), final)
}

// space returns a position that reads optional white space, then next.
func space(b *grammar.Builder, next grammar.Pos) grammar.Pos {
	return b.Split(b.Term(b.Library().Named("space", jsontext.Space), next), next)
}

// names splits a marker into text and special tokens, which are named as in the vocabulary.
func (f *frame) names(marker string) []string {
	var list []string
	for at := 0; at < len(marker); {
		longest := ""
		for content := range f.special {
			if len(content) > len(longest) && strings.HasPrefix(marker[at:], content) {
				longest = content
			}
		}
		switch n := len(list); {
		case longest != "":
			list = append(list, string(vocab.Special(f.special[longest])), "")
			at += len(longest)
			continue
		case n == 0:
			list = append(list, marker[at:at+1])
		default:
			list[n-1] += marker[at : at+1]
		}
		at++
	}
	return list
}

// marker returns a position that reads a marker, then next.
func (f *frame) marker(b *grammar.Builder, marker string, next grammar.Pos) grammar.Pos {
	if next == grammar.Fail {
		return next
	}
	return b.Literal(strings.Join(f.names(marker), ""), next)
}

// until returns a position that reads text up to and including a marker, then next.
func (f *frame) until(b *grammar.Builder, marker string, next grammar.Pos) grammar.Pos {
	if next == grammar.Fail {
		return next
	}
	names := f.names(marker)
	first, rest := names[0], strings.Join(names[1:], "")
	d, err := untilText(first, b.Budget)
	if err != nil {
		return grammar.Fail
	}
	return b.Term(b.Terminal(d), b.Literal(rest, next))
}

// lastByte is the largest byte that text may contain.
const lastByte = 0xFE

// untilText matches any text up to and including the first end. A special token is not text.
func untilText(end string, budget *dfa.Budget) (*dfa.DFA, error) {
	if vocab.IsSpecial([]byte(end)) {
		return dfa.Compile(dfa.Concat(dfa.Star(dfa.Byte(0, lastByte)), dfa.Literal(end)), budget)
	}
	return search(end, budget, func(n int) bool { return n == len(end) })
}

// textWithout matches any text that does not contain marker.
func textWithout(marker string, budget *dfa.Budget) (*dfa.DFA, error) {
	if vocab.IsSpecial([]byte(marker)) {
		return dfa.Compile(dfa.Star(dfa.Byte(0, lastByte)), budget)
	}
	return search(marker, budget, func(n int) bool { return n < len(marker) })
}

// textNotBeginning matches any text that starts with none of the strings.
func textNotBeginning(strings []string, budget *dfa.Budget) (*dfa.DFA, error) {
	var begins []*dfa.Expr
	for _, s := range strings {
		begins = append(begins, dfa.Literal(s))
	}
	anything := dfa.Star(dfa.Byte(0, lastByte))
	all, err := dfa.Compile(anything, budget)
	if err != nil {
		return nil, err
	}
	those, err := dfa.Compile(dfa.Concat(dfa.Alt(begins...), anything), budget)
	if err != nil {
		return nil, err
	}
	return dfa.Subtract(all, those, budget)
}

// search matches text up to the first marker. State n means that the text ends with the first n
// bytes of the marker.
func search(marker string, budget *dfa.Budget, accepts func(n int) bool) (*dfa.DFA, error) {
	alphabet := make([]byte, lastByte+1)
	for i := range alphabet {
		alphabet[i] = byte(i)
	}
	step := func(n int, b byte) (int, bool) {
		if n == len(marker) {
			return 0, false
		}
		text := marker[:n] + string([]byte{b})
		for !strings.HasPrefix(marker, text) {
			text = text[1:]
		}
		return len(text), true
	}
	return dfa.Build(0, string(alphabet), step, accepts, budget)
}
