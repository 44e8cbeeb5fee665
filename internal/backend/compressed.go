package backend

import "github.com/heftai/heft/internal/tensor"

// Compressed is implemented by a Backend that runs attention to a window of tokens and to entries that
// each summarise some tokens. What a row gets depends on its own position and sequence alone.
type Compressed interface {
	EntryChooser
	// Pool sets row i of dst, [n, a.Dim], to the entry that ends with its token, if its position is the last
	// of a.Rate, and to 0 otherwise. x has the values and the gates of each token, side by side, with
	// Dim channels each, or 2·Dim with Overlap. By channel, an entry is the sum of the values of its
	// tokens, weighted by the softmax over the tokens of gate + bias, where bias is [Rate, channels]. With
	// Overlap it is over the first half of the channels of the Rate tokens before too, if there are any,
	// and over the second half of its own. The state has x of the last [PoolArgs.Kept] tokens, by
	// position modulo their number. spans have the positions of the rows of s.
	Pool(dst, x, bias tensor.Tensor, s States, spans []Span, a PoolArgs)
	// AttentionEntries is Attention where each row sees the keys of its window and the entries that
	// ChooseEntries set, or all that end with its token or before if those are at most chosen's columns, or
	// chosen is absent. Keys are values as well. Entry i is the first a.Dim channels of kv.V at the position
	// (i+1)·Rate-1. a has one key/value head, and no chunk or softcap.
	AttentionEntries(dst, q, chosen tensor.Tensor, kv KV, spans []Span, a AttentionArgs, e EntryArgs)
}

// CompressedGradients has the reverse of Pool. That of AttentionEntries is [BlockedGradients].AttentionBlocksGrad. A choice has
// none.
type CompressedGradients interface {
	Compressed
	// PoolGrad is the reverse of Pool of whole sequences, which begin at position 0.
	PoolGrad(dx, dbias, dy, x, bias tensor.Tensor, s States, a PoolArgs)
}

// EntryChooser is implemented by a Backend that chooses entries of [Compressed].
type EntryChooser interface {
	// ChooseEntries is [Indexed].Choose for entries: those that end with the row's token or before. Rows that
	// see at most a.Count entries are left alone. Entry i has its key in keys.V at the position
	// (i+1)·Rate-1, in the last a.Dim channels of First + a.Dim.
	ChooseEntries(chosen, q, weights tensor.Tensor, keys KV, spans []Span, a IndexArgs, e EntryArgs)
}

// PoolArgs are what a pool of tokens fixes.
type PoolArgs struct {
	Rate, Dim int
	Overlap   bool
}

// Series is the number of channels of a token's values for each channel of an entry.
func (a PoolArgs) Series() int {
	if a.Overlap {
		return 2
	}
	return 1
}

// Kept is the number of tokens in the state.
func (a PoolArgs) Kept() int { return a.Rate * a.Series() }

// State is the number of elements of the state.
func (a PoolArgs) State() int { return a.Kept() * 2 * a.Series() * a.Dim }

// EntryArgs say where entries are in a layer's cache. A row of KV.V has First + Extra channels.
type EntryArgs struct {
	Rate, First, Extra int
}

// Streams is implemented by a Backend that runs hyper-connections: rows of x are Count streams.
type Streams interface {
	// StreamWeights turns the linear map of each row, [n, (2+Count)·Count] or [n, Count], into the weights
	// of [meta.StreamsSpec]: pre, post and comb, or pre alone. Independent streams have pre and post, [n, 2·Count].
	StreamWeights(weights, base, scale tensor.Tensor, a StreamArgs)
	// CollapseStreams: dst = sum over j of pre[j]·stream[j] of x.
	CollapseStreams(dst, x, weights tensor.Tensor, a StreamArgs)
	// ExpandStreams: stream[k] of x = post[k]·y + sum over j of comb[j][k]·stream[j]. Independent streams have
	// stream[k] in place of that sum.
	ExpandStreams(x, y, weights tensor.Tensor, a StreamArgs)
}

// StreamArgs are what hyper-connections fix.
type StreamArgs struct {
	Count, Iterations int
	Independent       bool
	Eps, Magnitude    float32
}

// StreamGradients has the reverses of [Streams]. All operands are those before the operation.
type StreamGradients interface {
	Streams
	// StreamWeightsGrad is the reverse of StreamWeights of the maps raw.
	StreamWeightsGrad(draw, dbase, dscale, dy, raw, base, scale tensor.Tensor, a StreamArgs)
	// CollapseStreamsGrad is the reverse of CollapseStreams.
	CollapseStreamsGrad(dx, dweights, dy, x, weights tensor.Tensor, a StreamArgs)
	// ExpandStreamsGrad is the reverse of ExpandStreams by y, whose gradient is dbranch.
	ExpandStreamsGrad(dx, dbranch, dweights, dy, x, y, weights tensor.Tensor, a StreamArgs)
}
