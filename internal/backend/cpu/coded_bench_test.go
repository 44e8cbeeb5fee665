package cpu

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// codedCase is a product of few tokens and a coded weight of rows × cols.
func codedCase(t testing.TB, rows, cols, tokens int, rounded bool) (b *Backend, run func()) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	src := make([]byte, 2*rows*cols)
	for i := range rows * cols {
		binary.LittleEndian.PutUint16(src[2*i:], floats.ToBFloat16(float32(rng.NormFloat64()*0.05)))
	}
	coder := NewCoder(2)
	p := backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{rows, cols}}}}
	w, size, err := coder.Converted(p)
	if err != nil {
		t.Fatal(err)
	}
	w.Data = make([]byte, size)
	if err := coder.Convert(t.Context(), w.Data, src, &p); err != nil {
		t.Fatal(err)
	}
	x, y := tensor.Floats(normals(rng, tokens*cols), tokens, cols), tensor.Floats(make([]float32, tokens*rows), tokens, rows)
	return b, func() {
		b.single(backend.Product{Dst: y, X: x, W: w.Matrix, Rounded: rounded, Role: backend.Generated})
	}
}

// BenchmarkCoded is a product of a few tokens and a coded weight that caches hold in part.
func BenchmarkCoded(b *testing.B) {
	for _, shape := range [][2]int{{5632, 2048}, {2048, 5632}, {1024, 14336}} {
		for _, tokens := range []int{1, 2, 4, 8} {
			for _, rounded := range []bool{true, false} {
				b.Run(fmt.Sprintf("%dx%d/tokens=%d/rounded=%v", shape[0], shape[1], tokens, rounded), func(b *testing.B) {
					host, run := codedCase(b, shape[0], shape[1], tokens, rounded)
					for b.Loop() {
						run()
					}
					if err := host.Sync(); err != nil {
						b.Fatal(err)
					}
				})
			}
		}
	}
}
