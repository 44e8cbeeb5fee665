package engine

import (
	"context"

	"github.com/heftai/heft/dispatch"
)

// ErrKVFull is returned by Sequence.Reserve if no page is free.
var ErrKVFull = dispatch.ErrKVFull

// ErrAdaptersFull is returned by Adapting if sequences use the memory for adapters.
var ErrAdaptersFull = dispatch.ErrAdaptersFull

// A WeightError says that weights of the model cannot be read, and why.
type WeightError = dispatch.WeightError

// Model is a model that an engine can run. All methods are called from the engine's goroutine.
// Vocab, Context, Limits and KV may also be called before it starts.
type Model interface {
	// Vocab returns the number of logits per row. Ids are below it.
	Vocab() int
	// Context returns the maximum number of tokens in a sequence.
	Context() int
	// Limits are the most tokens, sequences and rows of logits of one pass; 0 means any.
	Limits() Limits
	// NewSequence returns an empty sequence for a prompt of the given length, on which rotary
	// frequencies may depend.
	NewSequence(promptLen int) Sequence
	// Forward appends each row's tokens to its sequence. Its result is valid until the next call.
	// After an error the engine only frees the sequences of the rows. Forward returns early when
	// ctx ends.
	Forward(ctx context.Context, rows []Row) (Logits, error)
	// KV returns the state of the KV cache.
	KV() KV
}

// Limits bound one forward pass. 0 means any number.
type Limits struct {
	Tokens, Sequences, LogitRows int
	States                       int // hidden states
	// Streaming reports that a pass takes about as long for many tokens as for one, because it
	// reads weights from the disk.
	Streaming bool
}

// Sequence is the state of one choice in the model: the tokens computed, in pages. It may have a
// method Together(n int) int that returns how many of the next n tokens may be computed in one
// row with the same bits as one by one.
type Sequence interface {
	// Len returns the number of tokens that need not be computed again.
	Len() int
	// Reserve takes pages for n tokens beyond Len, or returns ErrKVFull and takes none.
	Reserve(n int) error
	// Reuse attaches pages that hold the beginning of the prompt and returns the number of tokens
	// that they save, which is always less than len(prompt). If it is called, it is called first.
	Reuse(prompt []int32) int
	// Free releases the pages. The sequence must not be used afterwards.
	Free()
}

// A restorer is a Sequence whose Reuse would wait for a store of prefixes.
type restorer interface {
	// Restore starts to read the part of the prompt that the store has and memory has not. It
	// returns false if there is nothing to wait for. Otherwise it calls ready, from another
	// goroutine, when Reuse will not wait. Until then the engine may only call Free, which
	// cancels the reads.
	Restore(prompt []int32, ready func()) bool
}

// LogitsMode says which logits of a row are requested.
type LogitsMode = dispatch.LogitsMode

// The modes.
const (
	LogitsNone = dispatch.LogitsNone
	LogitsLast = dispatch.LogitsLast
	LogitsAll  = dispatch.LogitsAll
)

// HiddenMode says which hidden state of a row, after the final norm, is requested.
type HiddenMode = dispatch.HiddenMode

// The modes.
const (
	HiddenNone  = dispatch.HiddenNone
	HiddenFirst = dispatch.HiddenFirst
	HiddenLast  = dispatch.HiddenLast
	HiddenAll   = dispatch.HiddenAll
	HiddenSum   = dispatch.HiddenSum
)

// Row is the part of one sequence in a forward pass.
type Row struct {
	Sequence  Sequence
	Tokens    []int32 // those after the tokens that the sequence holds
	PromptLen int     // length of the request's whole prompt
	Logits    LogitsMode
	Hidden    HiddenMode
	Sum       []float32 // of the preceding chunks, for HiddenSum; nil in the first chunk
	Before    []float32 // see [dispatch.BatchRow]
	Guessed   bool      // Tokens is the last guess of a draft model that joins, and Before the state that it returned
}

// Logits holds the results of a forward pass.
type Logits interface {
	// Row is the logits of row i: count rows of Vocab values, one after the other.
	Row(i int) (count int, values []float32)
}

// KV is the state of the KV cache.
type KV struct {
	PageTokens int // tokens per page
	Pages      int // total
	Used       int // held by sequences
	Cached     int // not in use, with contents that a prompt may reuse
	Queries    int64
	Hits       int64 // tokens that were looked up, and tokens that were found
	// Capacity is the maximum number of tokens in one sequence; 0 means those of all pages.
	Capacity int
}
