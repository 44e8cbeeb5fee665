package meta

// AltUpSpec is alternating updates (AltUp), as transformers' Gemma3nTextAltUp computes them: hidden states are Count
// streams, side by side, [tokens, Count·hidden], of which a block computes the stream Active, from 0, and predicts the
// others. Routes of a stream x are tanh(Router(RouterNorm(x) / hidden)). With
// f = the branches of the block and Laurel:
//
//	p[i] = stream[i] + sum of Predict(routes of stream[Active])[i·Count+j]·stream[j]
//	y = f(p[Active]);  stream'[i] = p[i] + (1 + Correct(routes of y)[i])·(y - p[Active])
//
// The operand of the block's Input is stream'[Active], times the Param Scale of Child if that is not "". Its result is
// added to all streams but the first. In a [CausalLMSpec] the embeddings are the first stream, and In and Out
// are the paths of lists of Linears: In makes the other streams of the embeddings, and Out maps them before their mean
// is the operand of the final norm. Their results get the root mean square of the first stream.
type AltUpSpec struct {
	Count, Active int
	In, Out       string // of a CausalLMSpec
	// Of a BlockSpec: Child has the other names. RouterNorm is a norm of hidden channels. Router, Predict and Correct are
	// Linears: [Count, hidden], [Count², Count] and [Count, Count]. Scale is [hidden].
	Child, RouterNorm, Router, Predict, Correct, Scale string
}

// LaurelSpec adds a low-rank branch of the normalised operand of the attention (LAuReL), as transformers'
// Gemma3nTextLaurelBlock does: with x = the operand of a block and
// n = AttentionNorm(x), what the attention's branch leaves is (x + a + n + Norm(Up(Down(n)))) / √2. Down,
// [rank, hidden], Up, [hidden, rank], and Norm are children of Child.
type LaurelSpec struct{ Child, Down, Up, Norm string }
