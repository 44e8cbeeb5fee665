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

// bounds end the work on a text early. A nil *bounds has no limits. One goroutine uses them.
type bounds struct {
	most  int          // tokens; 0: any number
	stop  func() error // nil: never
	until int          // steps until stop is asked again
	first int          // ids before those of the text, which do not count
	steps int          // that the patterns of the file may still take, all pieces together

	reserve  func(n int) error // nil: there is memory for any text
	reserved int               // bytes
}

// newBounds returns the bounds of the work on a text of n bytes.
func (t *Tokenizer) newBounds(opts EncodeOptions, n int) *bounds {
	return &bounds{most: opts.MaxTokens, stop: opts.Stop, reserve: opts.Reserve, steps: min(t.patterns, manyPatterns) * allowance(n)}
}

// manyPatterns is the number of patterns of a file that may each take the maximum of steps.
const manyPatterns = 8

// work subtracts n bytes of work from the steps. Below zero it returns ErrTooSlow.
func (b *bounds) work(n int) error {
	if b == nil {
		return nil
	}
	if b.steps -= 1 + n>>4; b.steps < 0 {
		return ErrTooSlow
	}
	return nil
}

// memory is called before the work on a word takes n bytes. Words are processed one after the
// other, so only the largest counts.
func (b *bounds) memory(n int) error {
	if b == nil || b.reserve == nil || n <= b.reserved {
		return nil
	}
	if err := b.reserve(n - b.reserved); err != nil {
		return err
	}
	b.reserved = n
	return nil
}

// allowance returns the number of steps that one pattern may take on n bytes of text.
func allowance(n int) int { return stepsBase + stepsPerByte*n }

// askEvery is the number of steps, of some tens of nanoseconds each, between two calls of stop.
const askEvery = 1 << 12

// step counts a step. Its error ends the work.
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

// longWord is the length from which counting before merging pays off.
const longWord = 1 << 12

// check is called before a word is cut into tokens. have is the number of tokens before it.
func (b *bounds) check(m model, have int, word string) error {
	if b == nil || b.most <= 0 {
		return nil
	}
	have -= b.first
	if len(word) >= longWord {
		have += m.least(word)
	}
	if have > b.most {
		return &TooManyError{Max: b.most, AtLeast: have}
	}
	return nil
}

// reach has for each byte the length of the longest token that contains it.
type reach [256]float64

// add enters a token.
func (r *reach) add(token []byte) {
	for _, c := range token {
		r[c] = max(r[c], float64(len(token)))
	}
}

// least returns a lower bound of the number of tokens of word, if tokens cover it without gaps.
// Each byte counts as one over the length of the longest token that contains it, so the bytes of
// one token sum to at most one.
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
