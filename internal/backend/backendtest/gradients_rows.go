package backendtest

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// attentionCase is one layer's attention for sequences that start at position 0. The values may
// share memory with the keys' first channels.
type attentionCase struct {
	e        *env
	a        backend.AttentionArgs
	shared   bool
	lengths  []int
	tokens   int // per page
	q, k, v  []float32
	sinks    []float32
	kv       backend.KV
	spans    []backend.Span
	slots    []int32
	keyWidth int
	blocks   backend.BlockArgs // Count 0 means all positions
	chosen   tensor.Tensor     // the blocks chosen for each row and head of blocks
	entries  backend.EntryArgs // if Rate is set, attention is to entries, and blocks choose whole entries
	// rank and extent are the dimensions of distance biases, or 0 if there are none.
	rank, extent     int
	states, profiles []float32
}

// choose chooses blocks for each row that sees more than Count of them: its own block, and
// consecutive ones from a start that depends on the row and the head.
func (c *attentionCase) choose() {
	b := c.blocks
	var bits []float32
	for _, s := range c.spans {
		for i := range s.Rows {
			own := i / b.Size
			if b.Tail { // the last complete block
				own = (i+1)/b.Size - 1
			}
			for h := range b.Heads {
				first := 0
				if spare := own - b.Count; spare > 0 {
					first = (5*i + 3*h) % (spare + 1)
				}
				for k := range b.Count - 1 {
					bits = append(bits, math.Float32frombits(uint32(first+k)))
				}
				bits = append(bits, math.Float32frombits(uint32(own)))
			}
		}
	}
	c.chosen = c.e.floats(bits, len(c.slots), b.Heads*b.Count)
}

// valueWidth returns the width of a row of values, or of entries.
func (c *attentionCase) valueWidth() int { return c.a.KVHeads*c.a.ValueDim + c.entries.Extra }

// place stores the keys and values in new memory.
func (c *attentionCase) place() (q tensor.Tensor, a backend.AttentionArgs) {
	e, n := c.e, len(c.slots)
	pages := 0
	for _, s := range c.spans {
		pages += len(s.Pages)
	}
	vw := c.valueWidth()
	c.kv = backend.KV{K: e.place(meta.Float32, make([]float32, pages*c.tokens*c.keyWidth), 0, pages, c.tokens, c.keyWidth), PageTokens: c.tokens}
	values := tensor.Tensor{}
	if c.kv.V = c.kv.K; !c.shared {
		c.kv.V = e.place(meta.Float32, make([]float32, pages*c.tokens*vw), 0, pages, c.tokens, vw)
		values = e.floats(c.v, n, vw)
	}
	e.StoreKV(c.kv, e.floats(c.k, n, c.keyWidth), values, c.slots)
	a = c.a
	if c.sinks != nil {
		a.Sinks = e.floats(c.sinks, a.Heads)
	}
	if c.rank > 0 {
		a.Relative = backend.Relative{States: e.strided(c.states, n, a.Heads*c.rank, 2), Profiles: e.floats(c.profiles, len(c.profiles))}
	}
	return e.strided(c.q, n, a.Heads*a.Dim, 1), a
}

func testAttentionGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, c := range []attentionCase{
		{a: backend.AttentionArgs{Heads: 2, KVHeads: 2, Dim: 8, ValueDim: 8, Scale: 0.3}, lengths: []int{7}, tokens: 7},
		{a: backend.AttentionArgs{Heads: 6, KVHeads: 2, Dim: 5, ValueDim: 9, Scale: 0.5}, lengths: []int{11, 3, 30}, tokens: 4},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 1, Dim: 8, ValueDim: 4, Scale: 0.4, Window: 5}, lengths: []int{13, 40}, tokens: 16},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 2, Dim: 8, ValueDim: 8, Scale: 1, Softcap: 1.5, Window: 9}, lengths: []int{21}, tokens: 8, sinks: e.values(4)},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 2, Dim: 8, ValueDim: 8, Scale: 0.4, Chunk: 6}, lengths: []int{13, 31}, tokens: 16},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 2, Dim: 8, ValueDim: 8, Scale: 0.4, Slopes: []float32{0.5, 0.25, 0.0625, 1}}, lengths: []int{13, 31}, tokens: 8},
		{a: backend.AttentionArgs{Heads: 3, KVHeads: 3, Dim: 8, ValueDim: 6, Scale: 1, Softcap: 1.5, Window: 9, Slopes: []float32{0.5, 0.25, 0.1}}, lengths: []int{21, 4}, tokens: 8},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 2, Dim: 8, ValueDim: 8, Scale: 0.4}, lengths: []int{13, 31}, tokens: 8, rank: 3, extent: 12},
		{a: backend.AttentionArgs{Heads: 6, KVHeads: 3, Dim: 8, ValueDim: 6, Scale: 0.5, Window: 9}, lengths: []int{21, 4}, tokens: 8, rank: 2, extent: 40, sinks: e.values(6)},
		{a: backend.AttentionArgs{Heads: 30, KVHeads: 1, Dim: 12, ValueDim: 8, Scale: 0.3}, lengths: []int{6, 5}, tokens: 6, shared: true},
		{a: backend.AttentionArgs{Heads: 6, KVHeads: 2, Dim: 5, ValueDim: 9, Scale: 0.5}, lengths: []int{11, 3, 30}, tokens: 4, blocks: backend.BlockArgs{Heads: 2, Dim: 4, Size: 3, Count: 2}},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 1, Dim: 8, ValueDim: 8, Scale: 0.4}, lengths: []int{29}, tokens: 8, blocks: backend.BlockArgs{Heads: 4, Dim: 4, Size: 1, Count: 5}},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 2, Dim: 5, ValueDim: 9, Scale: 0.5}, lengths: []int{11, 3, 30}, tokens: 4, blocks: backend.BlockArgs{Heads: 1, Dim: 4, Size: 3, Count: 2, Tail: true}},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 1, Dim: 8, ValueDim: 8, Scale: 0.4}, lengths: []int{29, 4}, tokens: 8, sinks: e.values(4), blocks: backend.BlockArgs{Heads: 1, Dim: 4, Size: 1, Count: 5}},
		{a: backend.AttentionArgs{Heads: 4, KVHeads: 1, Dim: 8, ValueDim: 8, Scale: 0.4, Window: 5}, lengths: []int{29, 4}, tokens: 8, sinks: e.values(4), entries: backend.EntryArgs{Rate: 3, First: 8}},
		{a: backend.AttentionArgs{Heads: 3, KVHeads: 1, Dim: 9, ValueDim: 9, Scale: 0.4, Window: 3}, lengths: []int{11, 3, 30}, tokens: 4, entries: backend.EntryArgs{Rate: 2, First: 9, Extra: 5}, blocks: backend.BlockArgs{Heads: 1, Size: 2, Count: 3, Tail: true}},
	} {
		c.e = e
		c.keyWidth = c.a.KVHeads * c.a.Dim
		page := int32(0)
		for _, n := range c.lengths {
			s := backend.Span{First: len(c.slots), Rows: n}
			for i := range n {
				c.slots = append(c.slots, (page+int32(i/c.tokens))*int32(c.tokens)+int32(i%c.tokens))
			}
			for range (n + c.tokens - 1) / c.tokens {
				s.Pages = append(s.Pages, page)
				page++
			}
			c.spans = append(c.spans, s)
		}
		c.test(g)
	}
}

// reverse runs the reverse of the attention of c. It returns the gradients of distance biases.
func (c *attentionCase) reverse(g backend.Gradients, dq tensor.Tensor, dkv backend.KV, dsinks, dy, q tensor.Tensor, kv backend.KV, args backend.AttentionArgs) []slope {
	if c.blocks.Count > 0 {
		c.choose()
	}
	if c.blocks.Count > 0 || c.entries.Rate > 0 {
		g.AttentionBlocksGrad(dq, dkv, dy, q, kv, c.spans, args, backend.ChosenBlocks{BlockArgs: c.blocks, Entries: c.entries, Chosen: c.chosen, Sinks: dsinks})
		return nil
	}
	d := backend.ScoreGradients{Sinks: dsinks}
	if c.rank == 0 {
		g.AttentionGrad(dq, dkv, d, dy, q, kv, c.spans, args)
		return nil
	}
	e := c.e
	d.Relative = backend.Relative{States: e.gradient(len(c.slots), args.Heads*c.rank), Profiles: e.floats(make([]float32, len(c.profiles)), len(c.profiles))}
	g.AttentionGrad(dq, dkv, d, dy, q, kv, c.spans, args)
	return []slope{{"states of biases", c.states, e.read(d.Relative.States), begun}, {"profiles of biases", c.profiles, e.read(d.Relative.Profiles), 0}}
}

func (c *attentionCase) test(g backend.Gradients) {
	e, n, a := c.e, len(c.slots), c.a
	width := a.Heads * a.ValueDim
	c.q, c.k, c.v = e.values(n*a.Heads*a.Dim), e.values(n*c.keyWidth), e.values(n*c.valueWidth())
	c.states, c.profiles = e.values(n*a.Heads*c.rank), e.values(c.rank*c.extent)
	dy := e.values(n * width)
	q, args := c.place()
	kv := c.kv
	zeros := func(t tensor.Tensor) tensor.Tensor { return e.floats(make([]float32, t.Elements()), t.Shape()...) }
	dkv := backend.KV{K: zeros(kv.K), PageTokens: kv.PageTokens}
	if dkv.V = dkv.K; !c.shared {
		dkv.V = zeros(kv.V)
	}
	dq, dk, dv, dsinks := e.gradient(n, a.Heads*a.Dim), e.gradient(n, c.keyWidth), tensor.Tensor{}, tensor.Tensor{}
	if !c.shared {
		dv = e.gradient(n, c.valueWidth())
	}
	if c.sinks != nil {
		dsinks = e.floats(make([]float32, a.Heads), a.Heads)
	}
	relative := c.reverse(g, dq, dkv, dsinks, e.strided(dy, n, width, 1), q, kv, args)
	g.StoreKVGrad(dkv, dk, dv, c.slots)
	operands := append(relative, slope{"q", c.q, e.read(dq), begun}, slope{"k", c.k, e.read(dk), begun})
	if !c.shared {
		operands = append(operands, slope{"v", c.v, e.read(dv), begun})
	}
	if c.sinks != nil {
		operands = append(operands, slope{"sinks", c.sinks, e.read(dsinks), 0})
	}
	e.slopes(name("attention gradient", a.Heads, a.KVHeads, c.shared), dy, func() []float32 {
		q, args := c.place()
		dst := e.empty(n, width)
		switch {
		case c.entries.Rate > 0:
			g.AttentionEntries(dst, q, c.chosen, c.kv, c.spans, args, c.entries)
		case c.blocks.Count > 0 && c.sinks != nil:
			g.AttentionChosen(dst, q, c.chosen, c.kv, c.spans, args)
		case c.blocks.Count > 0:
			g.AttentionBlocks(dst, q, c.chosen, c.kv, c.spans, args, c.blocks)
		default:
			e.Attention(dst, q, c.kv, c.spans, args)
		}
		return e.read(dst)
	}, operands...)
	for _, v := range append(e.read(dkv.K), e.read(dkv.V)...) {
		if v != 0 {
			e.Fatalf("store gradient left %g", v)
		}
	}
}

func testRowsGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, n, cols = 5, 7, 70
	ids := []int32{3, 0, 3, 4, 1, 3, 0}
	table, x, weights, dy := e.values(rows*cols), e.values(n*cols), e.values(n), e.values(n*cols)
	dtable := e.floats(make([]float32, len(table)), rows, cols)
	g.EmbedGrad(backend.Matrix{Tensor: dtable}, e.floats(dy, n, cols), ids, 0.5)
	g.EmbedGrad(backend.Matrix{Tensor: dtable}, e.floats(dy, n, cols), []int32{-1, -1, -1, -1, -1, -1, -1}, 0.5)
	e.slopes("embed gradient", dy, func() []float32 {
		dst := e.empty(n, cols)
		e.Embed(dst, backend.Matrix{Tensor: e.floats(table, rows, cols)}, ids, 0.5)
		return e.read(dst)
	}, slope{"table", table, e.read(dtable), 0})

	grad := e.values(rows * cols)
	dx, dw := e.gradient(n, cols), make([]float32, n)
	g.ScatterAddGrad(dx, dw, e.floats(grad, rows, cols), e.floats(x, n, cols), ids, weights)
	e.sync()
	e.slopes("scatter gradient", grad, func() []float32 {
		dst := e.floats(table, rows, cols)
		e.ScatterAdd(dst, e.floats(x, n, cols), ids, weights)
		return e.read(dst)
	}, slope{"x", x, e.read(dx), begun}, slope{"weights", weights, dw, 0})

	for _, softcap := range []float32{0, 1.5} {
		result := func() []float32 {
			y := e.floats(x, n, cols)
			e.Scale(y, 0.7, softcap)
			return e.read(y)
		}
		dx = e.floats(dy, n, cols)
		g.ScaleGrad(dx, e.floats(result(), n, cols), 0.7, softcap)
		e.slopes("scale gradient", dy, result, slope{"x", x, e.read(dx), 0})
	}
	for _, d := range dtypes {
		got := e.floats(x, n, cols)
		g.Round(got, d)
		sameBits(e, name("round", d), e.read(got), rounded(d, x))
	}
	g.Zero(dx)
	if v := e.read(dx); slices.ContainsFunc(v, func(x float32) bool { return x != 0 }) {
		e.Error("zero left something")
	}
}

func testRouteGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, experts = 4, 8
	for _, a := range []meta.MoESpec{
		{TopK: 2}, {TopK: 3, Renormalise: true, Scale: 2}, {TopK: 2, Score: meta.ScoreTopKSoftmax},
		{TopK: 3, Score: meta.ScoreSigmoid}, {TopK: 2, Score: meta.ScoreSigmoid, Renormalise: true, Scale: 2.5, Groups: 4, TopGroups: 2, GroupsByTwo: true},
		{TopK: 3, Score: meta.ScoreSqrtSoftplus}, {TopK: 2, Score: meta.ScoreSqrtSoftplus, Renormalise: true, Scale: 1.5},
		{TopK: 2, Score: meta.ScoreSigmoid, Renormalise: true, Scale: 8, Scored: &meta.ScoredSpec{Count: 3}},
		{TopK: 2, Score: meta.ScoreSparseMixer, Jitter: 0.2}, {TopK: 2, Score: meta.ScoreSparseMixer, Jitter: 0.01},
	} {
		logits, dweights := e.values(rows*experts), e.values(rows*a.Chosen())
		for i := range logits { // far apart, so that no choice changes
			logits[i] = logits[i]*0.05 + float32((i*5)%experts)*0.3
		}
		correction := tensor.Tensor{}
		if a.Score == meta.ScoreSigmoid {
			correction = e.floats([]float32{0, 0.2, 0, 0, 0.3, 0, 0, 0}[:experts+a.TopK-a.Chosen()], experts+a.TopK-a.Chosen())
		}
		chosen, weights := make([]int32, rows*a.Chosen()), make([]float32, rows*a.Chosen())
		result := func() []float32 {
			e.Route(chosen, weights, e.floats(logits, rows, experts), correction, &a)
			e.sync()
			return weights
		}
		result()
		dx := e.gradient(rows, experts)
		g.RouteGrad(dx, dweights, chosen, e.floats(logits, rows, experts), &a)
		e.slopes(name("route gradient", a.Score, a.Renormalise), dweights, result, slope{"logits", logits, e.read(dx), begun})
	}
}

func testCrossEntropy(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, classes = 4, 50
	labels := []int32{3, -1, 49, 0}
	for _, smoothing := range []float32{0, 0.2} {
		logits, losses := e.values(rows*classes), make([]float32, rows)
		dx := e.gradient(rows, classes)
		g.CrossEntropy(losses, dx, e.strided(logits, rows, classes, 3), labels, 0.5, smoothing)
		e.sync()
		if losses[1] != 0 {
			e.Errorf("the loss without a label is %g", losses[1])
		}
		e.slopes(name("cross-entropy", smoothing), []float32{0.5, 0.5, 0.5, 0.5}, func() []float32 {
			g.CrossEntropy(losses, tensor.Tensor{}, e.floats(logits, rows, classes), labels, 1, smoothing)
			e.sync()
			return losses
		}, slope{"logits", logits, e.read(dx), begun})
		same := e.floats(logits, rows, classes)
		g.CrossEntropy(losses, same, same, labels, 0.5, smoothing)
		for i, v := range e.read(same) {
			if d := v + begun - e.read(dx)[i]; d > 1e-5 || d < -1e-5 {
				e.Fatalf("cross-entropy in place: element %d is %g off", i, d)
			}
		}
	}
}

func testSoftmax(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const rows, cols = 3, 600 // more columns than are summed at a time
	for _, log := range []bool{false, true} {
		x, dy := e.values(rows*cols), e.values(rows*cols)
		y, dx := e.strided(make([]float32, rows*cols), rows, cols, 3), e.gradient(rows, cols)
		g.Softmax(y, e.strided(x, rows, cols, 5), log)
		g.SoftmaxGrad(dx, e.floats(dy, rows, cols), y, log)
		e.sync()
		for r, v := range e.read(y) {
			top, sum := math.Inf(-1), 0.0
			row := x[r/cols*cols:][:cols]
			for _, v := range row {
				top = max(top, float64(v))
			}
			for _, v := range row {
				sum += math.Exp(float64(v) - top)
			}
			want := float64(x[r]) - top - math.Log(sum)
			if !log {
				want = math.Exp(want)
			}
			if !(math.Abs(float64(v)-want) <= 1e-6*(1+math.Abs(want))) {
				e.Fatalf("softmax, log %v: element %d is %g, want %g", log, r, v, want)
			}
		}
		e.slopes(name("softmax", log), dy, func() []float32 {
			same := e.floats(x, rows, cols)
			g.Softmax(same, same, log)
			e.sync()
			return e.read(same)
		}, slope{"x", x, e.read(dx), begun})
	}
}

// gradientProgram runs the gradients whose sums are divided among threads.
func gradientProgram(e *env, out map[string][]float32) {
	e.Helper()
	g := e.gradients()
	if g == nil {
		return
	}
	const tokens, rows, cols = 61, 130, 259
	x, dy := e.floats(e.values(tokens*cols), tokens, cols), e.floats(e.values(tokens*rows), tokens, rows)
	for _, d := range dtypes {
		for _, transposed := range []bool{false, true} {
			m := e.matrixOf(d, e.values(rows*cols), rows, cols, transposed, 1)
			dw := e.matrixOf(meta.Float32, make([]float32, rows*cols), rows, cols, transposed, 1)
			for _, rounded := range []bool{false, true} {
				dx, db := e.gradient(tokens, cols), e.floats(make([]float32, rows), rows)
				g.LinearGrad(dx, dw, db, dy, x, m, rounded)
				dst := e.empty(tokens, rows)
				g.Product(dst, x, m, tensor.Tensor{}, rounded)
				out[name("linear gradient", d, transposed, rounded)] = slices.Concat(e.read(dx), e.readMatrix(dw), e.read(db), e.read(dst))
			}
		}
	}
	dx, dw := e.gradient(tokens, cols), e.floats(make([]float32, cols), cols)
	weight := e.floats(e.values(cols), cols)
	g.NormGrad(dx, dw, tensor.Tensor{}, x, x, weight, meta.NormSpec{Dim: cols, Eps: 1e-5})
	out["norm gradient"] = append(e.read(dx), e.read(dw)...)
	a := backend.AttentionArgs{Heads: 8, KVHeads: 2, Dim: 32, ValueDim: 32, Scale: 0.2, Window: 50}
	c := newCache(e, a, meta.Float32, 16, 40, 90)
	dkv := backend.KV{K: e.floats(make([]float32, c.kv.K.Elements()), c.kv.K.Shape()...), V: e.floats(make([]float32, c.kv.V.Elements()), c.kv.V.Shape()...), PageTokens: 16}
	var spans []backend.Span
	for i, s := range c.seqs {
		spans = append(spans, backend.Span{First: i * 40, Rows: s.n, Pages: s.pages})
	}
	q, grad := e.floats(e.values(130*256), 130, 256), e.floats(e.values(130*256), 130, 256)
	dq := e.gradient(130, 256)
	g.AttentionGrad(dq, dkv, backend.ScoreGradients{}, grad, q, c.kv, spans, a)
	out["attention gradient"] = slices.Concat(e.read(dq), e.read(dkv.K), e.read(dkv.V))
	stateGradientProgram(e, g, out)
}
