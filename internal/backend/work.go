package backend

import "github.com/heftai/heft/meta"

// Work is the maximum work of a pass. A backend computes from it how much memory its operations
// take in addition to tensors.
type Work struct {
	Products  []ProductWork
	Attention []AttentionWork
	// Columns is the width of the widest row that an operation copies.
	Columns int
	// Vector is the number of elements of the longest vector, such as a bias, a norm or a
	// convolution.
	Vector int
	// Taps is the maximum number of tokens times operands that a channel of a convolution or of a
	// pool keeps.
	Taps int
	// KVDType is the dtype of the KV cache.
	KVDType meta.DType
}

// ProductWork is a product of Tokens rows with a weight without Data. Together is the total
// number of rows of the products of an operation that have their own inputs, at least Tokens.
type ProductWork struct {
	Weight           Matrix
	Tokens, Together int
}

// AttentionWork is one layer's attention of at most Tokens of a sequence, which has at most
// Context.
type AttentionWork struct {
	Heads, KVHeads, Dim, ValueDim int
	Window                        int // 0: all
	Context, Tokens               int
	// Count is the maximum number of keys to which a query attends if an indexer or entries
	// select them; 0 means all.
	Count int
	// Rate is the number of tokens per entry of compressed attention, or 0. Index describes the
	// indexer of keys.
	Rate  int
	Index IndexArgs
	// Blocks describes the indexer of blocks of keys. Count is then 0.
	Blocks BlockArgs
}
