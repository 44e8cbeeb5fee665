package backendtest

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// texts are complete sequences of 9, 1 and 17 rows without states.
var texts = backend.States{Spans: []backend.StateSpan{{Rows: 9, From: -1, To: -1}, {First: 9, Rows: 1, From: -1, To: -1}, {First: 10, Rows: 17, From: -1, To: -1}}}

const textRows = 27

// cleared returns zeroed memory for the gradient of a vector. The vector is part of a longer one,
// like the vector of a head.
func (e *env) cleared(n int) tensor.Tensor {
	return e.floats(make([]float32, 2*n+3), 2*n+3).Slice(0, n)
}

func testShortConvGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	const channels = 77
	for _, kernel := range []int{1, 3, 4} {
		for _, act := range []meta.Activation{meta.ActNone, meta.ActSiLU} {
			for _, step := range []int{0, 1, 2} { // 0: with a bias, which dilated convolutions do not have
				plain := step > 0
				x, w, bias, dy := e.values(textRows*channels), e.values(channels*kernel), e.values(channels), e.values(textRows*channels)
				vector := func() tensor.Tensor {
					if plain {
						return tensor.Tensor{}
					}
					return e.floats(bias, channels)
				}
				dx, dw := e.gradient(textRows, channels), e.cleared(channels*kernel)
				var db tensor.Tensor
				if !plain {
					db = e.cleared(channels)
				}
				d, in := backend.ConvInputs{X: dx, Weight: dw, Bias: db}, backend.ConvInputs{X: e.strided(x, textRows, channels, 2), Weight: e.floats(w, channels*kernel), Bias: vector()}
				if step > 1 {
					g.DilatedConvGrad(d, e.strided(dy, textRows, channels, 1), in, texts, step, act)
				} else {
					g.ShortConvGrad(d, e.strided(dy, textRows, channels, 1), in, texts, act)
				}
				operands := []slope{{"x", x, e.read(dx), begun}, {"weight", w, e.read(dw), 0}}
				if !plain {
					operands = append(operands, slope{"bias", bias, e.read(db), 0})
				}
				e.slopes(name("convolution gradient", kernel, act, step), dy, func() []float32 {
					dst := e.empty(textRows, channels)
					if step > 1 {
						g.DilatedConv(dst, e.floats(x, textRows, channels), e.floats(w, channels, 1, kernel), texts, step, act)
					} else {
						g.ShortConv(dst, e.floats(x, textRows, channels), e.floats(w, channels, 1, kernel), vector(), texts, act)
					}
					return e.read(dst)
				}, operands...)
			}
		}
	}
}

// stateCase has the operands of a recurrence: matrices with a row per token, and vectors with a
// number per head.
type stateCase struct {
	e       *env
	widths  []int
	x       [][]float32
	vectors [][]float32
	dy      []float32
}

func newStateCase(e *env, heads, vectors, out int, widths ...int) *stateCase {
	c := &stateCase{e: e, widths: widths, dy: e.values(textRows * out)}
	for _, width := range widths {
		c.x = append(c.x, e.values(textRows*width))
	}
	for range vectors {
		c.vectors = append(c.vectors, e.values(heads))
	}
	return c
}

// operands copies the operands to the device, with pad elements between rows.
func (c *stateCase) operands(pad int) (x, vectors []tensor.Tensor) {
	c.e.Helper()
	for i, v := range c.x {
		x = append(x, c.e.strided(v, textRows, c.widths[i], pad))
	}
	for _, v := range c.vectors {
		vectors = append(vectors, c.e.floats(v, len(v)))
	}
	return x, vectors
}

// gradients returns memory for the gradients of the operands.
func (c *stateCase) gradients() (x, vectors []tensor.Tensor) {
	c.e.Helper()
	for _, width := range c.widths {
		x = append(x, c.e.gradient(textRows, width))
	}
	for _, v := range c.vectors {
		vectors = append(vectors, c.e.cleared(len(v)))
	}
	return x, vectors
}

// test compares gradients with difference quotients of a result with out columns.
func (c *stateCase) test(what string, names []string, dx, dvectors []tensor.Tensor, out int, run func(dst tensor.Tensor, x, vectors []tensor.Tensor)) {
	c.e.Helper()
	var operands []slope
	for i, v := range c.x {
		operands = append(operands, slope{names[i], v, c.e.read(dx[i]), begun})
	}
	for i, v := range c.vectors {
		operands = append(operands, slope{names[len(c.x)+i], v, c.e.read(dvectors[i]), 0})
	}
	c.e.slopes(what, c.dy, func() []float32 {
		dst := c.e.empty(textRows, out)
		x, vectors := c.operands(0)
		run(dst, x, vectors)
		return c.e.read(dst)
	}, operands...)
}

func deltaCase(e *env, a backend.DeltaArgs) *stateCase {
	keys, values := a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
	c := newStateCase(e, a.ValueHeads, 2, values, keys, keys, values, a.Decays(), a.ValueHeads)
	c.vectors[0], c.vectors[1] = e.rates(a.ValueHeads, a.Rates), e.values(a.Decays())
	return c
}

func deltaInputs(x, v []tensor.Tensor) backend.DeltaInputs {
	return backend.DeltaInputs{Q: x[0], K: x[1], V: x[2], A: x[3], B: x[4], ALog: v[0], DTBias: v[1]}
}

// deltaGradients returns the gradients that the backend computes for a case of the delta rule.
func deltaGradients(g backend.Gradients, c *stateCase, a backend.DeltaArgs) (dx, dvectors []tensor.Tensor) {
	dx, dvectors = c.gradients()
	x, vectors := c.operands(2)
	g.DeltaRuleGrad(deltaInputs(dx, dvectors), c.e.strided(c.dy, textRows, c.widths[2], 1), deltaInputs(x, vectors), texts, a)
	return dx, dvectors
}

func testDeltaRuleGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, a := range []backend.DeltaArgs{{KeyHeads: 1, ValueHeads: 1, KeyDim: 3, ValueDim: 5}, {KeyHeads: 2, ValueHeads: 6, KeyDim: 16, ValueDim: 35},
		{KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 3, Rates: true, Tiled: true},
		{KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 3, ByChannel: true}, {KeyHeads: 3, ValueHeads: 3, KeyDim: 16, ValueDim: 19, ByChannel: true, Floor: -2.5},
		{KeyHeads: 1, ValueHeads: 2, KeyDim: 4, ValueDim: 3, Floor: -1.5}} {
		c := deltaCase(e, a)
		dx, dvectors := deltaGradients(g, c, a)
		c.test(name("delta rule gradient", a), []string{"q", "k", "v", "a", "b", "aLog", "dtBias"}, dx, dvectors, c.widths[2], func(dst tensor.Tensor, x, v []tensor.Tensor) {
			g.DeltaRule(dst, deltaInputs(x, v), texts, a)
		})
	}
}

// spaceCase makes a case in which no step is near a limit.
func spaceCase(e *env, a backend.StateSpaceArgs) *stateCase {
	c := newStateCase(e, a.Heads, 3, a.Heads*a.HeadDim, a.Heads*a.HeadDim, a.Groups*a.StateDim, a.Groups*a.StateDim, a.Heads)
	c.vectors[0] = e.rates(a.Heads, a.Rates)
	for i := range c.x[3] {
		for bias := c.vectors[1][i%a.Heads]; nearLimit(c.x[3][i]+bias, a); {
			c.x[3][i] += 0.1
		}
	}
	return c
}

func spaceInputs(x, v []tensor.Tensor) backend.StateSpaceInputs {
	return backend.StateSpaceInputs{X: x[0], B: x[1], C: x[2], DT: x[3], ALog: v[0], DTBias: v[1], D: v[2]}
}

// spaceGradients returns the gradients that the backend computes for a state-space case.
func spaceGradients(g backend.Gradients, c *stateCase, a backend.StateSpaceArgs) (dx, dvectors []tensor.Tensor) {
	dx, dvectors = c.gradients()
	x, vectors := c.operands(2)
	g.StateSpaceGrad(spaceInputs(dx, dvectors), c.e.strided(c.dy, textRows, c.widths[0], 1), spaceInputs(x, vectors), texts, a)
	return dx, dvectors
}

func testStateSpaceGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, a := range []backend.StateSpaceArgs{
		{Heads: 1, Groups: 1, HeadDim: 5, StateDim: 3, StepMax: float32(math.Inf(1))},
		{Heads: 6, Groups: 2, HeadDim: 17, StateDim: 16, StepMax: float32(math.Inf(1))},
		{Heads: 3, Groups: 3, HeadDim: 32, StateDim: 7, StepMin: 0.1, StepMax: 1.5},
		{Heads: 2, Groups: 1, HeadDim: 5, StateDim: 3, StepMax: float32(math.Inf(1)), Rates: true},
	} {
		c := spaceCase(e, a)
		dx, dvectors := spaceGradients(g, c, a)
		c.test(name("state space gradient", a), []string{"x", "B", "C", "dt", "aLog", "dtBias", "D"}, dx, dvectors, c.widths[0], func(dst tensor.Tensor, x, v []tensor.Tensor) {
			g.StateSpace(dst, spaceInputs(x, v), texts, a)
		})
	}
}

func scanCase(e *env, a backend.SelectiveArgs) *stateCase {
	c := newStateCase(e, a.Channels, 2, a.Channels, a.Channels, a.StateDim, a.StateDim, a.Channels)
	c.vectors[0] = e.rates(a.Channels*a.StateDim, a.Rates)
	return c
}

func scanInputs(x, v []tensor.Tensor) backend.SelectiveInputs {
	return backend.SelectiveInputs{X: x[0], B: x[1], C: x[2], DT: x[3], ALog: v[0], D: v[1]}
}

// scanGradients returns the gradients that the backend computes for a case of the selective scan.
func scanGradients(g backend.Gradients, c *stateCase, a backend.SelectiveArgs) (dx, dvectors []tensor.Tensor) {
	dx, dvectors = c.gradients()
	x, vectors := c.operands(2)
	g.SelectiveScanGrad(scanInputs(dx, dvectors), c.e.strided(c.dy, textRows, c.widths[0], 1), scanInputs(x, vectors), texts, a)
	return dx, dvectors
}

func testSelectiveScanGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, a := range []backend.SelectiveArgs{{Channels: 1, StateDim: 3}, {Channels: 70, StateDim: 5}, {Channels: 6, StateDim: 4, Rates: true}} {
		c := scanCase(e, a)
		dx, dvectors := scanGradients(g, c, a)
		c.test(name("selective scan gradient", a), []string{"x", "B", "C", "dt", "aLog", "D"}, dx, dvectors, a.Channels, func(dst tensor.Tensor, x, v []tensor.Tensor) {
			g.SelectiveScan(dst, scanInputs(x, v), texts, a)
		})
	}
}

func unitCase(e *env, a backend.GatedLRUArgs) *stateCase {
	c := newStateCase(e, a.Channels, 1, a.Channels, a.Channels, a.Channels)
	for i, v := range c.x[1] { // gates, far enough from 0 for difference quotients
		c.x[1][i] = 0.2 + 0.6/(1+float32(math.Exp(-float64(v))))
	}
	return c
}

func unitInputs(x, v []tensor.Tensor) backend.GatedLRUInputs {
	return backend.GatedLRUInputs{X: x[0], Gate: x[1], Rate: v[0]}
}

// unitGradients returns the gradients that the backend computes for a case of the gated LRU.
func unitGradients(g backend.Gradients, c *stateCase, a backend.GatedLRUArgs) (dx, dvectors []tensor.Tensor) {
	dx, dvectors = c.gradients()
	x, vectors := c.operands(2)
	g.GatedLRUGrad(unitInputs(dx, dvectors), c.e.strided(c.dy, textRows, c.widths[0], 1), unitInputs(x, vectors), texts, a)
	return dx, dvectors
}

func testGatedLRUGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, a := range []backend.GatedLRUArgs{{Channels: 1, Power: 1}, {Channels: 70, Power: 2}} {
		c := unitCase(e, a)
		dx, dvectors := unitGradients(g, c, a)
		c.test(name("gated unit gradient", a), []string{"x", "gate", "rate"}, dx, dvectors, a.Channels, func(dst tensor.Tensor, x, v []tensor.Tensor) {
			g.GatedLRU(dst, unitInputs(x, v), texts, a)
		})
	}
}

func wkvInputs(x, v []tensor.Tensor) backend.WKVInputs {
	return backend.WKVInputs{K: x[0], V: x[1], Decay: v[0], First: v[1]}
}

// wkvGradients makes a WKV case and returns it with the gradients that the backend computes.
func wkvGradients(e *env, g backend.Gradients, a backend.WKVArgs) (c *stateCase, dx, dvectors []tensor.Tensor) {
	c = newStateCase(e, a.Channels, 2, a.Channels, a.Channels, a.Channels)
	dx, dvectors = c.gradients()
	x, vectors := c.operands(2)
	g.WKVGrad(wkvInputs(dx, dvectors), c.e.strided(c.dy, textRows, c.widths[0], 1), wkvInputs(x, vectors), texts, a)
	return c, dx, dvectors
}

func testWKVGrad(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, a := range []backend.WKVArgs{{Channels: 1}, {Channels: 70}} {
		c, dx, dvectors := wkvGradients(e, g, a)
		c.test(name("keyed average gradient", a), []string{"keys", "values", "decay", "first"}, dx, dvectors, a.Channels, func(dst tensor.Tensor, x, v []tensor.Tensor) {
			g.WKV(dst, wkvInputs(x, v), texts, a)
		})
	}
}

// stateGradientProgram runs the reverses of recurrences, at sizes that are divided among threads.
func stateGradientProgram(e *env, g backend.Gradients, out map[string][]float32) {
	e.Helper()
	const width, kernel = 300, 4
	dx, dw, db := e.gradient(textRows, width), e.cleared(width*kernel), e.cleared(width)
	x, dy := e.floats(e.values(textRows*width), textRows, width), e.floats(e.values(textRows*width), textRows, width)
	g.ShortConvGrad(backend.ConvInputs{X: dx, Weight: dw, Bias: db}, dy,
		backend.ConvInputs{X: x, Weight: e.floats(e.values(width*kernel), width*kernel), Bias: e.floats(e.values(width), width)}, texts, meta.ActSiLU)
	all := []tensor.Tensor{dx, dw, db}
	delta := backend.DeltaArgs{KeyHeads: 3, ValueHeads: 9, KeyDim: 24, ValueDim: 40}
	a, b := deltaGradients(g, deltaCase(e, delta), delta)
	space := backend.StateSpaceArgs{Heads: 10, Groups: 2, HeadDim: 40, StateDim: 24, StepMax: float32(math.Inf(1))}
	c, d := spaceGradients(g, spaceCase(e, space), space)
	scan := backend.SelectiveArgs{Channels: 300, StateDim: 16}
	f, h := scanGradients(g, scanCase(e, scan), scan)
	channels := backend.DeltaArgs{KeyHeads: 3, ValueHeads: 9, KeyDim: 24, ValueDim: 40, ByChannel: true}
	i, j := deltaGradients(g, deltaCase(e, channels), channels)
	unit := backend.GatedLRUArgs{Channels: 300, Power: 8}
	k, l := unitGradients(g, unitCase(e, unit), unit)
	pool := backend.PoolArgs{Rate: 3, Dim: 300, Overlap: true}
	m, n := poolGradients(g, poolCase(e, pool), pool)
	_, o, p := wkvGradients(e, g, backend.WKVArgs{Channels: 300})
	for _, t := range slices.Concat(all, a, b, c, d, f, h, i, j, k, l, m, n, o, p) {
		out["state gradients"] = append(out["state gradients"], e.read(t)...)
	}
}

// nearLimit reports whether a step is so near a limit that difference quotients would cross it.
func nearLimit(at float32, a backend.StateSpaceArgs) bool {
	step := math.Log1p(math.Exp(float64(at)))
	return math.Abs(step-float64(a.StepMin)) < 0.02 && a.StepMin > 0 || math.Abs(step-float64(a.StepMax)) < 0.02
}

// testStatesOfGradients: the reverse of a sequence with a state before or after it is an error.
func testStatesOfGradients(e *env) {
	g := e.gradients()
	if g == nil {
		return
	}
	for _, span := range []backend.StateSpan{{Rows: 3, From: -1}, {Rows: 3, To: -1}} {
		dx, w := e.cleared(6), e.floats(e.values(4), 2, 1, 2)
		dx.Rank, dx.Dims = 2, [tensor.MaxRank]int{3, 2}
		g.ShortConvGrad(backend.ConvInputs{X: dx}, e.floats(e.values(6), 3, 2), backend.ConvInputs{X: e.floats(e.values(6), 3, 2), Weight: w},
			backend.States{Memory: e.empty(2, 4), Spans: []backend.StateSpan{span}}, meta.ActNone)
		if e.Sync() == nil {
			e.Errorf("no error of %+v", span)
		}
		sameBits(e, "gradient after errors", e.read(dx), make([]float32, 6))
	}
}
