package dispatch

import (
	"math"
	"sync/atomic"
	"time"
)

// A recorder measures a model while it runs. Only the goroutine that uses the model records
// passes; any goroutine may read the gauges. It does not allocate.
type recorder struct {
	first   time.Time // when the first pass began
	start   time.Time // when the current pass began
	read    int64     // bytes of the disk tier when the last pass ended
	decoded bool      // whether the last pass decoded; during a pass, that of the pass before
	follows bool      // whether the current pass follows one that decoded

	seconds, bytes average
	wait           *waitTrial // nil if passes do not wait for experts

	firstToken, pass, disk gauge
}

// An average follows a quantity. It is the mean of the first values, then an exponential moving
// average.
type average struct {
	n     int
	value float64
}

// memoryOf is the number of values that an average effectively covers.
const memoryOf = 16

func (a *average) add(v float64) float64 {
	a.n = min(a.n+1, memoryOf)
	a.value += (v - a.value) / float64(a.n)
	return a.value
}

// A gauge is a number that one goroutine sets and others read. It stores the complement of the
// number's bits, so that its zero value means unknown.
type gauge struct{ bits atomic.Uint64 }

func (g *gauge) set(v float64) { g.bits.Store(^math.Float64bits(v)) }

func (g *gauge) known() bool { return !math.IsNaN(math.Float64frombits(^g.bits.Load())) }

// get returns nil if the number is unknown.
func (g *gauge) get() *float64 {
	v := math.Float64frombits(^g.bits.Load())
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

// begin records that a pass begins.
func (r *recorder) begin() {
	r.start = time.Now()
	r.follows, r.decoded = r.decoded, false
	if r.first.IsZero() {
		r.first = r.start
	}
}

// end records that the pass has computed b, with or without logits. read counts the bytes that
// were read from the disk tier so far. Bytes that are read ahead count for the pass that uses
// them only if it and the pass before it decode.
func (r *recorder) end(b *Batch, logits bool, read int64) {
	now, before := time.Now(), r.follows
	if logits && !r.firstToken.known() {
		r.firstToken.set(now.Sub(r.first).Seconds())
	}
	decode := decodes(b)
	if decode {
		r.pass.set(r.seconds.add(now.Sub(r.start).Seconds()))
		if r.wait != nil {
			r.wait.passed(now.Sub(r.start))
		}
		if before {
			r.disk.set(r.bytes.add(float64(read - r.read)))
		}
	}
	r.decoded, r.read = decode, read
}

// decodes reports whether every sequence of b generates. The sequences already hold b's tokens.
func decodes(b *Batch) bool {
	for i := range b.Rows {
		row := &b.Rows[i]
		if len(row.Tokens) != 1 || row.Logits == LogitsNone || row.Sequence.Len() < 2 {
			return false
		}
	}
	return true
}

// Measured returns the measured speed of the model, averaged over the last passes. LoadSeconds is
// set when Warm is done. It is safe for concurrent use.
func (m *Model) Measured() ModelSpeed {
	out := ModelSpeed{FirstTokenSeconds: m.measured.firstToken.get(), DiskBytesPerToken: m.measured.disk.get()}
	if seconds := m.measured.pass.get(); seconds != nil && *seconds > 0 {
		out.TokensPerSecond = known(1 / *seconds)
	}
	if p := m.weights.Warming(); p.Done {
		out.LoadSeconds = known(p.Seconds)
	}
	return out
}

// Expect sets the predicted speed of the model. [Model.Status] returns it next to the measured
// speed. It is safe for concurrent use.
func (m *Model) Expect(s ModelSpeed) { m.expected.Store(&s) }

// speeds returns the predicted and the measured speed.
func (m *Model) speeds() (predicted, measured ModelSpeed) {
	if s := m.expected.Load(); s != nil {
		predicted = *s
	}
	return predicted, m.Measured()
}

func known(v float64) *float64 { return &v }
