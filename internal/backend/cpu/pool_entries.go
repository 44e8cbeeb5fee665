package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Compressed = (*Backend)(nil)

// entryPool is one call of Pool. A unit is a sequence with some channels of the entries.
type entryPool struct {
	dst, x mat.Floats
	bias   []float32 // [rate, series·dim]
	states states
	spans  []backend.Span
	a      backend.PoolArgs
	series int
	kept   int
}

// poolChannels is the number of channels of a unit.
const poolChannels = 64

// Pool implements [backend.Compressed].
func (b *Backend) Pool(dst, x, bias tensor.Tensor, s backend.States, spans []backend.Span, a backend.PoolArgs) {
	if b.failed.Load() {
		return
	}
	if a.Rate < 1 || a.Dim < 1 || len(spans) != len(s.Spans) {
		b.fail("pool: invalid arguments: %+v, %d and %d spans", a, len(spans), len(s.Spans))
		return
	}
	rows := x.Rows()
	op := entryPool{spans: spans, a: a, series: a.Series(), kept: a.Kept()}
	var ok, ok2, ok3, ok4 bool
	op.x, ok = b.floats("pool", "operand", x, rows, 2*op.series*a.Dim)
	op.dst, ok2 = b.floats("pool", "result", dst, rows, a.Dim)
	op.bias, ok3 = b.vector("pool", "bias", bias, slotBias, a.Rate*op.series*a.Dim)
	op.states, ok4 = b.states("pool", s, rows, a.State())
	if !ok || !ok2 || !ok3 || !ok4 {
		return
	}
	for i := range spans {
		if spans[i].First != s.Spans[i].First || spans[i].Rows != s.Spans[i].Rows || spans[i].Start < 0 {
			b.fail("pool: span %d has rows %d+%d at position %d, that of its state %d+%d", i, spans[i].First, spans[i].Rows, spans[i].Start, s.Spans[i].First, s.Spans[i].Rows)
			return
		}
	}
	if !b.reserve(op.kept * 2 * op.series * poolChannels) {
		return
	}
	b.entries = op
	b.run(&b.entries, len(spans)*ceil(a.Dim, poolChannels), 64*rows*op.series*a.Dim)
}

func (op *entryPool) run(w *worker, unit int) {
	parts := ceil(op.a.Dim, poolChannels)
	i := unit / parts
	begin := unit % parts * poolChannels
	end := min(begin+poolChannels, op.a.Dim)
	span, state := &op.spans[i], &op.states.spans[i]
	n := end - begin
	ring := w.scratch.v[:op.kept*2*op.series*n]
	if state.From >= 0 {
		op.move(op.states.slot(state.From), ring, begin, n, false)
	}
	for t := range span.Rows {
		position := span.Start + t
		x := row(op.x, span.First+t, 2*op.series*op.a.Dim)
		kept := ring[position%op.kept*2*op.series*n:]
		for c := range 2 * op.series {
			copy(kept[c*n:][:n], x[c*op.a.Dim+begin:])
		}
		dst := row(op.dst, span.First+t, op.a.Dim)[begin:end]
		if (position+1)%op.a.Rate == 0 {
			op.entry(dst, ring, position, begin)
		} else {
			clear(dst)
		}
		if t+1 == state.SaveAfter {
			op.move(op.states.slot(state.Save), ring, begin, n, true)
		}
	}
	if state.To >= 0 {
		op.move(op.states.slot(state.To), ring, begin, n, true)
	}
}

// move copies n channels from begin on between a slot and ring.
func (op *entryPool) move(slot, ring []float32, begin, n int, save bool) {
	for i := range op.kept * 2 * op.series {
		kept, part := slot[i*op.a.Dim+begin:][:n], ring[i*n:][:n]
		if save {
			copy(kept, part)
		} else {
			copy(part, kept)
		}
	}
}

// first returns the first token of the entry that ends at a position.
func (op *entryPool) first(position int) int {
	first := position + 1 - op.a.Rate
	if op.series == 2 && first > 0 {
		first -= op.a.Rate
	}
	return first
}

// seriesOf returns the series of channels of token p in the entry that ends at a position.
func (op *entryPool) seriesOf(p, position int) int {
	if op.series == 2 && p > position-op.a.Rate {
		return 1
	}
	return 0
}

// entry computes channels from begin on of the entry that ends at a position.
func (op *entryPool) entry(dst, ring []float32, position, begin int) {
	n, first := len(dst), op.first(position)
	// at returns the value and the gate of a token.
	at := func(p, i int) (value, gate float64) {
		series := op.seriesOf(p, position)
		kept := ring[p%op.kept*2*op.series*n:]
		bias := op.bias[(p%op.a.Rate*op.series+series)*op.a.Dim+begin+i]
		return float64(kept[series*n+i]), float64(kept[(op.series+series)*n+i] + bias)
	}
	for i := range dst {
		top := math.Inf(-1)
		for p := first; p <= position; p++ {
			_, gate := at(p, i)
			top = max(top, gate)
		}
		sum, total := 0.0, 0.0
		for p := first; p <= position; p++ {
			value, gate := at(p, i)
			e := math.Exp(gate - top)
			sum += e * value
			total += e
		}
		dst[i] = float32(sum / total)
	}
}
