package backendtest

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// env is a backend under test with helpers that end the test on an error.
type env struct {
	testing.TB
	backend.Backend
	random *rand.Rand
}

func newEnv(t testing.TB, b backend.Backend) *env {
	return &env{TB: t, Backend: b, random: rand.New(rand.NewPCG(1, 2))}
}

func (e *env) close() {
	e.sync()
	if err := e.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
}

func (e *env) sync() {
	e.Helper()
	if err := e.Sync(); err != nil {
		e.Fatalf("sync: %v", err)
	}
}

// values returns n random numbers of magnitude about 1.
func (e *env) values(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(e.random.NormFloat64())
	}
	return v
}

// format returns the kernels' format for a floating-point dtype.
func format(d meta.DType) mat.Format {
	return map[meta.DType]mat.Format{meta.BFloat16: mat.BFloat16, meta.Float16: mat.Float16, meta.Float32: mat.Float32}[d]
}

// encode stores v in dtype d.
func encode(d meta.DType, v []float32) []byte {
	out := make([]byte, d.Bytes(int64(len(v))))
	mat.Narrow(out, v, format(d))
	return out
}

// decode reads elements of dtype d.
func decode(d meta.DType, b []byte) []float32 {
	out := make([]float32, int64(len(b))*8/int64(d.Bits()))
	mat.Widen(out, b, format(d))
	return out
}

// rounded returns v rounded to dtype d.
func rounded(d meta.DType, v []float32) []float32 { return decode(d, encode(d, v)) }

// place copies v to the device as dtype d, offset bytes behind an aligned address.
func (e *env) place(d meta.DType, v []float32, offset int, dims ...int) tensor.Tensor {
	e.Helper()
	data := append(make([]byte, offset), encode(d, v)...)
	if d == meta.Int8 { // arbitrary bytes
		data = bytes.Repeat([]byte{0x7e}, int(meta.Elements(dims)))
	}
	host, err := tensor.Of(data, meta.Uint8, len(data))
	if err != nil {
		e.Fatal(err)
	}
	t, err := e.New(meta.Uint8, len(data))
	if err != nil {
		e.Fatal(err)
	}
	if err := e.Copy(t, host); err != nil {
		e.Fatal(err)
	}
	t = t.Slice(offset, len(data))
	t.DType, t.Rank, t.Dims = d, len(dims), [tensor.MaxRank]int{}
	copy(t.Dims[:], dims)
	return t
}

func (e *env) floats(v []float32, dims ...int) tensor.Tensor {
	e.Helper()
	return e.place(meta.Float32, v, 0, dims...)
}

// strided copies a matrix to the device with pad elements of NaN between its rows.
func (e *env) strided(v []float32, rows, cols, pad int) tensor.Tensor {
	e.Helper()
	wide := make([]float32, rows*(cols+pad))
	for i := range wide {
		wide[i] = float32(math.NaN())
	}
	for r := range rows {
		copy(wide[r*(cols+pad):], v[r*cols:(r+1)*cols])
	}
	return e.floats(wide, rows, cols+pad).Columns(0, cols)
}

// empty returns a float32 matrix to write to.
func (e *env) empty(rows, cols int) tensor.Tensor {
	e.Helper()
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(math.NaN())
	}
	return e.floats(v, rows, cols)
}

// read waits for the device and returns the elements of a float32 tensor.
func (e *env) read(t tensor.Tensor) []float32 {
	e.Helper()
	e.sync()
	host := tensor.Floats(make([]float32, t.Elements()), t.Shape()...)
	if err := e.Copy(host, t); err != nil {
		e.Fatal(err)
	}
	return host.F32()
}

// close64 compares with a float64 reference. The error is at most tolerance times the larger of
// scale and the value's magnitude.
func close64(t testing.TB, what string, got []float32, want []float64, tolerance, scale float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := float64(got[i])
		if math.IsNaN(w) && math.IsNaN(g) || g == w {
			continue
		}
		if d := math.Abs(g - w); !(d <= tolerance*math.Max(scale, math.Abs(w))) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, g, w)
		}
	}
}

// sameBits compares bit by bit. All NaNs are equal.
func sameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && !(got[i] != got[i] && w != w) {
			t.Fatalf("%s: element %d is %g, want the bits of %g", what, i, got[i], w)
		}
	}
}

func name(parts ...any) string { return fmt.Sprintln(parts...) }
