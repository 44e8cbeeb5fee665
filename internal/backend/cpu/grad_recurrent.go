package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// wholeSequences checks that no span begins or ends with a stored state.
func (b *Backend) wholeSequences(op string, s *states) bool {
	for _, span := range s.spans {
		if span.From >= 0 || span.To >= 0 {
			b.fail("%s: got a state before or after the sequence, want whole sequences", op)
			return false
		}
	}
	return true
}

// replay visits the states of a sequence from the last to the first. It recomputes them from
// checkpoints, so that n tokens need memory for only 2√n states.
type replay struct {
	size, every int
	checkpoints []float32 // the states before tokens 0, every, 2·every, …
	states      []float32 // those before the tokens after a checkpoint, and the one after the last
	gradient    []float32
}

// replayEvery returns the number of tokens between checkpoints for sequences of up to n tokens.
func replayEvery(n int) int { return max(int(math.Ceil(math.Sqrt(float64(n)))), 1) }

// replayFloats returns the length of the memory of a replay, for states of size elements.
func replayFloats(size, n int) int {
	every := replayEvery(n)
	return size * (ceil(n, every) + every + 2)
}

// newReplay returns a replay that uses the first part of memory.
func newReplay(memory []float32, size, n int) replay {
	every := replayEvery(n)
	marks, states := size*ceil(n, every), size*(every+1)
	return replay{size, every, memory[:marks], memory[marks:][:states], memory[marks+states:][:size]}
}

// run calls back for each of n tokens, from the last to the first, with the state before it and
// the gradient of the state after it, which back turns into that of the state before. step
// advances a state by a token. Before back is called for token t, step is called for it, the last
// time within the same group of every tokens.
func (p *replay) run(n int, step func(state []float32, t int), back func(before, gradient []float32, t int)) {
	chunks := ceil(n, p.every)
	mark := func(c int) []float32 { return p.checkpoints[c*p.size:][:p.size] }
	state := func(i int) []float32 { return p.states[i*p.size:][:p.size] }
	if chunks > 0 {
		clear(mark(0))
	}
	for c := 1; c < chunks; c++ {
		copy(mark(c), mark(c-1))
		for t := (c - 1) * p.every; t < c*p.every; t++ {
			step(mark(c), t)
		}
	}
	clear(p.gradient)
	for c := chunks - 1; c >= 0; c-- {
		begin, end := c*p.every, min((c+1)*p.every, n)
		copy(state(0), mark(c))
		for t := begin; t < end; t++ {
			copy(state(t-begin+1), state(t-begin))
			step(state(t-begin+1), t)
		}
		for t := end - 1; t >= begin; t-- {
			back(state(t-begin), p.gradient, t)
		}
	}
}

// headsGrad is a backward operation whose units are a span and a head, where several heads share
// some operands.
type headsGrad struct {
	spans, heads, rows, steps int
	width                     int // of what a head has for a row of the shared operands
	unit                      func(w *worker, span, head int, shared mat.Floats)
	add                       func(r, head int, shared []float32) // adds up what a head has for a row
}

// byHeads runs all units, some heads at a time, and adds the results in the order of the heads.
func (b *Backend) byHeads(o headsGrad) {
	together := min(o.heads, ceil(2*len(b.pool.workers), max(o.spans, 1)))
	if err := b.input.grow(b.ledger, together*o.rows*o.width); err != nil {
		b.fail("scratch: %w", err)
		return
	}
	shared := func(i int) mat.Floats {
		return mat.Floats{V: b.input.v[i*o.rows*o.width:][:o.rows*o.width], Stride: o.width}
	}
	for first := 0; first < o.heads; first += together {
		n := min(together, o.heads-first)
		b.run(taskFunc(func(w *worker, unit int) { o.unit(w, unit/n, first+unit%n, shared(unit%n)) }), o.spans*n, o.steps*n)
		b.each(o.rows, n*o.width, func(_ *worker, r int) {
			for i := range n {
				o.add(r, first+i, row(shared(i), r, o.width))
			}
		})
	}
}

// perHead adds per-head gradients, which are separate for each span, in the order of the spans.
func perHead(gradient []float32, spans []float64) {
	for i, v := range spans {
		if gradient != nil {
			gradient[i%len(gradient)] += float32(v)
		}
	}
}

// convGradChannels is the number of channels of a unit, which has all their tokens.
const convGradChannels = 64

type shortConvGrad struct {
	shortConv
	dx, dy         mat.Floats
	dweight, dbias []float32
}

// ShortConvGrad implements [backend.RecurrentGradients].
func (b *Backend) ShortConvGrad(d backend.ConvInputs, dy tensor.Tensor, in backend.ConvInputs, s backend.States, act meta.Activation) {
	b.DilatedConvGrad(d, dy, in, s, 1, act)
}

// DilatedConvGrad distributes the channels over the threads.
func (b *Backend) DilatedConvGrad(d backend.ConvInputs, dy tensor.Tensor, in backend.ConvInputs, s backend.States, step int, act meta.Activation) {
	if b.failed.Load() {
		return
	}
	const name = "convolution gradient"
	conv, ok := b.shortConv(in.X, in.Weight, in.Bias, s, step, act)
	if !ok || !b.wholeSequences(name, &conv.states) {
		return
	}
	op := shortConvGrad{shortConv: conv}
	rows, channels := dy.Rows(), op.channels
	var ok1, ok2, ok3, ok4 bool
	op.dy, ok1 = b.floats(name, "result", dy, rows, channels)
	op.dx, ok2 = b.optional(name, "operand", d.X, rows, channels)
	op.dweight, _, ok3 = b.gradient(name, "weight's gradient", d.Weight, channels*op.kernel)
	op.dbias, _, ok4 = b.gradient(name, "bias's gradient", d.Bias, channels)
	if !ok1 || !ok2 || !ok3 || !ok4 || !b.reserve((2*op.kernel+3)*convGradChannels) {
		return
	}
	b.run(taskFunc(op.unit), ceil(channels, convGradChannels), 12*rows*channels*op.kernel)
}

func (op *shortConvGrad) unit(w *worker, unit int) {
	begin := unit * convGradChannels
	end := min(begin+convGradChannels, op.channels)
	n, scratch := end-begin, w.scratch.v
	taps, dtaps := scratch[:op.kernel*n], scratch[op.kernel*n:2*op.kernel*n]
	value, slope, dbias := scratch[2*op.kernel*n:][:n], scratch[(2*op.kernel+1)*n:][:n], scratch[(2*op.kernel+2)*n:][:n]
	op.taps(taps, begin, end)
	for i := range op.states.spans {
		span := &op.states.spans[i]
		clear(dtaps)
		clear(dbias)
		for t := range span.Rows {
			dy := from(op.dy, span.First+t, begin).V[:n]
			if op.act == meta.ActSiLU {
				op.token(value, span, t, begin, end, taps)
				clear(slope)
				op.set.Grad.SiLUGrad(slope, nil, dy, value, nil)
				dy = slope
			}
			op.back(dy, dtaps, taps, span, t, begin)
			op.set.Vector.AddScaled(dbias, dy, 1)
		}
		op.add(dtaps, dbias, begin, n)
	}
}

// back adds the gradients of the inputs and the weights of token t, given that of its sum.
func (op *shortConvGrad) back(dy, dtaps, taps []float32, span *backend.StateSpan, t, begin int) {
	n := len(dy)
	for j := range op.kernel {
		s := t - (op.kernel-1-j)*op.step
		if s < 0 {
			continue
		}
		op.set.Vector.MulAdd(dtaps[j*n:][:n], dy, from(op.x, span.First+s, begin).V)
		if op.dx.V != nil {
			op.set.Vector.MulAdd(from(op.dx, span.First+s, begin).V[:n], dy, taps[j*n:])
		}
	}
}

// add adds the gradients of the weights and the biases of n channels.
func (op *shortConvGrad) add(dtaps, dbias []float32, begin, n int) {
	for c := range n {
		if op.dbias != nil {
			op.dbias[begin+c] += dbias[c]
		}
		for j := range op.kernel {
			if op.dweight != nil {
				op.dweight[(begin+c)*op.kernel+j] += dtaps[j*n+c]
			}
		}
	}
}
