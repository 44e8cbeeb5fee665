package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/tensor"
)

// TestAlternating compares the operations of alternating updates with their definitions, on rows that are parts of
// wider ones, and checks that they allocate nothing.
func TestAlternating(t *testing.T) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	random := rand.New(rand.NewPCG(3, 4))
	const rows, n, hidden, active = 5, 3, 10, 1
	matrix := func(cols int) tensor.Tensor { return inWider(random, rows, cols) }
	predicted, corrected, magnified, cut := matrix(n*hidden), matrix(n*hidden), matrix(hidden), matrix(hidden)
	y, square, few := matrix(hidden), matrix(n*n), matrix(n)
	for i := range magnified.Row(2) {
		magnified.Row(2)[i] *= 1e-4 // below the least magnitude
	}
	p, c, m, s := copied(predicted), copied(corrected), copied(magnified), copied(cut)
	ops := func() {
		b.PredictStreams(predicted, square)
		b.CorrectStreams(corrected, y, few, active)
		b.Magnify(magnified, y)
		b.CutOff(cut, 0.3)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	ops()
	for r := range rows {
		operand, size := copied(y)[r], math.Sqrt(max(squares(m[r], 0), 1e-5))
		mean := 0.0
		for _, v := range s[r] {
			mean += v / hidden
		}
		edge := mean + 0.3*math.Sqrt(squares(s[r], mean))
		for i := range hidden {
			for k := range n {
				want := p[r][k*hidden+i]
				for j := range n {
					want += float64(square.Row(r)[k*n+j]) * p[r][j*hidden+i]
				}
				near(t, "prediction", predicted.Row(r)[k*hidden+i], want)
				want = c[r][k*hidden+i] + (1+float64(few.Row(r)[k]))*(operand[i]-c[r][active*hidden+i])
				near(t, "correction", corrected.Row(r)[k*hidden+i], want)
			}
			near(t, "magnitude", magnified.Row(r)[i], m[r][i]*math.Sqrt(squares(operand, 0))/size)
			near(t, "cut", cut.Row(r)[i], max(0, s[r][i]-edge))
		}
	}
	if n := testing.AllocsPerRun(20, ops); n > 0 {
		t.Errorf("operations allocate %v times", n)
	}
	refusesStreams(t, b, corrected, y, few)
}

// inWider returns a random matrix that is a part of a wider one.
func inWider(random *rand.Rand, rows, cols int) tensor.Tensor {
	v := make([]float32, rows*(cols+2))
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return tensor.Floats(v, rows, cols+2).Columns(1, cols+1)
}

func copied(x tensor.Tensor) (out [][]float64) {
	for r := range x.Rows() {
		var row []float64
		for _, v := range x.Row(r) {
			row = append(row, float64(v))
		}
		out = append(out, row)
	}
	return out
}

// refusesStreams checks errors of streams that do not fit their weights.
func refusesStreams(t *testing.T, b *Backend, streams, y, weights tensor.Tensor) {
	t.Helper()
	b.PredictStreams(streams, weights)
	if err := b.Sync(); err == nil {
		t.Error("3 weights for streams are no error")
	}
	b.CorrectStreams(streams, y, weights, weights.Cols())
	if err := b.Sync(); err == nil {
		t.Error("a stream behind the last is no error")
	}
}

func near(t *testing.T, what string, got float32, want float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= 1e-5*max(1, math.Abs(want))) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// squares is the mean of the squares of x less mean.
func squares(x []float64, mean float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	return sum / float64(len(x))
}
