package meta

// StreamsSpec is manifold-constrained hyper-connections (mHC), as transformers' DeepseekV4HyperConnection and
// DeepseekV4HyperHead compute them: hidden states are Count streams, side by side, [tokens, Count·hidden]. For
// each branch of a block, a linear map of all streams, normalised without weights, gives a weight pre to
// each stream, a weight post, and a matrix comb. With f = the branch with its norms:
//
//	x = sum of pre[j]·stream[j];  stream'[k] = post[k]·f(x) + sum of comb[j][k]·stream[j]
//
// where pre = sigmoid + Eps, post = 2·sigmoid, and comb is the softmax of its rows plus Eps, whose columns
// and rows are then divided by their sums plus Eps, Iterations times, columns first and last.
// Attention and MLP name children with the parameters fn [(2+Count)·Count, Count·hidden], base [(2+Count)·Count] and
// scale [3], one number each for pre, post and comb, and the child Norm. Head, in a [CausalLMSpec], is the path of a
// child that makes one stream of all before the final norm, by weights pre alone: its parameters are hc_fn
// [Count, Count·hidden], hc_base [Count] and hc_scale [1].
//
// Independent streams, as those of transformers' HYV4HyperConnection, keep their own residual: comb[j][k] is 1 for j = k
// and 0 else, post = Magnitude·sigmoid + Eps, fn and base have the rows of pre and post alone, and scale is [2].
//
// Gated streams, as those of transformers' Qwen4ExpTextGatedResidual, are independent, and their weights pre are those of
// each channel. With n = Norm(streams), of one norm for each stream, that has weights:
//
//	x = mean of sigmoid(Up(silu(Down(n) / Count))) · n;  stream'[k] = stream[k] + 2·sigmoid(Inject(n)[k] / Count)·f(x)
//
// Down, Up and Inject are Linears below the children, [rank, Count·hidden], [Count·hidden, rank] and [Count,
// Count·hidden], which Head has without Inject.
type StreamsSpec struct {
	Count, Iterations int
	Independent       bool
	Eps, Magnitude    float32
	Attention, MLP    string
	Head, Norm        string
	Gated             bool
	Down, Up, Inject  string
}

// CompressedSpec is the attention of transformers' DeepseekV4Attention: many query heads attend to one head that is
// keys and values at once, of a window and, if Pool is set, of entries that each summarise Rate tokens. Rope turns
// the last channels of queries and keys, and turns those of the result back. Names are children.
type CompressedSpec struct {
	// Queries are QHeadNorm(QUp(QNorm(QDown(x)))): QDown is [rank, hidden], QUp [Heads·HeadDim, rank], and QHeadNorm
	// a norm of each head.
	QDown, QNorm, QUp, QHeadNorm string
	KV, KVNorm                   string // Linear [HeadDim, hidden] and norm
	// OutDown, [rows, Heads·HeadDim/Groups], maps each of Groups groups of heads by rows of its own. Out, [hidden, rows],
	// maps all results.
	OutDown string
	Groups  int
	Pool    *PoolSpec         // nil for the window alone
	Indexer *EntryIndexerSpec // chooses entries; nil for all
}

// PoolSpec makes an entry of each Rate tokens, as DeepSeek-V4's compressors do: by channel, the sum of what KV makes
// of the tokens, weighted by the softmax over the tokens of what Gate makes plus Bias, [Rate, channels], normalised with
// Norm. Rope turns its last channels by the position of the first token. With Overlap the maps have twice the channels:
// the first half of the previous Rate tokens and the second of these are summed together.
// Names are dotted paths to children, and State is the index of the layer's state.
type PoolSpec struct {
	State          int // from 0
	Rate, Dim      int // tokens of an entry, and its channels
	Overlap        bool
	KV, Gate, Norm string // Linears [Dim, hidden], with Overlap [2·Dim, hidden], and a norm of Dim channels
	In, Bias       string // child with the parameter Bias
	Rope           *RopeSpec
}

// EntryIndexerSpec chooses, for each token, the Count entries with the highest scores, as [IndexerSpec] does
// positions. Its keys are entries of a pool of its own.
type EntryIndexerSpec struct {
	Pool           *PoolSpec
	Q, Weights     string // Linears [Heads·HeadDim, rank of the queries] and [Heads, hidden]
	Heads, HeadDim int
	Count          int // entries; a token that sees fewer attends to all of them
}
