// Package kerneltest helps to test kernels. [Each] runs a test for all variants of this
// processor, and [Guarded] allocates memory beyond which a read faults. The package also makes
// operands, wraps the products of gemv, gemm and qgemm in functions of one signature, and
// benchmarks kernels against the memory's rate.
package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// RandomBlocks returns n random blocks of p, whose scales have all magnitudes, zeros and
// subnormals included.
func RandomBlocks(random *rand.Rand, p quant.Packing, n int) []byte {
	b := make([]byte, n*p.BlockBytes())
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	for i := 0; i < len(b); i += p.BlockBytes() {
		if b[i+1] &= 0xbb; random.IntN(4) == 0 { // finite
			b[i+1] &= 0x80
		}
	}
	return b
}

// BytesOf returns v as little-endian float32.
func BytesOf(v []float32) []byte {
	var b []byte
	for _, f := range v {
		u := math.Float32bits(f)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

// SameFloats fails the test unless got and want have the same bits.
func SameFloats(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, got[i], want[i])
		}
	}
}

// BytesOfWords returns v in little-endian order.
func BytesOfWords(v []uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// Random returns n random numbers of magnitude about 1.
func Random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// Store returns v stored as weights of format f, offset bytes after an aligned address, and v
// rounded to f.
func Store(f mat.Format, v []float32, offset int) (data []byte, held []float32) {
	data = make([]byte, offset+len(v)*f.Size())[offset:]
	switch f {
	case mat.BFloat16:
		mat.NarrowBFloat16(data, v)
	case mat.Float16:
		mat.NarrowFloat16(data, v)
	case mat.Float32:
		for i, x := range v {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
		}
	}
	held = make([]float32, len(v))
	mat.Widen(held, data, f)
	return data, held
}

// Each runs test once for each variant of this processor.
func Each(t *testing.T, test func(*testing.T, *kernels.Set)) {
	for _, set := range Variants() {
		t.Run(set.Name, func(t *testing.T) { test(t, &set) })
	}
}

// Near fails the test if got differs from want by more than the rounding of n additions allows.
func Near(t *testing.T, what string, got float32, want, size float64) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= 1e-6*(size+1)) {
		t.Fatalf("%s: %g, want %g", what, got, want)
	}
}

// ULPs returns the distance of got from want in units in the last place of want.
func ULPs(got float32, want float64) float64 {
	w := float32(want)
	unit := float64(math.Nextafter32(w, float32(math.Inf(1)))) - float64(w)
	return math.Abs(float64(got)-want) / unit
}

// Variants returns the kernels of all variants, best first.
func Variants() []kernels.Set {
	var all []kernels.Set
	for _, v := range isa.Available() {
		all = append(all, *kernels.For(v))
	}
	return all
}

// From returns the columns of m from col on.
func From(m mat.Floats, col int) mat.Floats { return mat.Floats{V: m.V[col:], Stride: m.Stride} }

// SameBits fails the test unless a token computed alone has the same bits as among others.
func SameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if math.Float32bits(v) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g alone, %g among others", what, i, v, want[i])
		}
	}
}

// EachRounding runs test once for each variant that rounds activations.
func EachRounding(t *testing.T, test func(*testing.T, *kernels.Set)) {
	Each(t, func(t *testing.T, set *kernels.Set) {
		if set.BF16 {
			test(t, set)
		}
	})
}

// Rounded returns x rounded to bfloat16.
func Rounded(x []float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = mat.FromBFloat16(mat.ToBFloat16(v))
	}
	return out
}

// Same fails the test unless got and want have the same bits. All NaNs are equal.
func Same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if w := want[i]; math.Float32bits(v) != math.Float32bits(w) && (v == v || w == w) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, v, w)
		}
	}
}

var BlockPackings = map[string]quant.Packing{"q8": quant.Q8, "q4": quant.Q4}
