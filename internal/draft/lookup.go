package draft

// MaxTokens is the most tokens that a guess may have.
const MaxTokens = 15

// longestMatch bounds how many agreeing tokens are counted.
const longestMatch = 32

// orders are how many tokens must agree, tried from the most to the fewest.
var orders = [...]int{8, 4, 2}

// resumes is how many tokens after an agreement ended its place is still followed, as if the tokens since
// had replaced as many.
const resumes = 8

// tableBits is the size of a Lookup: 128 KiB. A text of more than some ten thousand tokens overwrites
// its oldest entries.
const tableBits = 15

// A Lookup finds tokens in a text that grows at its end. The zero value is empty.
type Lookup struct {
	next    []int32 // by hash of some tokens: the index of what followed them last, plus 1
	past    []past  // of the places that are in the table
	indexed int     // places before it are in the table
	at, end int     // where the last agreement was found, for a text of so many tokens
	begun   bool    // at and end mean something
	last    found   // by the last Find
}

// A found is what Find returned for a text of n tokens.
type found struct{ n, at, match int }

// Reset forgets the text, for another one.
func (l *Lookup) Reset() {
	clear(l.next)
	l.past = l.past[:0]
	l.indexed, l.at, l.end, l.begun, l.last = 0, 0, 0, false, found{}
}

// Begin says that a text is expected to go on behind its first n tokens as another begins, in which
// [Lookup.Find] then looks.
func (l *Lookup) Begin(n int) { l.at, l.end, l.begun = 0, n, true }

// Find returns where in source the last tokens of text were followed by something, and how many tokens
// agree there, up to 32. Longer agreement goes before later places. If fewer than two tokens agree
// anywhere, match is 1 where the place before would go on if only a few tokens differ, and else 0.
// source and text are what earlier calls got, with more tokens at their ends; source may be text itself.
func (l *Lookup) Find(source, text []int32) (at, match int) {
	l.index(source, len(source) == len(text) && len(text) > 0 && &source[0] == &text[0])
	at, match = l.find(source, text)
	l.last = found{len(text), at, match}
	return at, match
}

func (l *Lookup) find(source, text []int32) (at, match int) {
	if at, match = l.longest(source, text); match > 0 {
		l.at, l.end, l.begun = at, len(text), true
		return at, match
	}
	since := len(text) - l.end
	if at = l.at + since; l.begun && since <= resumes && at < len(source) {
		return at, 1
	}
	return 0, 0
}

// A past is whether the token at a place was the guess from an earlier place.
type past uint8

const (
	unknown past = iota // no earlier place was found
	was                 // it was
	wasNot
)

// Class is the class of a guess that is the i-th of those that follow from a place where match tokens agree.
// repeats is as for [Follow].
func (l *Lookup) Class(at, match, i int, repeats bool) Class {
	place := at + i
	if repeats && place >= l.indexed && at < l.indexed {
		place = at + i%(l.indexed-at)
	}
	if place >= l.indexed || l.past[place] == unknown {
		return Agreeing(match + i)
	}
	k := changed
	if l.past[place] == was {
		k = kept
	}
	if match+i >= 4 {
		k++
	}
	return k
}

// index puts the places of source that are not yet in the table into it. Where source is the text itself, it notes of each what
// Find would have said of it.
func (l *Lookup) index(source []int32, itself bool) {
	if l.next == nil {
		l.next = make([]int32, 1<<tableBits)
	}
	for ; l.indexed < len(source); l.indexed++ {
		l.past = append(l.past, unknown)
		if itself {
			l.past[l.indexed] = l.guessed(source)
		}
		for _, n := range orders {
			if l.indexed >= n {
				l.next[hash(source[l.indexed-n:l.indexed])] = int32(l.indexed) + 1
			}
		}
	}
}

// guessed is what Find has said, or would have, of the next token of source that is not in the table.
func (l *Lookup) guessed(source []int32) past {
	known := source[:l.indexed]
	at, match := l.last.at, l.last.match
	if l.last.n != len(known) {
		at, match = l.find(known, known)
	}
	switch {
	case match == 0:
		return unknown
	case source[at] == source[l.indexed]:
		return was
	}
	return wasNot
}

// longest finds agreement of two tokens and more.
func (l *Lookup) longest(source, text []int32) (at, match int) {
	for _, n := range orders {
		if len(text) < n {
			continue
		}
		at = int(l.next[hash(text[len(text)-n:])]) - 1
		if at < 0 || at >= len(source) {
			continue
		}
		if match = agreeing(source[:at], text); match >= n {
			return at, match
		}
	}
	return 0, 0
}

// Follow appends to dst up to n tokens: source from at on, and behind its end the same again if it is
// the text that the tokens continue.
func Follow(dst, source []int32, at, n int, repeats bool) []int32 {
	first := len(dst)
	for i := range n {
		switch {
		case at+i < len(source):
			dst = append(dst, source[at+i])
		case repeats:
			dst = append(dst, dst[first+i-(len(source)-at)])
		default:
			return dst
		}
	}
	return dst
}

// agreeing counts the tokens at the ends of a and b that are equal.
func agreeing(a, b []int32) int {
	n := 0
	for most := min(len(a), len(b), longestMatch); n < most && a[len(a)-1-n] == b[len(b)-1-n]; n++ {
	}
	return n
}

func hash(tokens []int32) uint32 {
	h := uint64(len(tokens))
	for _, t := range tokens {
		h = (h ^ uint64(uint32(t))) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return uint32(h * 0xbf58476d1ce4e5b9 >> (64 - tableBits))
}
