package meta

// AltUpSpec is alternating updates (AltUp), as in transformers' Gemma3nTextAltUp. The hidden
// states are Count streams in adjacent channels, [tokens, Count·hidden]. A block computes the
// stream Active, counted from 0, and predicts the others. The routes of a stream x are
// tanh(Router(RouterNorm(x) / hidden)). With f = the branches of the block and Laurel:
//
//	p[i] = stream[i] + sum of Predict(routes of stream[Active])[i·Count+j]·stream[j]
//	y = f(p[Active]);  stream'[i] = p[i] + (1 + Correct(routes of y)[i])·(y - p[Active])
//
// The input of the block's Input is stream'[Active], times the Param Scale of Child if that is
// not "". Its result is added to all streams but the first. In a [CausalLMSpec] the embeddings
// are the first stream, and In and Out are the paths of lists of Linears. In computes the other
// streams from the embeddings. Out is applied to the other streams, and the mean of all streams
// is the input of the final norm. The results of In and Out are scaled to the root mean square of
// the first stream.
type AltUpSpec struct {
	Count, Active int
	In, Out       string // of a CausalLMSpec
	// In a BlockSpec, Child has the other names. RouterNorm is a norm of hidden channels. Router,
	// Predict and Correct are Linears: [Count, hidden], [Count², Count] and [Count, Count]. Scale
	// is [hidden].
	Child, RouterNorm, Router, Predict, Correct, Scale string
}

// LaurelSpec adds a low-rank branch parallel to the attention (LAuReL), as in transformers'
// Gemma3nTextLaurelBlock. With x = the input of a block, n = AttentionNorm(x) and a = the
// attention's branch, the result is (x + a + n + Norm(Up(Down(n)))) / √2. Down, [rank, hidden],
// Up, [hidden, rank], and Norm are children of Child.
type LaurelSpec struct{ Child, Down, Up, Norm string }
