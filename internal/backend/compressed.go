package backend

import "github.com/heftai/heft/internal/tensor"

// Compressed is implemented by a Backend that supports attention to a window of tokens and to
// entries that each summarise several tokens. The result of a row depends only on its own
// position and sequence.
type Compressed interface {
	EntryChooser
	// Pool sets row i of dst, [n, a.Dim], to the entry that ends with its token, if its position
	// is the last of a.Rate, and to 0 otherwise. x has the values followed by the gates of each
	// token, with Dim channels each, or 2·Dim with Overlap. For each channel, an entry is the sum
	// of the values of its tokens, weighted by the softmax over the tokens of gate + bias, where
	// bias is [Rate, channels]. With Overlap the sum is over the first half of the channels of
	// the preceding Rate tokens, if there are any, and over the second half of its own. The state
	// has x of the last [PoolArgs.Kept] tokens, by position modulo their number. spans have the
	// positions of the rows of s.
	Pool(dst, x, bias tensor.Tensor, s States, spans []Span, a PoolArgs)
	// AttentionEntries is Attention in which each row attends to the keys of its window and to
	// the entries that ChooseEntries has set. It attends to all entries that end with its token
	// or earlier if there are at most as many as chosen has columns, or if chosen is absent. Keys
	// are also the values. Entry i is the first a.Dim channels of kv.V at the position
	// (i+1)·Rate-1. a has one key/value head, and no chunk or softcap.
	AttentionEntries(dst, q, chosen tensor.Tensor, kv KV, spans []Span, a AttentionArgs, e EntryArgs)
}

// CompressedGradients has the backward operation of Pool. That of AttentionEntries is
// [BlockedGradients].AttentionBlocksGrad. A selection has none.
type CompressedGradients interface {
	Compressed
	// PoolGrad is the backward operation of Pool for whole sequences, which begin at position 0.
	PoolGrad(dx, dbias, dy, x, bias tensor.Tensor, s States, a PoolArgs)
}

// EntryChooser is implemented by a Backend that selects entries of [Compressed].
type EntryChooser interface {
	// ChooseEntries is [Indexed].Choose for entries: those that end with the row's token or
	// earlier. It does not change rows with at most a.Count entries. Entry i has its key in
	// keys.V at the position (i+1)·Rate-1, in the last a.Dim channels of First + a.Dim.
	ChooseEntries(chosen, q, weights tensor.Tensor, keys KV, spans []Span, a IndexArgs, e EntryArgs)
}

// PoolArgs holds the parameters of a pool of tokens.
type PoolArgs struct {
	Rate, Dim int
	Overlap   bool
}

// Series returns the number of channels of a token's values per channel of an entry.
func (a PoolArgs) Series() int {
	if a.Overlap {
		return 2
	}
	return 1
}

// Kept returns the number of tokens in the state.
func (a PoolArgs) Kept() int { return a.Rate * a.Series() }

// State returns the number of elements of the state.
func (a PoolArgs) State() int { return a.Kept() * 2 * a.Series() * a.Dim }

// EntryArgs says where entries are in a layer's cache. A row of KV.V has First + Extra channels.
type EntryArgs struct {
	Rate, First, Extra int
}

// Streams is implemented by a Backend that supports hyper-connections: rows of x are Count
// streams.
type Streams interface {
	// StreamWeights converts the result of the linear layer for each row, [n, (2+Count)·Count] or
	// [n, Count], to the weights of [meta.StreamsSpec]: pre, post and comb, or only pre.
	// Independent streams have pre and post, [n, 2·Count].
	StreamWeights(weights, base, scale tensor.Tensor, a StreamArgs)
	// CollapseStreams: dst = sum over j of pre[j]·stream[j] of x.
	CollapseStreams(dst, x, weights tensor.Tensor, a StreamArgs)
	// ExpandStreams: stream[k] of x = post[k]·y + sum over j of comb[j][k]·stream[j]. For
	// independent streams the sum is stream[k].
	ExpandStreams(x, y, weights tensor.Tensor, a StreamArgs)
}

// StreamArgs holds the parameters of hyper-connections.
type StreamArgs struct {
	Count, Iterations int
	Independent       bool
	Eps, Magnitude    float32
}

// StreamGradients has the backward operations of [Streams]. All operands have the values before
// the operation.
type StreamGradients interface {
	Streams
	// StreamWeightsGrad is the backward operation of StreamWeights. raw is the result of the
	// linear layer.
	StreamWeightsGrad(draw, dbase, dscale, dy, raw, base, scale tensor.Tensor, a StreamArgs)
	// CollapseStreamsGrad is the backward operation of CollapseStreams.
	CollapseStreamsGrad(dx, dweights, dy, x, weights tensor.Tensor, a StreamArgs)
	// ExpandStreamsGrad is the backward operation of ExpandStreams. dbranch is the gradient of y.
	ExpandStreamsGrad(dx, dbranch, dweights, dy, x, y, weights tensor.Tensor, a StreamArgs)
}
