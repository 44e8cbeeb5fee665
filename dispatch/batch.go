package dispatch

import "slices"

// A LogitsMode selects the logits that a forward pass returns for a row.
type LogitsMode uint8

// The modes.
const (
	LogitsNone LogitsMode = iota // a chunk of a prompt that is not its end
	LogitsLast                   // of the last token: the distribution of the next one
	LogitsAll                    // of every token, for log-probabilities of a prompt
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
	// Sum is what HiddenSum adds to: one hidden state, such as the result of the row before. nil is zeros.
	Sum []float32
	// Before is needed by a model that joins (see [Model.Joins]): a matrix of [len(Tokens), Joins()], for
	// each of Tokens the hidden state of the token before it. The pass reads it and does not keep it.
	Before []float32
}

// A Batch is one forward pass over rows of different sequences. Each sequence has at most one row.
type Batch struct{ Rows []BatchRow }

// Tokens is the number of tokens in the batch.
func (b *Batch) Tokens() int {
	n := 0
	for i := range b.Rows {
		n += len(b.Rows[i].Tokens)
	}
	return n
}

// Logits are the results of a forward pass. They are valid until the next one.
type Logits struct {
	vocab  int
	first  []int // of each batch row in values, and the end
	values []float32
	hidden hidden
	rows   []rowResult // of each batch row, in place of the others, where a pass had two parts
}

// rowResult is the result of one batch row of a pass in two parts.
type rowResult struct{ logits, hidden []float32 }

// begin makes l the results of b, without any so far.
func (l *Logits) begin(b *Batch, vocab int) {
	l.vocab = vocab
	l.rows = slices.Grow(l.rows[:0], len(b.Rows))[:len(b.Rows)]
	for i := range l.rows {
		l.rows[i] = rowResult{l.rows[i].logits[:0], l.rows[i].hidden[:0]}
	}
}

// collect adds the results of a part of b.
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

// Row returns the logits of batch row i: count rows of Vocab values, one after the other. The
// caller may change the values. It panics if the batch has no row i.
func (l *Logits) Row(i int) (count int, values []float32) {
	if l.rows != nil {
		values = l.rows[i].logits
		return len(values) / l.vocab, values
	}
	a, b := l.first[i], l.first[i+1]
	return b - a, l.values[a*l.vocab : b*l.vocab]
}

// Vocab returns the width of a row.
func (l *Logits) Vocab() int { return l.vocab }
