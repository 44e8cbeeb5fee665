package backend

import "github.com/heftai/heft/internal/tensor"

// Indexed is implemented by a Backend that runs sparse attention with an indexer: a row that sees
// more than Count positions attends to the Count positions with the highest scores. The result of a
// row depends on its own position and visible keys alone.
type Indexed interface {
	// Choose sets row i of chosen, [n, a.Count], to the positions that row i of q attends to, in
	// ascending order, as bits of uint32. Choose does not change rows that see at most a.Count
	// positions. The score of a position with key k is
	//
	//	sum over h of weights[i][h]·a.WeightScale · max(0, q[i][h]·k·a.Scale)
	//
	// in ascending order of h and of the channels. Of equal scores the lower position is chosen.
	// q is [n, Heads·Dim], weights [n, Heads], and keys.K has one head of Dim channels.
	Choose(chosen, q, weights tensor.Tensor, keys KV, spans []Span, a IndexArgs)
	// AttentionChosen is Attention where each row sees the positions that Choose set, or all
	// earlier ones if those are at most chosen's columns. a has one key/value head, and no window,
	// chunk or softcap.
	AttentionChosen(dst, q, chosen tensor.Tensor, kv KV, spans []Span, a AttentionArgs)
}

// IndexArgs are the parameters of an indexer.
type IndexArgs struct {
	Heads, Dim         int
	Count              int // of positions to choose
	Scale, WeightScale float32
}
