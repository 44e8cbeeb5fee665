package meta

// StreamsSpec is manifold-constrained hyper-connections (mHC), as in transformers'
// DeepseekV4HyperConnection and DeepseekV4HyperHead. The hidden states are Count streams in
// adjacent channels, [tokens, Count·hidden]. For each branch of a block, a linear layer of all
// streams, normalised without weights, computes for each stream a weight pre, a weight post, and
// a row of the matrix comb. With f = the branch with its norms:
//
//	x = sum of pre[j]·stream[j];  stream'[k] = post[k]·f(x) + sum of comb[j][k]·stream[j]
//
// where pre = sigmoid + Eps, post = 2·sigmoid, and comb is the softmax of its rows plus Eps. Its
// columns and rows are then divided by their sums plus Eps, Iterations times, columns first and
// last. Attention and MLP name children with the parameters fn [(2+Count)·Count, Count·hidden],
// base [(2+Count)·Count] and scale [3], one number each for pre, post and comb, and the child
// Norm. Head, in a [CausalLMSpec], is the path of a child that merges all streams before the
// final norm, with weights pre only: its parameters are hc_fn [Count, Count·hidden], hc_base
// [Count] and hc_scale [1].
//
// Independent streams, as in transformers' HYV4HyperConnection, keep their own residual:
// comb[j][k] is 1 for j = k and 0 otherwise, post = Magnitude·sigmoid + Eps, fn and base only
// have the rows of pre and post, and scale is [2].
//
// Gated streams, as in transformers' Qwen4ExpTextGatedResidual, are independent, and have a
// weight pre for each channel. With n = Norm(streams), which normalises each stream with its own
// weights:
//
//	x = mean of sigmoid(Up(silu(Down(n) / Count))) · n;  stream'[k] = stream[k] + 2·sigmoid(Inject(n)[k] / Count)·f(x)
//
// Down, Up and Inject are Linears below the children, [rank, Count·hidden], [Count·hidden, rank]
// and [Count, Count·hidden]. Head has no Inject.
type StreamsSpec struct {
	Count, Iterations int
	Independent       bool
	Eps, Magnitude    float32
	Attention, MLP    string
	Head, Norm        string
	Gated             bool
	Down, Up, Inject  string
}

// CompressedSpec is the attention of transformers' DeepseekV4Attention: many query heads attend
// to one head that is both keys and values, within a window and, if Pool is set, to entries that
// each summarise Rate tokens. Rope rotates the last channels of queries and keys, and rotates
// those of the result back. Names are children.
type CompressedSpec struct {
	// Queries are QHeadNorm(QUp(QNorm(QDown(x)))): QDown is [rank, hidden], QUp [Heads·HeadDim,
	// rank], and QHeadNorm a norm of each head.
	QDown, QNorm, QUp, QHeadNorm string
	KV, KVNorm                   string // Linear [HeadDim, hidden] and norm
	// OutDown, [rows, Heads·HeadDim/Groups], projects each of Groups groups of heads with its own
	// rows. Out, [hidden, rows], projects all results.
	OutDown string
	Groups  int
	Pool    *PoolSpec         // nil for the window alone
	Indexer *EntryIndexerSpec // chooses entries; nil for all
}

// PoolSpec computes an entry from each Rate tokens, as DeepSeek-V4's compressors do. For each
// channel it is the sum of KV's results for the tokens, weighted by the softmax over the tokens
// of Gate's results plus Bias, [Rate, channels], and normalised with Norm. Rope rotates its last
// channels by the position of the first token. With Overlap the projections have twice the
// channels: the first half of the previous Rate tokens and the second half of these are summed
// together. Names are dotted paths to children, and State is the index of the layer's state.
type PoolSpec struct {
	State          int // from 0
	Rate, Dim      int // tokens of an entry, and its channels
	Overlap        bool
	KV, Gate, Norm string // Linears [Dim, hidden], with Overlap [2·Dim, hidden], and a norm of Dim channels
	In, Bias       string // child with the parameter Bias
	Rope           *RopeSpec
}

// EntryIndexerSpec selects, for each token, the Count entries with the highest scores, as
// [IndexerSpec] does for positions. Its keys are entries of a pool of its own.
type EntryIndexerSpec struct {
	Pool           *PoolSpec
	Q, Weights     string // Linears [Heads·HeadDim, rank of the queries] and [Heads, hidden]
	Heads, HeadDim int
	Count          int // entries; a token with fewer attends to all of them
}
