package tokenizer

import "fmt"

// TooManyError says that a text has more tokens than [EncodeOptions].MaxTokens.
type TooManyError struct {
	Max     int
	AtLeast int // tokens that the text has for certain
}

// Error implements error.
func (e *TooManyError) Error() string {
	return fmt.Sprintf("tokenizer: the text has %d tokens or more, and %d are allowed", e.AtLeast, e.Max)
}

// bounds end the work on a text early. A nil *bounds ends nothing. They are for one goroutine.
type bounds struct {
	most  int          // tokens; 0: any number
	stop  func() error // nil: never
	until int          // steps until stop is asked again
}

// askEvery is how many steps, some tens of nanoseconds each, pass between two looks at stop.
const askEvery = 1 << 12

// step is called as work goes on. Its error ends the work.
func (b *bounds) step() error {
	if b == nil || b.stop == nil {
		return nil
	}
	if b.until--; b.until > 0 {
		return nil
	}
	b.until = askEvery
	return b.stop()
}

// longWord is the length from which on counting before merging is worth its time.
const longWord = 1 << 12

// check is asked before a word is cut into tokens, when there are have of them.
func (b *bounds) check(m model, have int, word string) error {
	if b == nil || b.most <= 0 {
		return nil
	}
	if len(word) >= longWord {
		have += m.least(word)
	}
	if have > b.most {
		return &TooManyError{Max: b.most, AtLeast: have}
	}
	return nil
}

// reach is, for each byte, the length of the longest token that has it.
type reach [256]float64

// add enters a token.
func (r *reach) add(token []byte) {
	for _, c := range token {
		r[c] = max(r[c], float64(len(token)))
	}
}

// least is a number of tokens that word has at least, if tokens cover it without gaps: a
// token's bytes, each counted as one over the length of the longest token that has it, come
// to no more than one.
func (r *reach) least(word string) int {
	var count [256]int
	for i := range len(word) {
		count[word[i]]++
	}
	sum := 0.0
	for c, n := range count {
		sum += float64(n) / max(r[c], 1)
	}
	return int(sum * (1 - 1e-9)) // sums of floats may be a little high
}
