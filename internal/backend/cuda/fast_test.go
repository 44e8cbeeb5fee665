//go:build cuda

package cuda

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// fastBench is a backend with fast kernels, and random numbers that bfloat16 represents exactly.
type fastBench struct {
	*testing.T
	*Backend
	*rand.Rand
}

func newFastBench(t *testing.T) *fastBench {
	return &fastBench{t, openWith(t, kernels.Names()[0], true), rand.New(rand.NewPCG(1, 2))}
}

func (f *fastBench) numbers(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(math.Float32bits(float32(f.NormFloat64())) &^ 0xffff)
	}
	return v
}

// put copies numbers to the GPU.
func (f *fastBench) put(d meta.DType, v []float32, dims ...int) tensor.Tensor {
	f.Helper()
	t, err := f.New(d, dims...)
	if err != nil {
		f.Fatal(err)
	}
	host := t
	host.Address, host.Data = 0, make([]byte, t.Bytes())
	for i, x := range v {
		if d == meta.Float32 {
			binary.LittleEndian.PutUint32(host.Data[4*i:], math.Float32bits(x))
		} else {
			binary.LittleEndian.PutUint16(host.Data[2*i:], uint16(math.Float32bits(x)>>16))
		}
	}
	if err := f.Copy(t, host); err != nil {
		f.Fatal(err)
	}
	return t
}

// get copies numbers from the GPU.
func (f *fastBench) get(t tensor.Tensor) []float32 {
	f.Helper()
	host := t
	host.Address, host.Data = 0, make([]byte, t.Bytes())
	if err := f.Copy(host, t); err != nil {
		f.Fatal(err)
	}
	return host.F32()
}

// wideBench has a weight [rows][cols], tokens, and their products in float64 with the sums of
// magnitudes.
type wideBench struct {
	*fastBench
	w          backend.Matrix
	x          tensor.Tensor
	role       backend.Role
	want, size []float64
}

func newWideBench(t *testing.T, tokens, rows, cols int) *wideBench {
	f := &wideBench{fastBench: newFastBench(t), role: backend.Prompt}
	w, x := f.numbers(rows*cols), f.numbers(tokens*cols)
	f.want, f.size = make([]float64, tokens*rows), make([]float64, tokens*rows)
	for i := range f.want {
		for k := range cols {
			p := float64(x[i/rows*cols+k]) * float64(w[i%rows*cols+k])
			f.want[i], f.size[i] = f.want[i]+p, f.size[i]+math.Abs(p)
		}
	}
	f.w = backend.Matrix{Tensor: f.put(meta.BFloat16, w, rows, cols)}
	f.x = f.put(meta.Float32, x, tokens, cols)
	return f
}

// product computes the product of the tokens [begin, end) as on a GPU with the given number of
// multiprocessors.
func (f *wideBench) product(begin, end, multiprocessors int) []float32 {
	f.Helper()
	y, err := f.New(meta.Float32, end-begin, f.w.Dims[0])
	if err != nil {
		f.Fatal(err)
	}
	f.multiprocessors = multiprocessors
	f.LinearRounded(y, f.x.Slice(begin, end), f.w, tensor.Tensor{}, f.role)
	return f.get(y)
}

// TestTilesOfPromptsHaveTheSameBits: the tile of a product depends on the number of multiprocessors
// and of tokens. The choice changes no bit of a token's results, which are close to those in
// float64.
func TestTilesOfPromptsHaveTheSameBits(t *testing.T) {
	need(t)
	for _, cols := range []int{64, 200, 1032, 100} { // 100 is not a multiple of 8
		const tokens, rows = 150, 330
		f := newWideBench(t, tokens, rows, cols)
		whole := f.product(0, tokens, 1)
		for i, v := range whole {
			if d := math.Abs(float64(v) - f.want[i]); !(d <= 3e-6*f.size[i]) {
				t.Fatalf("%d columns, token %d, row %d: %v, want %v", cols, i/rows, i%rows, v, f.want[i])
			}
		}
		for _, multiprocessors := range []int{3, 1000} {
			sameNumbers(t, f.product(0, tokens, multiprocessors), whole)
		}
		for _, part := range [][2]int{{0, 1}, {7, 90}, {64, tokens}} {
			sameNumbers(t, f.product(part[0], part[1], 1), whole[part[0]*rows:part[1]*rows])
		}
	}
}

// TestTokensOfExpertsHaveTheBitsOfABatch: one kernel computes single tokens, each with its own
// weight. Its results have the bits of the kernel for several tokens, for any number of
// multiprocessors.
func TestTokensOfExpertsHaveTheBitsOfABatch(t *testing.T) {
	need(t)
	for _, cols := range []int{8, 200, 1024, 1032, 3000} {
		const tokens, rows = 3, 330
		f := newWideBench(t, tokens, rows, cols)
		f.role = backend.Generated
		together := f.product(0, tokens, 1)
		y := f.put(meta.Float32, nil, tokens, rows)
		for _, f.multiprocessors = range []int{1, 4, 100} {
			var ps []backend.Product
			for i := range tokens {
				ps = append(ps, backend.Product{Dst: y.Slice(i, i+1), X: f.x.Slice(i, i+1), W: f.w, Rounded: true})
			}
			before := f.launches
			f.Products(ps)
			sameNumbers(t, f.get(y), together)
			if n := f.launches - before; n != 1 {
				t.Errorf("%d launches", n)
			}
		}
	}
}

// TestAGateIntoWhatItsProductReads: a gate is fused into a kernel of products only if no block
// reads memory that another block writes.
func TestAGateIntoWhatItsProductReads(t *testing.T) {
	need(t)
	const width, tokens = 64, 2
	for _, alone := range []bool{false, true} {
		run := func(wait bool) (all [][]byte) {
			f := &fuseBench{T: t, Backend: openWith(t, kernels.Names()[0], true)}
			x, gate, up := f.matrix(meta.Float32, 1, tokens, width), f.matrix(meta.Float32, 2, tokens, width), f.matrix(meta.Float32, 3, tokens, width)
			w := backend.Matrix{Tensor: f.matrix(meta.BFloat16, 4, width, width)}
			ps := []backend.Product{{Dst: gate, X: x, W: w, Rounded: true}, {Dst: up, X: x, W: w, Rounded: true}}
			if alone {
				ps = nil
				for i := range tokens {
					for _, to := range []tensor.Tensor{gate, up} {
						ps = append(ps, backend.Product{Dst: to.Slice(i, i+1), X: x.Slice(i, i+1), W: w, Rounded: true})
					}
				}
			}
			f.Products(ps)
			if wait {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			f.Gate(x, gate, up, meta.ActSiLU, 0)
			return f.contents()
		}
		if !slices.EqualFunc(run(true), run(false), slices.Equal[[]byte]) {
			t.Errorf("the results differ where tokens have weights of their own: %v", alone)
		}
	}
}

func sameNumbers(t *testing.T, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("number %d is %v, want %v", i, got[i], want[i])
		}
	}
}

// TestAttentionInRowsHasTheBitsOfParts: the number of multiprocessors decides whether a warp
// computes a tile's whole context or one part. The choice changes no bit, and neither do rows of
// other chunks.
func TestAttentionInRowsHasTheBitsOfParts(t *testing.T) {
	need(t)
	const kvHeads, page, context, rows = 2, 16, 200, 90
	for _, c := range []backend.AttentionArgs{
		{Heads: 8, Dim: 128, ValueDim: 128},
		{Heads: 2, Dim: 64, ValueDim: 64, Window: 70},
		{Heads: 6, Dim: 96, ValueDim: 32, Softcap: 20},
		{Heads: 40, Dim: 32, ValueDim: 64, Chunk: 100},
		{Heads: 8, Dim: 64, ValueDim: 64, Window: 33},
	} {
		f := newFastBench(t)
		c.KVHeads, c.Scale, c.Prompts = kvHeads, 0.2, make([]bool, rows)
		if c.Chunk == 0 {
			c.Sinks = f.put(meta.Float32, f.numbers(c.Heads), c.Heads)
		}
		pages := ceil(context, page)
		kv := backend.KV{PageTokens: page, Heads: kvHeads, K: f.put(meta.BFloat16, f.numbers(pages*page*kvHeads*c.Dim), pages, page, kvHeads*c.Dim),
			V: f.put(meta.BFloat16, f.numbers(pages*page*kvHeads*c.ValueDim), pages, page, kvHeads*c.ValueDim)}
		var table []int32
		for i := range pages {
			table = append(table, int32(pages-1-i))
		}
		q, y := f.put(meta.Float32, f.numbers(rows*c.Heads*c.Dim), rows, c.Heads*c.Dim), f.put(meta.Float32, nil, rows, c.Heads*c.ValueDim)
		attend := func(multiprocessors int, ends ...int) []float32 {
			f.multiprocessors = multiprocessors
			first := 0
			for _, end := range ends {
				span := backend.Span{Rows: end - first, Start: context - rows + first, Pages: table}
				f.Attention(y.Slice(first, end), q.Slice(first, end), kv, []backend.Span{span}, c)
				first = end
			}
			return f.get(y)
		}
		parts := attend(1<<20, rows)
		sameNumbers(t, attend(1, rows), parts)
		sameNumbers(t, attend(1, 1, 3, 60, rows), parts)
		sameNumbers(t, attend(1<<20, 2, 17, 18, rows), parts)
	}
}
