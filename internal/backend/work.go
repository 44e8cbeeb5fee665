package backend

import "github.com/heftai/heft/meta"

// Work is what passes ask of a backend at most, so that it can say in advance how much memory its
// operations take beside tensors.
type Work struct {
	Products  []ProductWork
	Attention []AttentionWork
	// Columns is the width of the widest row that an operation keeps a copy of.
	Columns int
	// Vector is the elements of the longest vector: of a bias, a norm, a convolution.
	Vector int
	// Taps is the most tokens times operands that a channel of a convolution or of a pool keeps.
	Taps int
	// KVDType is the dtype of the KV cache.
	KVDType meta.DType
}

// ProductWork is a product of Tokens rows with a weight without Data. Together is the rows of all products
// of an operation that have inputs of their own, at least Tokens.
type ProductWork struct {
	Weight           Matrix
	Tokens, Together int
}

// AttentionWork is one layer's attention of at most Tokens of a sequence, which has at most Context.
type AttentionWork struct {
	Heads, KVHeads, Dim, ValueDim int
	Window                        int // 0: all
	Context, Tokens               int
	// Count is the most keys that a query sees, where an indexer or entries choose them; 0 for all.
	Count int
	// Rate is the tokens of an entry of compressed attention, 0 for none, and Index what chooses keys.
	Rate  int
	Index IndexArgs
	// Blocks is what chooses blocks of keys, with Count 0.
	Blocks BlockArgs
}
