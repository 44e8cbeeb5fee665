package dispatch

import "slices"

// A LogitsMode selects the logits that a forward pass returns for a row.
type LogitsMode uint8

// The logits modes.
const (
	LogitsNone LogitsMode = iota // no logits, such as for a chunk of a prompt before its end
	LogitsLast                   // the logits of the last token: the distribution of the next one
	LogitsAll                    // the logits of every token, such as for the log-probabilities of a prompt
)

// A BatchRow holds the tokens of one sequence in a forward pass. They follow the tokens that the
// sequence already has. A row may be a prompt, a chunk of a prompt, or one generated token.
type BatchRow struct {
	Sequence *Sequence
	Tokens   []int32 // at least one; read during the pass only
	// PromptLen is the length of the whole prompt. Rope types that depend on the length use it. 0
	// means the length after this pass.
	PromptLen int
	Logits    LogitsMode
	Hidden    HiddenMode
	// Sum is the hidden state that HiddenSum adds to, such as the result of the previous row. nil
	// means zeros.
	Sum []float32
	// Before is required for a model that joins (see [Model.Joins]). It is a matrix of shape
	// [len(Tokens), Joins()] with the hidden state of the token before each of Tokens. It is read
	// during the pass only.
	Before []float32
}

// A Batch is one forward pass over rows of different sequences. Each sequence has at most one row.
type Batch struct{ Rows []BatchRow }

// Tokens returns the number of tokens in the batch.
func (b *Batch) Tokens() int {
	n := 0
	for i := range b.Rows {
		n += len(b.Rows[i].Tokens)
	}
	return n
}

// Logits holds the results of a forward pass. It is valid until the next pass.
type Logits struct {
	vocab  int
	first  []int // of each batch row in values, and the end
	values []float32
	hidden hidden
	rows   []rowResult // of each batch row, in place of the others, where a pass had two parts
}

// rowResult is the result of one batch row of a pass in two parts.
type rowResult struct{ logits, hidden []float32 }

// begin resets l for the results of b.
func (l *Logits) begin(b *Batch, vocab int) {
	l.vocab = vocab
	l.rows = slices.Grow(l.rows[:0], len(b.Rows))[:len(b.Rows)]
	for i := range l.rows {
		l.rows[i] = rowResult{l.rows[i].logits[:0], l.rows[i].hidden[:0]}
	}
}

// collect adds the results of part, a part of b.
func (l *Logits) collect(b, part *Batch, results *Logits) {
	for k := range part.Rows {
		r := &l.rows[indexOf(b, part.Rows[k].Sequence)]
		_, values := results.Row(k)
		r.logits = append(r.logits, values...)
		if h := results.Hidden(k); h != nil {
			if part.Rows[k].Hidden != HiddenAll {
				r.hidden = r.hidden[:0]
			}
			r.hidden = append(r.hidden, h...)
		}
	}
}

// Row returns the logits of batch row i: count rows of Vocab values each. The caller may change
// the values. Row panics if the batch has no row i.
func (l *Logits) Row(i int) (count int, values []float32) {
	if l.rows != nil {
		values = l.rows[i].logits
		return len(values) / l.vocab, values
	}
	a, b := l.first[i], l.first[i+1]
	return b - a, l.values[a*l.vocab : b*l.vocab]
}

// Vocab returns the number of logits per token.
func (l *Logits) Vocab() int { return l.vocab }
