package record_test

import (
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/backend/record"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// frozen has no trainable weight.
type frozen struct{}

func (frozen) Gradient(tensor.Tensor) (tensor.Tensor, bool) { return tensor.Tensor{}, false }
func (frozen) Trains(tensor.Tensor) bool                    { return false }

func open(t testing.TB) *record.Recorder {
	t.Helper()
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	return record.New(b, frozen{})
}

func closing(t *testing.T, r *record.Recorder) {
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

func matrix(t *testing.T, r *record.Recorder, v ...float32) tensor.Tensor {
	t.Helper()
	m, err := r.New(meta.Float32, 1, len(v))
	if err != nil {
		t.Fatal(err)
	}
	copy(m.F32(), v)
	return m
}

// TestOverwrittenOperandsAreKept: tanh in place, twice, with marks between, in memory that
// is used again.
func TestOverwrittenOperandsAreKept(t *testing.T) {
	r := open(t)
	closing(t, r)
	x := matrix(t, r, 0.5, -1)
	want := matrix(t, r, 0, 0)
	r.Record()
	for range 3 {
		r.Mark()
		r.Gate(x, x, tensor.Tensor{}, meta.ActTanh, 0)
		y := r.Take(1, 2)
		r.Gather(y, x, []int32{0})
		r.Add(x, y, 1) // x = 2·tanh(x)
	}
	r.Pause()
	copy(r.Gradient(x).F32(), []float32{1, 1})
	r.Reverse(backend.Mark{})
	for i, v := range []float32{0.5, -1} {
		slope := float32(1)
		for range 3 {
			r.Gate(want, matrix(t, r, v, v), tensor.Tensor{}, meta.ActTanh, 0)
			u := want.F32()[0]
			slope, v = slope*2*(1-u*u), 2*u
		}
		if d := r.Gradient(x).F32()[i] - slope; d > 1e-5 || d < -1e-5 {
			t.Errorf("gradient %d is %g, want %g", i, r.Gradient(x).F32()[i], slope)
		}
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryOfARecordIsReused: the memory of one record serves the next, and shadows are
// zeros again.
func TestMemoryOfARecordIsReused(t *testing.T) {
	r := open(t)
	closing(t, r)
	x := matrix(t, r, 1, 2, 3)
	var first []*byte
	for pass := range 3 {
		r.Record()
		mark := r.Mark()
		var at []*byte
		for _, rows := range []int{1, 1 << 19, 5} { // one is larger than a chunk
			y := r.Take(rows, 3)
			at = append(at, &y.Data[0])
			r.Gather(y, x, make([]int32, rows))
			r.Gradient(y).Row(rows - 1)[0] = 1
		}
		r.Pause()
		r.Reverse(mark)
		if first == nil {
			first = at
		}
		if !slices.Equal(at, first) {
			t.Errorf("pass %d took other memory", pass)
		}
		if g := r.Gradient(x).F32(); !slices.Equal(g, []float32{float32(3 * (pass + 1)), 0, 0}) {
			t.Errorf("pass %d: gradient %v", pass, g)
		}
	}
	r.Clear()
	if g := r.Gradient(x).F32(); !slices.Equal(g, make([]float32, 3)) {
		t.Errorf("cleared: %v", g)
	}
}

// TestWeightsOnTheHost: the gradients of weights that were permuted on the host, and copied
// there, find their way.
func TestWeightsOnTheHost(t *testing.T) {
	r := open(t)
	closing(t, r)
	x, sum := matrix(t, r, 2, 3, 5), matrix(t, r, 0)
	r.Record()
	host, turned := make([]float32, 3), make([]float32, 3)
	if err := r.Copy(tensor.Floats(host, 1, 3), x); err != nil {
		t.Fatal(err)
	}
	places := []int32{2, 0, 1}
	for i, p := range places {
		turned[i] = host[p]
	}
	r.Derive(turned, host, places)
	values := matrix(t, r, 10, 20, 30)
	values.Dims = [tensor.MaxRank]int{3, 1}
	r.ScatterAdd(sum, values, []int32{0, 0, 0}, turned)
	r.Pause()
	r.Gradient(sum).F32()[0] = 1
	r.Reverse(backend.Mark{})
	if g := r.Gradient(x).F32(); !slices.Equal(g, []float32{20, 30, 10}) {
		t.Errorf("gradient %v", g)
	}
	if g := r.Gradient(values).F32(); !slices.Equal(g, []float32{5, 2, 3}) {
		t.Errorf("gradient of the rows %v", g)
	}
}

// TestPausedOperationsOverwroteRecordedValues: the reverse of an earlier operation read values that a paused one wrote.
func TestPausedOperationsOverwroteRecordedValues(t *testing.T) {
	r := open(t)
	closing(t, r)
	x, factors, y := matrix(t, r, 1, 2, 3), matrix(t, r, 5, 7, 9), matrix(t, r, 0, 0, 0)
	r.Record()
	r.Gate(y, x, factors, meta.ActNone, 0)
	r.Pause()
	r.Scale(factors, 100, 0)
	copy(r.Gradient(y).F32(), []float32{1, 1, 2})
	r.Reverse(backend.Mark{})
	if g := r.Gradient(x).F32(); !slices.Equal(g, []float32{5, 7, 18}) {
		t.Errorf("gradient %v", g)
	}
}

// TestWeightsScaledOnTheHost: weights that were multiplied by elements of a vector have its gradient, and the vector
// theirs, added up where it is used twice.
func TestWeightsScaledOnTheHost(t *testing.T) {
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	scales := []float32{2, 3, 7}
	vector := &learned{tensor.Floats(slices.Clone(scales), 3), tensor.Floats([]float32{1, 0, 0}, 3)}
	r := record.New(b, vector)
	closing(t, r)
	x, sum := matrix(t, r, 0.5, 0.25, 0.125), matrix(t, r, 0)
	r.Record()
	weights, chosen := make([]float32, 3), []int32{0, 2, 0}
	if err := r.Copy(tensor.Floats(weights, 1, 3), x); err != nil {
		t.Fatal(err)
	}
	r.ScaleChosen(weights, chosen, scales, vector.weight)
	for i, c := range chosen {
		weights[i] *= scales[c]
	}
	values := matrix(t, r, 10, 20, 30)
	values.Dims = [tensor.MaxRank]int{3, 1}
	r.ScatterAdd(sum, values, []int32{0, 0, 0}, weights)
	r.Pause()
	r.Gradient(sum).F32()[0] = 1
	r.Reverse(backend.Mark{})
	if g := r.Gradient(x).F32(); !slices.Equal(g, []float32{20, 140, 60}) {
		t.Errorf("gradient %v of the weights", g)
	}
	if g := vector.gradient.F32(); !slices.Equal(g, []float32{1 + 10*0.5 + 30*0.125, 0, 20 * 0.25}) {
		t.Errorf("gradient %v of the scales", g)
	}
}

// TestMemoryGrowsWithTheLargest: records of ever larger results hold what the last one
// needs.
func TestMemoryGrowsWithTheLargest(t *testing.T) {
	var ledger hostmem.Ledger
	b, err := cpu.New(cpu.Options{Ledger: &ledger})
	if err != nil {
		t.Fatal(err)
	}
	r := record.New(b, frozen{})
	closing(t, r)
	const most = 3 << 20
	for n := 1 << 20; n <= most; n += 1 << 17 {
		r.Record()
		for range 3 {
			y := r.Take(n, 1)
			r.Gradient(y).F32()[n-1] = 0
		}
		r.Pause()
		r.Reverse(backend.Mark{})
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	if held := ledger.Total(); held > 2*3*4*most*5/4 {
		t.Errorf("%d MiB are held", held>>20)
	}
}

// TestCheapResultsAreComputedAgain: the record does not keep results of norms and gates whose memory was
// overwritten. The gradients are bitwise those of a record that keeps them.
func TestCheapResultsAreComputedAgain(t *testing.T) {
	r := open(t)
	closing(t, r)
	spec := meta.NormSpec{Dim: 4, Eps: 1e-6}
	w := matrix(t, r, 1, 2, 3, 4)
	w.Rank, w.Dims = 1, [tensor.MaxRank]int{4}
	var want []float32
	for _, again := range []bool{false, true} {
		x := matrix(t, r, 0.5, -1, 2, 3)
		y, z, sum := matrix(t, r, 0, 0, 0, 0), matrix(t, r, 0, 0, 0, 0), matrix(t, r, 0, 0, 0, 0)
		r.Record()
		begin := r.Mark()
		r.Norm(y, x, w, tensor.Tensor{}, spec)
		r.Gate(z, y, y, meta.ActSiLU, 0)
		r.Gate(sum, z, y, meta.ActSiLU, 0)
		if again { // the second is made again of the first, which is too
			before := r.Mark()
			r.Gather(y, w4(w), []int32{0})
			r.Gather(z, w4(w), []int32{0})
			if used := r.Mark(); used.Used != before.Used || used.Chunk != before.Chunk {
				t.Errorf("copies were made: %v, then %v", before, used)
			}
			copy(r.Gradient(y).F32(), []float32{0, 0, 0, 0})
		}
		r.Pause()
		copy(r.Gradient(sum).F32(), []float32{1, 2, 3, 4})
		r.Reverse(begin)
		got := slices.Clone(r.Gradient(x).F32())
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) || slices.Equal(got, make([]float32, 4)) {
			t.Errorf("made again %v: gradient %v, want %v", again, got, want)
		}
	}
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
}

// w4 is a vector as a row.
func w4(w tensor.Tensor) tensor.Tensor {
	w.Rank, w.Dims = 2, [tensor.MaxRank]int{1, w.Elements()}
	return w
}

// TestGradientsAreFoundByOwner: a view belongs to the memory that it is a view of, wherever that lies. By
// its address, a view of memory that was freed had the gradient of what came there next, and the host's
// numbers had that of memory they happened to be in.
func TestGradientsAreFoundByOwner(t *testing.T) {
	r := open(t)
	closing(t, r)
	kept := matrix(t, r, 1, 2, 3, 4)
	for _, part := range []tensor.Tensor{kept, kept.Slice(0, 1)} {
		g := r.Gradient(part)
		if g.IsZero() || g.Owner != 0 || g.Elements() != part.Elements() {
			t.Fatalf("the gradient of a view with owner %d is %v, want one of no owner and %d elements", part.Owner, g, part.Elements())
		}
	}
	if g := r.Gradient(tensor.Floats(kept.F32(), 1, 4)); !g.IsZero() {
		t.Error("numbers without an owner have a gradient, for their address")
	}
	old := matrix(t, r, make([]float32, 1000)...)
	r.Free(old)
	next := matrix(t, r, make([]float32, 1000)...)
	if old.Owner == next.Owner || r.Gradient(next).IsZero() {
		t.Errorf("owner %d of freed memory, %d of new memory", old.Owner, next.Owner)
	}
	if g := r.Gradient(old); !g.IsZero() {
		t.Error("memory that was freed has a gradient")
	}
}

// learned has one trainable weight.
type learned struct{ weight, gradient tensor.Tensor }

func (l *learned) Gradient(t tensor.Tensor) (tensor.Tensor, bool) { return l.gradient, l.Trains(t) }
func (l *learned) Trains(t tensor.Tensor) bool                    { return &t.Data[0] == &l.weight.Data[0] }

// learnedRope turns made-up numbers by angles that are proportional to exp(alpha) and takes a made-up gradient back. It returns
// the product of result and gradient, and the gradient of alpha, which adds to 5 and 7.
func learnedRope(t *testing.T, alpha [2]float64, interleaved, trains bool) (float64, []float32) {
	const rows, dim, pairs = 3, 5, 2
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	weight := tensor.Floats([]float32{float32(alpha[0]), float32(alpha[1])}, pairs)
	weights := &learned{weight, tensor.Floats([]float32{5, 7}, pairs)}
	if !trains {
		weights.weight = tensor.Floats(make([]float32, pairs), pairs)
	}
	r := record.New(b, weights)
	closing(t, r)
	x, err := r.New(meta.Float32, rows, 2*dim)
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.F32() {
		x.F32()[i] = float32(math.Sin(float64(3 * i)))
	}
	var tables [3][]float32
	for i := range rows {
		for _, a := range alpha {
			angle := float64(i+1) * math.Exp(a)
			sin, cos := math.Sincos(angle)
			for k, v := range []float64{cos, sin, angle} {
				tables[k] = append(tables[k], float32(v))
			}
		}
	}
	table := func(i int) tensor.Tensor { return tensor.Floats(tables[i], rows, pairs) }
	r.Record()
	r.RopeLearned(x, dim, table(0), table(1), table(2), interleaved, weight)
	r.Pause()
	sum, dy := 0.0, r.Gradient(x).F32()
	for i, v := range x.F32() {
		dy[i] = float32(math.Cos(float64(i)))
		sum += float64(v) * math.Cos(float64(i))
	}
	r.Reverse(backend.Mark{})
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	return sum, weights.gradient.F32()
}

// TestRopeWithLearnedFrequencies compares the gradient of what multiplies the frequencies with a difference quotient. A frozen
// vector has none.
func TestRopeWithLearnedFrequencies(t *testing.T) {
	for _, interleaved := range []bool{false, true} {
		at := [2]float64{0.25, -0.5}
		_, got := learnedRope(t, at, interleaved, true)
		for j, added := range []float64{5, 7} {
			const step = 1.0 / 256
			above, below := at, at
			above[j] += step
			below[j] -= step
			a, _ := learnedRope(t, above, interleaved, true)
			b, _ := learnedRope(t, below, interleaved, true)
			if want := added + (a-b)/(2*step); !(math.Abs(float64(got[j])-want) <= 1e-3) {
				t.Errorf("interleaved %v: gradient %d is %v, want %v", interleaved, j, got[j], want)
			}
		}
		if _, got := learnedRope(t, at, interleaved, false); got[0] != 5 || got[1] != 7 {
			t.Errorf("interleaved %v: a frozen vector has the gradient %v", interleaved, got)
		}
	}
}

// TestSumsWithALearnedScale: y = x + scale·part, where scale has a slope by a weight. The weight's gradient adds up over
// sums; a frozen weight has none.
func TestSumsWithALearnedScale(t *testing.T) {
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	weights := &learned{tensor.Floats([]float32{0.25}, 1), tensor.Floats([]float32{5}, 1)}
	r := record.New(b, weights)
	closing(t, r)
	frozen := tensor.Floats([]float32{0.5}, 1)
	x, part := matrix(t, r, 1, 2, 3), matrix(t, r, 1, -1, 0.5)
	r.Record()
	r.AddLearned(x, part, 2, backend.Learned{Weight: weights.weight, Slopes: []float32{3}})
	r.AddLearned(x, part, 4, backend.Learned{Weight: frozen, Slopes: []float32{7}})
	r.AddLearned(x, part, 8, backend.Learned{Weight: weights.weight, Slopes: []float32{1}}, backend.Learned{Weight: frozen, Slopes: []float32{2}})
	r.Pause()
	if got, want := x.F32(), []float32{15, -12, 10}; !slices.Equal(got, want) {
		t.Errorf("sums %v, want %v", got, want)
	}
	copy(r.Gradient(x).F32(), []float32{1, 2, 4})
	r.Reverse(backend.Mark{})
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Gradient(part).F32(), []float32{14, 28, 56}; !slices.Equal(got, want) {
		t.Errorf("gradient of the part %v, want %v", got, want)
	}
	if got := weights.gradient.F32()[0]; got != 5+(3+1)*(1-2+2) { // added to the existing values
		t.Errorf("gradient of the weight %v, want 9", got)
	}
}
