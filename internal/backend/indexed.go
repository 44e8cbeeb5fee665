package backend

import "github.com/heftai/heft/internal/tensor"

// Indexed is implemented by a Backend that supports sparse attention with an indexer: a row with
// more than Count positions attends to the Count positions with the highest scores. The result of
// a row depends only on its own position and visible keys.
type Indexed interface {
	// Choose sets row i of chosen, [n, a.Count], to the positions to which row i of q attends, in
	// ascending order, as bits of uint32. It does not change rows with at most a.Count positions.
	// The score of a position with key k is
	//
	//	sum over h of weights[i][h]·a.WeightScale · max(0, q[i][h]·k·a.Scale)
	//
	// in ascending order of h and of the channels. Of equal scores the lower position is
	// selected. q is [n, Heads·Dim], weights [n, Heads], and keys.K has one head of Dim channels.
	Choose(chosen, q, weights tensor.Tensor, keys KV, spans []Span, a IndexArgs)
	// AttentionChosen is Attention in which each row attends to the positions that Choose has
	// set, or to all earlier ones if there are at most as many as chosen has columns. a has one
	// key/value head, and no window, chunk or softcap.
	AttentionChosen(dst, q, chosen tensor.Tensor, kv KV, spans []Span, a AttentionArgs)
}

// IndexArgs holds the parameters of an indexer.
type IndexArgs struct {
	Heads, Dim         int
	Count              int // number of positions to select
	Scale, WeightScale float32
}
