package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Recurrent = (*Backend)(nil)

// states are the checked states of an operation.
type states struct {
	memory mat.Floats // [slots, elements]
	first  int
	size   int // elements of a slot that the operation uses
	spans  []backend.StateSpan
}

// slot returns the operation's part of a slot.
func (s *states) slot(i int32) []float32 { return row(s.memory, int(i), s.first+s.size)[s.first:] }

// states checks s for an operation on rows that uses size elements of each slot.
func (b *Backend) states(op string, s backend.States, rows, size int) (states, bool) {
	memory, ok := b.floats(op, "state", s.Memory, s.Memory.Rows(), s.Memory.Cols())
	if !ok {
		return states{}, false
	}
	if s.First < 0 || s.First+size > s.Memory.Cols() {
		b.fail("%s: states of %d elements, want %d from %d on", op, s.Memory.Cols(), size, s.First)
		return states{}, false
	}
	next, slots := 0, int32(s.Memory.Rows())
	for _, span := range s.Spans {
		if span.First != next || span.Rows < 0 || span.From < -1 || span.From >= slots || span.To < 0 || span.To >= slots ||
			span.SaveAfter < 0 || span.SaveAfter > span.Rows || span.SaveAfter > 0 && (span.Save < 0 || span.Save >= slots) {
			b.fail("%s: invalid span of states: %+v of %d slots, want first row %d", op, span, slots, next)
			return states{}, false
		}
		next += span.Rows
	}
	if next != rows {
		b.fail("%s: spans of states cover %d of %d rows", op, next, rows)
		return states{}, false
	}
	return states{memory: memory, first: s.First, size: size, spans: s.Spans}, true
}

type shortConv struct {
	set          *kernels.Set
	dst, x       mat.Floats
	weight, bias []float32 // [channels, kernel], [channels]
	states       states
	channels     int
	kernel       int
	act          meta.Activation
}

// convChannels is the number of channels of a unit.
const convChannels = 256

// ShortConv shares sequences and channels among the threads.
func (b *Backend) ShortConv(dst, x, weight, bias tensor.Tensor, s backend.States, act meta.Activation) {
	if b.failed.Load() {
		return
	}
	rows, channels := x.Rows(), x.Cols()
	op := shortConv{set: b.set, channels: channels, kernel: weight.Elements() / max(channels, 1), act: act}
	var ok bool
	if op.dst, ok = b.floats("convolution", "result", dst, rows, channels); !ok {
		return
	}
	if op.x, ok = b.floats("convolution", "operand", x, rows, channels); !ok {
		return
	}
	if op.weight, ok = b.vector("convolution", "weight", weight, slotWeight, channels*op.kernel); !ok {
		return
	}
	if op.bias, ok = b.vector("convolution", "bias", bias, slotBias, channels); !ok {
		return
	}
	if act != meta.ActNone && act != meta.ActSiLU || op.kernel < 1 {
		b.fail("convolution: activation %d after a kernel of %d tokens", act, op.kernel)
		return
	}
	if op.states, ok = b.states("convolution", s, rows, (op.kernel-1)*channels); !ok || !b.reserve(op.kernel*convChannels) {
		return
	}
	b.conv = op
	b.run(&b.conv, len(s.Spans)*ceil(channels, convChannels), 4*rows*channels*op.kernel)
}

func (op *shortConv) run(w *worker, unit int) {
	parts := ceil(op.channels, convChannels)
	span := &op.states.spans[unit/parts]
	begin := unit % parts * convChannels
	end := min(begin+convChannels, op.channels)
	taps := w.scratch.v[:op.kernel*(end-begin)] // weights, token by token
	n := end - begin
	for c := range n {
		for j, x := range op.weight[(begin+c)*op.kernel:][:op.kernel] {
			taps[j*n+c] = x
		}
	}
	for t := range span.Rows {
		op.token(span, t, begin, end, taps)
	}
	if span.SaveAfter > 0 {
		op.keep(span, span.SaveAfter, span.Save, begin, end)
	}
	op.keep(span, span.Rows, span.To, begin, end)
}

// input is channels [begin, end) of token t of a span, which may lie before its first; nil for zeros.
func (op *shortConv) input(span *backend.StateSpan, t, begin, end int) []float32 {
	switch {
	case t >= 0:
		return row(op.x, span.First+t, op.channels)[begin:end]
	case span.From < 0:
		return nil
	}
	at := (op.kernel - 1 + t) * op.channels
	return op.states.slot(span.From)[at+begin : at+end]
}

// token computes channels [begin, end) of token t.
func (op *shortConv) token(span *backend.StateSpan, t, begin, end int, taps []float32) {
	dst := row(op.dst, span.First+t, op.channels)[begin:end]
	if op.bias != nil {
		copy(dst, op.bias[begin:end])
	} else {
		clear(dst)
	}
	for j := range op.kernel {
		if in := op.input(span, t-op.kernel+1+j, begin, end); in != nil {
			op.set.Vector.MulAdd(dst, taps[j*len(dst):][:len(dst)], in)
		}
	}
	if op.act == meta.ActSiLU {
		op.set.Vector.Gate(dst, dst, nil, 1, 0)
	}
}

// keep writes the last inputs of the first n tokens to a slot, which may be the one that is read.
func (op *shortConv) keep(span *backend.StateSpan, n int, slot int32, begin, end int) {
	to := op.states.slot(slot)
	for r := range op.kernel - 1 {
		dst := to[r*op.channels:][begin:end]
		if in := op.input(span, n-op.kernel+1+r, begin, end); in != nil {
			copy(dst, in)
		} else {
			clear(dst)
		}
	}
}

type deltaRule struct {
	set          *kernels.Set
	dst          mat.Floats
	q, k, v      mat.Floats
	a, b         mat.Floats
	aLog, dtBias []float32
	states       states
	args         backend.DeltaArgs
}

// DeltaRule shares sequences and value heads among the threads.
func (b *Backend) DeltaRule(dst tensor.Tensor, in backend.DeltaInputs, s backend.States, a backend.DeltaArgs) {
	if b.failed.Load() {
		return
	}
	rows := dst.Rows()
	if a.KeyHeads < 1 || a.ValueHeads%a.KeyHeads != 0 || a.KeyDim < 1 || a.ValueDim < 1 {
		b.fail("delta rule: invalid arguments: %+v", a)
		return
	}
	op := deltaRule{set: b.set, args: a}
	keys, values := a.KeyHeads*a.KeyDim, a.ValueHeads*a.ValueDim
	var ok, ok2, ok3 bool
	op.dst, ok = b.floats("delta rule", "result", dst, rows, values)
	op.q, ok2 = b.floats("delta rule", "queries", in.Q, rows, keys)
	op.k, ok3 = b.floats("delta rule", "keys", in.K, rows, keys)
	if !ok || !ok2 || !ok3 {
		return
	}
	op.v, ok = b.floats("delta rule", "values", in.V, rows, values)
	op.a, ok2 = b.floats("delta rule", "decay", in.A, rows, a.ValueHeads)
	op.b, ok3 = b.floats("delta rule", "strength", in.B, rows, a.ValueHeads)
	if !ok || !ok2 || !ok3 {
		return
	}
	if op.aLog, ok = b.vector("delta rule", "logarithms of the decay", in.ALog, slotWeight, a.ValueHeads); !ok {
		return
	}
	if op.dtBias, ok = b.vector("delta rule", "bias of the decay", in.DTBias, slotBias, a.ValueHeads); !ok {
		return
	}
	if op.states, ok = b.states("delta rule", s, rows, a.ValueHeads*a.KeyDim*a.ValueDim); !ok || !b.reserve(2*a.KeyDim+a.ValueDim) {
		return
	}
	b.delta = op
	b.run(&b.delta, len(s.Spans)*a.ValueHeads, 6*rows*values*a.KeyDim)
}

func (op *deltaRule) run(w *worker, unit int) {
	span, head := &op.states.spans[unit/op.args.ValueHeads], unit%op.args.ValueHeads
	size := op.args.KeyDim * op.args.ValueDim
	state := op.states.slot(span.To)[head*size:][:size]
	switch {
	case span.From < 0:
		clear(state)
	case span.From != span.To:
		copy(state, op.states.slot(span.From)[head*size:][:size])
	}
	for t := range span.Rows {
		op.token(state, span.First+t, head, w.scratch.v)
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[head*size:][:size], state)
		}
	}
}

// l2Epsilon keeps the length of a query or key from being zero.
const l2Epsilon = 1e-6

// token advances the state of a head by the token of row r.
func (op *deltaRule) token(state []float32, r, head int, scratch []float32) {
	keyDim, valueDim := op.args.KeyDim, op.args.ValueDim
	key := head / (op.args.ValueHeads / op.args.KeyHeads) * keyDim
	kq, change := scratch[:2*keyDim], scratch[2*keyDim:2*keyDim+valueDim]
	k, q := kq[:keyDim], kq[keyDim:]
	op.unit(q, row(op.q, r, key+keyDim)[key:], 1/math.Sqrt(float64(keyDim)))
	op.unit(k, row(op.k, r, key+keyDim)[key:], 1)
	decay := decayOf(row(op.a, r, head+1)[head], op.aLog[head], op.dtBias[head])
	strength := float32(activate(meta.ActSigmoid, float64(row(op.b, r, head+1)[head])))

	op.set.Vector.DeltaRead(change, state, k) // what the state has for the key
	v := row(op.v, r, (head+1)*valueDim)[head*valueDim:]
	for j := range change {
		change[j] = strength * (v[j] - float32(decay*change[j]))
	}
	op.set.Vector.DeltaStep(row(op.dst, r, (head+1)*valueDim)[head*valueDim:], state, kq, change, decay)
}

// unit sets dst to x divided by its length, times scale.
func (op *deltaRule) unit(dst, x []float32, scale float64) {
	by := float32(scale / math.Sqrt(float64(op.set.Vector.SumSquares(x, 0))+l2Epsilon))
	for i, v := range x {
		dst[i] = v * by
	}
}

// decayOf is exp(-exp(aLog)·softplus(a + bias)).
func decayOf(a, aLog, bias float32) float32 {
	return float32(math.Exp(-math.Exp(float64(aLog)) * softplus(float64(a)+float64(bias))))
}

// softplus is ln(1 + exp(x)).
func softplus(x float64) float64 {
	if x < 20 { // as torch's threshold
		return math.Log1p(math.Exp(x))
	}
	return x
}
