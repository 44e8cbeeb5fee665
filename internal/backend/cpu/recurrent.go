package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Recurrent = (*Backend)(nil)

// states holds the checked states of an operation.
type states struct {
	memory mat.Floats // [slots, elements]
	first  int
	size   int // elements of a slot that the operation uses
	spans  []backend.StateSpan
}

// slot returns the operation's part of a slot.
func (s *states) slot(i int32) []float32 { return row(s.memory, int(i), s.first+s.size)[s.first:] }

// begin returns n elements, from element first on, of the state before the first token of a span.
// They are in the slot of the state after the last token, or in spare if that state is not
// stored.
func (s *states) begin(span *backend.StateSpan, first, n int, spare []float32) []float32 {
	var state []float32
	if span.To < 0 {
		state = spare[:n]
	} else {
		state = s.slot(span.To)[first:][:n]
	}
	switch {
	case span.From < 0:
		clear(state)
	case span.From != span.To:
		copy(state, s.slot(span.From)[first:][:n])
	}
	return state
}

// spare returns the number of elements that begin may need for a state of n, which is 0 if each
// span stores its own.
func (s *states) spare(n int) int {
	for i := range s.spans {
		if s.spans[i].To < 0 {
			return n
		}
	}
	return 0
}

// states checks s for an operation on rows that uses size elements of each slot.
func (b *Backend) states(op string, s backend.States, rows, size int) (states, bool) {
	var memory mat.Floats
	slots := int32(0)
	if !s.Memory.IsZero() {
		var ok bool
		if memory, ok = b.floats(op, "state", s.Memory, s.Memory.Rows(), s.Memory.Cols()); !ok {
			return states{}, false
		}
		if s.First < 0 || s.First+size > s.Memory.Cols() {
			b.fail("%s: states of %d elements, want %d from %d on", op, s.Memory.Cols(), size, s.First)
			return states{}, false
		}
		slots = int32(s.Memory.Rows())
	}
	next := 0
	for _, span := range s.Spans {
		if span.First != next || span.Rows < 0 || span.From < -1 || span.From >= slots || span.To < -1 || span.To >= slots ||
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
	step         int // from one token of the kernel to the next
	act          meta.Activation
}

// kept returns the number of tokens in the state.
func (op *shortConv) kept() int { return (op.kernel - 1) * op.step }

// convChannels is the number of channels of a unit.
const convChannels = 256

// ShortConv distributes sequences and channels over the threads.
func (b *Backend) ShortConv(dst, x, weight, bias tensor.Tensor, s backend.States, act meta.Activation) {
	b.convolve(dst, x, weight, bias, s, 1, act)
}

func (b *Backend) convolve(dst, x, weight, bias tensor.Tensor, s backend.States, step int, act meta.Activation) {
	if b.failed.Load() {
		return
	}
	rows, channels := x.Rows(), x.Cols()
	op, ok := b.shortConv(x, weight, bias, s, step, act)
	if !ok {
		return
	}
	if op.dst, ok = b.floats("convolution", "result", dst, rows, channels); !ok || !b.reserve(op.kernel*convChannels) {
		return
	}
	b.conv = op
	b.run(&b.conv, len(s.Spans)*ceil(channels, convChannels), 4*rows*channels*op.kernel)
}

// shortConv checks the operands of a convolution.
func (b *Backend) shortConv(x, weight, bias tensor.Tensor, s backend.States, step int, act meta.Activation) (op shortConv, ok bool) {
	rows, channels := x.Rows(), x.Cols()
	op = shortConv{set: b.set, channels: channels, kernel: weight.Elements() / max(channels, 1), step: step, act: act}
	if op.x, ok = b.floats("convolution", "operand", x, rows, channels); !ok {
		return op, false
	}
	if op.weight, ok = b.vector("convolution", "weight", weight, slotWeight, channels*op.kernel); !ok {
		return op, false
	}
	if op.bias, ok = b.vector("convolution", "bias", bias, slotBias, channels); !ok {
		return op, false
	}
	if act != meta.ActNone && act != meta.ActSiLU || op.kernel < 1 || step < 1 {
		b.fail("convolution: activation %d after a kernel of %d tokens, %d apart", act, op.kernel, step)
		return op, false
	}
	op.states, ok = b.states("convolution", s, rows, op.kept()*channels)
	return op, ok
}

func (op *shortConv) run(w *worker, unit int) {
	parts := ceil(op.channels, convChannels)
	span := &op.states.spans[unit/parts]
	begin := unit % parts * convChannels
	end := min(begin+convChannels, op.channels)
	taps := w.scratch.v[:op.kernel*(end-begin)]
	op.taps(taps, begin, end)
	for t := range span.Rows {
		dst := row(op.dst, span.First+t, op.channels)[begin:end]
		op.token(dst, span, t, begin, end, taps)
		if op.act == meta.ActSiLU {
			op.set.Vector.Gate(dst, dst, nil, 1, 0)
		}
	}
	if span.SaveAfter > 0 {
		op.keep(span, span.SaveAfter, span.Save, begin, end)
	}
	if span.To >= 0 {
		op.keep(span, span.Rows, span.To, begin, end)
	}
}

// taps sets dst to the weights of channels [begin, end), token by token.
func (op *shortConv) taps(dst []float32, begin, end int) {
	n := end - begin
	for c := range n {
		for j, x := range op.weight[(begin+c)*op.kernel:][:op.kernel] {
			dst[j*n+c] = x
		}
	}
}

// input returns channels [begin, end) of token t of a span. If t is before the span's first
// token, they are in the state. nil means zeros.
func (op *shortConv) input(span *backend.StateSpan, t, begin, end int) []float32 {
	switch {
	case t >= 0:
		return row(op.x, span.First+t, op.channels)[begin:end]
	case span.From < 0:
		return nil
	}
	at := (op.kept() + t) * op.channels
	return op.states.slot(span.From)[at+begin : at+end]
}

// token computes channels [begin, end) of token t, before the activation.
func (op *shortConv) token(dst []float32, span *backend.StateSpan, t, begin, end int, taps []float32) {
	if op.bias != nil {
		copy(dst, op.bias[begin:end])
	} else {
		clear(dst)
	}
	for j := range op.kernel {
		if in := op.input(span, t-(op.kernel-1-j)*op.step, begin, end); in != nil {
			op.set.Vector.MulAdd(dst, taps[j*len(dst):][:len(dst)], in)
		}
	}
}

// keep writes the last inputs of the first n tokens to a slot, which may be the one that is read.
func (op *shortConv) keep(span *backend.StateSpan, n int, slot int32, begin, end int) {
	to := op.states.slot(slot)
	for r := range op.kept() {
		dst := to[r*op.channels:][begin:end]
		if in := op.input(span, n-op.kept()+r, begin, end); in != nil {
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

// DeltaRule distributes sequences and value heads over the threads.
func (b *Backend) DeltaRule(dst tensor.Tensor, in backend.DeltaInputs, s backend.States, a backend.DeltaArgs) {
	if b.failed.Load() {
		return
	}
	op, rows, values := &b.delta, dst.Rows(), a.ValueHeads*a.ValueDim
	var ok bool
	if op.dst, ok = b.floats("delta rule", "result", dst, rows, values); !ok || !b.deltaRule(op, rows, in, s, a) {
		return
	}
	if !b.reserve(2*a.KeyDim + a.ValueDim + op.states.spare(a.KeyDim*a.ValueDim)) {
		return
	}
	b.run(op, len(s.Spans)*a.ValueHeads, 6*rows*values*a.KeyDim)
}

// deltaRule checks the operands of a delta rule with the given number of rows.
func (b *Backend) deltaRule(op *deltaRule, rows int, in backend.DeltaInputs, s backend.States, a backend.DeltaArgs) bool {
	if a.KeyHeads < 1 || a.ValueHeads%a.KeyHeads != 0 || a.KeyDim < 1 || a.ValueDim < 1 {
		b.fail("delta rule: invalid arguments: %+v", a)
		return false
	}
	op.set, op.args = b.set, a
	keys := a.KeyHeads * a.KeyDim
	if !b.allFloats("delta rule", rows, wanted{&op.q, "queries", in.Q, keys}, wanted{&op.k, "keys", in.K, keys},
		wanted{&op.v, "values", in.V, a.ValueHeads * a.ValueDim}, wanted{&op.a, "decay", in.A, a.Decays()}, wanted{&op.b, "strength", in.B, a.ValueHeads}) {
		return false
	}
	var ok bool
	if op.aLog, ok = b.vector("delta rule", "logarithms of the decay", in.ALog, slotWeight, a.ValueHeads); !ok {
		return false
	}
	if op.dtBias, ok = b.vector("delta rule", "bias of the decay", in.DTBias, slotBias, a.Decays()); !ok {
		return false
	}
	op.states, ok = b.states("delta rule", s, rows, a.ValueHeads*a.KeyDim*a.ValueDim)
	return ok
}

func (op *deltaRule) run(w *worker, unit int) {
	span, head := &op.states.spans[unit/op.args.ValueHeads], unit%op.args.ValueHeads
	size := op.args.KeyDim * op.args.ValueDim
	kq, change := w.scratch.v[:2*op.args.KeyDim], w.scratch.v[2*op.args.KeyDim:][:op.args.ValueDim]
	state := op.states.begin(span, head*size, size, w.scratch.v[len(kq)+len(change):])
	for t := range span.Rows {
		r := span.First + t
		op.token(row(op.dst, r, (head+1)*op.args.ValueDim)[head*op.args.ValueDim:], state, r, head, kq, change)
		if t+1 == span.SaveAfter {
			copy(op.states.slot(span.Save)[head*size:][:size], state)
		}
	}
}

// l2Epsilon is added so that the length of a query or key is never zero.
const l2Epsilon = 1e-6

// token updates the state of a head with the token of row r and sets dst to the token's result.
// It leaves the key and the query in kq, and in change what it adds to the state for the key.
func (op *deltaRule) token(dst, state []float32, r, head int, kq, change []float32) {
	op.units(kq, r, head)
	decay, strength := op.gates(r, head)
	if op.args.ByChannel {
		op.decayRows(state, r, head)
	}
	op.set.Vector.DeltaRead(change, state, kq[:op.args.KeyDim]) // the value that the state holds for the key
	op.change(change, change, r, head, decay, strength)
	op.set.Vector.DeltaStep(dst, state, kq, change, decay)
}

// units sets kq to the key and the query of row r, divided by their lengths, and returns their
// factors.
func (op *deltaRule) units(kq []float32, r, head int) (byKey, byQuery float32) {
	dim := op.args.KeyDim
	key := op.args.KeyHead(head) * dim
	byQuery = op.unit(kq[dim:], row(op.q, r, key+dim)[key:], 1/math.Sqrt(float64(dim)))
	byKey = op.unit(kq[:dim], row(op.k, r, key+dim)[key:], 1)
	return byKey, byQuery
}

// decayRows multiplies each row of a head's state by its own decay of row r.
func (op *deltaRule) decayRows(state []float32, r, head int) {
	dim, width := op.args.KeyDim, op.args.ValueDim
	for i := range dim {
		op.set.Vector.ScaleShift(state[i*width:][:width], op.decay(r, head, head*dim+i), 0)
	}
}

// decay returns decay i of a head at row r.
func (op *deltaRule) decay(r, head, i int) float32 {
	rate, at := rateOf(op.aLog[head], op.args.Rates), float64(row(op.a, r, i+1)[i])+float64(op.dtBias[i])
	if floor := op.args.Floor; floor != 0 {
		return float32(vector.AccurateExp(float64(floor) * vector.AccurateSigmoid(rate*at)))
	}
	return float32(vector.AccurateExp(-rate * softplus(at)))
}

// gates returns the decay of a head's state at row r, and the strength of its change. With
// ByChannel, decayRows has already multiplied the state.
func (op *deltaRule) gates(r, head int) (decay, strength float32) {
	if decay = 1; !op.args.ByChannel {
		decay = op.decay(r, head, head)
	}
	strength = float32(vector.AccurateSigmoid(float64(row(op.b, r, head+1)[head])))
	if most := op.args.Strength; most != 0 {
		strength *= most
	}
	return decay, strength
}

// change sets dst to what row r adds to the state for its key. seen is the value that the state
// holds for the key.
func (op *deltaRule) change(dst, seen []float32, r, head int, decay, strength float32) {
	v := row(op.v, r, (head+1)*len(dst))[head*len(dst):]
	for j, s := range seen {
		dst[j] = strength * (v[j] - float32(decay*s))
	}
}

// unit sets dst to x divided by its length, times scale. It returns the factor of x.
func (op *deltaRule) unit(dst, x []float32, scale float64) float32 {
	by := float32(scale / math.Sqrt(float64(op.set.Vector.SumSquares(x, 0))+l2Epsilon))
	for i, v := range x {
		dst[i] = v * by
	}
	return by
}

// rateOf returns exp(aLog), or -aLog if negated is set.
func rateOf(aLog float32, negated bool) float64 {
	if negated {
		return -float64(aLog)
	}
	return vector.AccurateExp(float64(aLog))
}

// rateSlope returns the derivative of the rate by aLog.
func rateSlope(rate float64, negated bool) float64 {
	if negated {
		return -1
	}
	return rate
}

// softplus returns ln(1 + exp(x)).
func softplus(x float64) float64 {
	if x < 20 { // torch's threshold
		return vector.AccurateLog1p(vector.AccurateExp(x))
	}
	return x
}
