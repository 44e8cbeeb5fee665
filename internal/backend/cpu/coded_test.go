package cpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// bothWeights is a random bfloat16 matrix, as it is and coded by coder.
func bothWeights(t *testing.T, coder *Coder, rows, cols int) (plain, code backend.Matrix) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	src := make([]byte, 2*rows*cols)
	for i := range rows * cols {
		v := floats.ToBFloat16(float32(rng.NormFloat64() * 0.05))
		if rng.IntN(1000) == 0 {
			v &= 0x80ff // among the smallest numbers
		}
		binary.LittleEndian.PutUint16(src[2*i:], v)
	}
	p := backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{rows, cols}}}}
	out, size, err := coder.Converted(p)
	if err != nil {
		t.Fatal(err)
	}
	out.Data = make([]byte, size)
	if err := coder.Convert(t.Context(), out.Data, src, &p); err != nil {
		t.Fatal(err)
	}
	p.Data = src
	return p.Matrix, out.Matrix
}

// TestCodedWeightsHaveThePlainBits multiplies plain and coded weights by the same tokens: every bit is the
// same in every variant, role and precision, for any number of tokens and any view.
func TestCodedWeightsHaveThePlainBits(t *testing.T) {
	for _, variant := range kernels.Names() {
		b, err := New(Options{Threads: 3, Variant: variant})
		if err != nil {
			t.Fatal(err)
		}
		for _, shape := range [][2]int{{1, 256}, {37, 256}, {200, 384}, {64, 1000}, {96, 2048}} {
			plain, code := bothWeights(t, NewCoder(2), shape[0], shape[1])
			for v, view := range codedViews(shape[0]) {
				for _, tokens := range []int{1, 2, 3, 5, 8, 17, 40, 130} {
					for _, precise := range []bool{false, true} {
						for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
							where := fmt.Sprintf("%s, %v, view %d, %d tokens, precise %v, role %d", variant, shape, v, tokens, precise, role)
							want, got := productOf(t, b, view(plain), tokens, !precise, role), productOf(t, b, view(code), tokens, !precise, role)
							if !bytes.Equal(want, got) {
								t.Fatalf("%s: coded weights give other bits", where)
							}
						}
					}
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongPromptsOfCodedWeightsHaveThePlainBits is that for more tokens than weights are read in
// place for, so that rows are decoded into packs where there is such a kernel.
func TestLongPromptsOfCodedWeightsHaveThePlainBits(t *testing.T) {
	for _, variant := range kernels.Names() {
		b, err := New(Options{Threads: 3, Variant: variant})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ rows, cols, tokens int }{{75, 640, 450}, {300, 2048, 280}, {40, 700, 450}} {
			plain, code := bothWeights(t, NewCoder(2), c.rows, c.cols)
			for v, view := range codedViews(c.rows) {
				want, got := productOf(t, b, view(plain), c.tokens, true, backend.Prompt), productOf(t, b, view(code), c.tokens, true, backend.Prompt)
				if !bytes.Equal(want, got) {
					t.Errorf("%s, %v, view %d: coded weights give other bits", variant, c, v)
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// codedViews returns views of a weight of so many rows: all of them, and some if there are enough.
func codedViews(rows int) []func(m backend.Matrix) backend.Matrix {
	views := []func(m backend.Matrix) backend.Matrix{func(m backend.Matrix) backend.Matrix { return m }}
	if rows > 30 {
		views = append(views, func(m backend.Matrix) backend.Matrix { return m.CutRows(5, 30) },
			func(m backend.Matrix) backend.Matrix {
				m = m.CutRows(3, 26)
				m.RowStep = 2
				return m
			})
	}
	return views
}

// productOf is the bytes of the product of a weight with so many tokens and a bias.
func productOf(t *testing.T, b *Backend, w backend.Matrix, tokens int, round bool, role backend.Role) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, uint64(tokens)))
	in, bias := make([]float32, tokens*w.InCols()), make([]float32, w.OutRows())
	for i := range in {
		in[i] = float32(rng.NormFloat64())
	}
	for i := range bias {
		bias[i] = float32(rng.NormFloat64())
	}
	out := make([]float32, tokens*w.OutRows())
	y := tensor.Floats(out, tokens, w.OutRows())
	b.single(backend.Product{Dst: y, X: tensor.Floats(in, tokens, w.InCols()), W: w, Bias: tensor.Floats(bias, len(bias)), Rounded: round, Role: role})
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	return y.Data
}

// TestCodedSizesAgree: the plan counts the sizes that the coder writes.
func TestCodedSizesAgree(t *testing.T) {
	for cols := 1; cols < 700; cols++ {
		if got, want := meta.CodedRowBytes(cols), int64(coded.RowBytes(cols)); got != want {
			t.Fatalf("a row of %d columns: the plan counts %d bytes, the coder makes %d", cols, got, want)
		}
	}
}

// TestCodingInPartsOfRows: neither the number of threads nor a division at multiples of RowGroup changes a
// coded byte.
func TestCodingInPartsOfRows(t *testing.T) {
	const rows, cols = 53, 256
	plain, code := bothWeights(t, NewCoder(1), rows, cols)
	three, each := NewCoder(3), coded.RowBytes(cols)
	got := make([]byte, len(code.Data))
	for first := 0; first < rows; first += 2 * three.RowGroup() {
		p := backend.Part{Matrix: plain}
		p.Dims[0] = min(2*three.RowGroup(), rows-first)
		if err := three.Convert(t.Context(), got[first*each:][:p.Dims[0]*each], plain.Data[2*first*cols:][:2*p.Dims[0]*cols], &p); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, code.Data) {
		t.Error("parts of rows are coded to other bytes than the whole matrix")
	}
}

func TestRandomBitsAreIncompressible(t *testing.T) {
	rng, c := rand.New(rand.NewPCG(9, 9)), NewCoder(2)
	p := backend.Part{Matrix: backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{64, 512}}}}
	src := make([]byte, 2*64*512)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	_, size, _ := c.Converted(p)
	if err := c.Convert(t.Context(), make([]byte, size), src, &p); !errors.Is(err, backend.ErrIncompressible) {
		t.Errorf("random bits: got %v, want ErrIncompressible", err)
	}
}

// TestCodedWeightsAreForProductsOnly: other operations reject them instead of reading memory that is not there.
func TestCodedWeightsAreForProductsOnly(t *testing.T) {
	_, code := bothWeights(t, NewCoder(1), 32, 256)
	for name, use := range map[string]func(b *Backend, y tensor.Tensor){
		"lookups": func(b *Backend, y tensor.Tensor) {
			b.Embed(tensor.Floats(make([]float32, 256), 1, 256), code, []int32{1}, 1)
		},
		"training": func(b *Backend, y tensor.Tensor) {
			b.Product(y, tensor.Floats(make([]float32, 256), 1, 256), code, tensor.Tensor{}, true)
		},
		"transposed": func(b *Backend, y tensor.Tensor) {
			m := code
			m.Transposed = true
			b.single(backend.Product{Dst: tensor.Floats(make([]float32, 256), 1, 256), X: y, W: m})
		},
		"too short": func(b *Backend, y tensor.Tensor) {
			m := code
			m.Data = m.Data[1:]
			b.single(backend.Product{Dst: y, X: tensor.Floats(make([]float32, 256), 1, 256), W: m})
		},
	} {
		b, err := New(Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		use(b, tensor.Floats(make([]float32, 32), 1, 32))
		if err := b.Sync(); err == nil {
			t.Errorf("%s: got no error", name)
		}
		_ = b.Close() // its error is the one above
	}
}
