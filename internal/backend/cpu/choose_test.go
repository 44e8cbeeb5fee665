package cpu

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// TestKernelTableIsWhatRuns runs products with weights of all stored formats and attention over all formats of the
// cache, for both precisions, all roles and numbers of tokens around every limit, in all variants of this processor.
// The kernel that computes is the one that the printed table names.
func TestKernelTableIsWhatRuns(t *testing.T) {
	const cols = 512
	for _, variant := range kernels.Names() {
		table, err := Kernels(variant)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(Options{Variant: variant})
		if err != nil {
			t.Fatal(err)
		}
		check := func(operation, format string, precision mode, role backend.Role, tokens int, run func(tokens int)) {
			t.Helper()
			for _, w := range b.pool.workers {
				w.ran = 0
			}
			run(tokens)
			what := fmt.Sprintf("%s, %s, %s, %s, %s tokens: %d", variant, operation, format, precisionNames[precision], roleNames[role], tokens)
			if err := b.Sync(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			ran := uint32(0)
			for _, w := range b.pool.workers {
				ran |= w.ran
			}
			want := entry(table, operation, format, precision, role, tokens)
			if bits.OnesCount32(ran) != 1 || kernel(bits.TrailingZeros32(ran)).String() != want {
				t.Errorf("%s: kernels %b ran, want %s", what, ran, want)
			}
		}
		for _, tokens := range []int{1, 2, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33} {
			for _, precision := range []mode{rounded, exact} {
				for _, w := range storedWeights() {
					rows := 48
					if w.matrix.transposed {
						rows = quant.SumColumns
					}
					m := testWeight(t, &w, rows, cols)
					x, _ := tensor.Of(make([]byte, 4*tokens*cols), meta.Float32, tokens, cols)
					y, _ := tensor.Of(make([]byte, 4*tokens*rows), meta.Float32, tokens, rows)
					for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
						check("linear", w.name, precision, role, tokens, func(int) {
							b.single(backend.Product{Dst: y, X: x, W: m, Rounded: precision == rounded, Role: role})
						})
					}
					check("linear", w.name, precision, trainingRole, tokens, func(int) { b.Product(y, x, m, tensor.Tensor{}, precision == rounded) })
				}
				for _, p := range storedPages() {
					for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
						check("attention", p.name, precision, role, tokens, func(int) { testAttention(t, b, p.dtype, precision, role, tokens) })
					}
				}
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// testAttention attends over pages of zeros.
func testAttention(t *testing.T, b *Backend, d meta.DType, precision mode, role backend.Role, tokens int) {
	t.Helper()
	const heads, dim = 2, 64
	count := ceil(tokens, attention.PagedTokens)
	kv := backend.KV{PageTokens: attention.PagedTokens, Heads: heads}
	var err error
	width := backend.KVRow(d, heads, dim)
	if kv.K, err = tensor.Of(make([]byte, d.Bytes(int64(count*attention.PagedTokens*width))), d, count, attention.PagedTokens, width); err != nil {
		t.Fatal(err)
	}
	kv.V = kv.K
	q, _ := tensor.Of(make([]byte, 4*tokens*heads*dim), meta.Float32, tokens, heads*dim)
	y, _ := tensor.Of(make([]byte, 4*tokens*heads*dim), meta.Float32, tokens, heads*dim)
	a := backend.AttentionArgs{Heads: heads, KVHeads: heads, Dim: dim, ValueDim: dim, Scale: 1}
	if precision == rounded {
		a.Prompts = slices.Repeat([]bool{role == backend.Prompt}, tokens)
	}
	span := backend.Span{Rows: tokens}
	for i := range count {
		span.Pages = append(span.Pages, int32(i))
	}
	b.Attention(y, q, kv, []backend.Span{span}, a)
}

// entry is the kernel that the table names.
func entry(table []KernelRow, operation, format string, precision mode, role backend.Role, tokens int) string {
	i := slices.IndexFunc(table, func(r KernelRow) bool {
		return r.Operation == operation && r.Format == format && r.Precision == precisionNames[precision] && r.Role == roleNames[role] && r.From <= tokens && (r.To == 0 || tokens <= r.To)
	})
	if i < 0 {
		return "nothing"
	}
	return table[i].Kernel
}

// testWeight is a weight of zeros as w is stored.
func testWeight(t *testing.T, w *storedWeight, rows, cols int) backend.Matrix {
	t.Helper()
	dims := []int{rows, cols}
	if w.matrix.transposed {
		slices.Reverse(dims)
	}
	data, err := tensor.Of(make([]byte, 4*rows*cols), meta.Float32, dims...)
	if err != nil {
		t.Fatal(err)
	}
	data.DType = w.dtype
	m := backend.Matrix{Tensor: data, Transposed: w.matrix.transposed}
	if !w.matrix.isPacked() {
		return m
	}
	scales, err := tensor.Of(make([]byte, 2*rows*cols), meta.BFloat16, rows*cols)
	if err != nil {
		t.Fatal(err)
	}
	m.Quant = &backend.Quant{Quant: &meta.Quant{Format: w.format, Rows: w.matrix.packed.Rows, Columns: w.matrix.packed.Columns}, Width: dims[1], Scales: scales, Zeros: scales}
	if w.matrix.packed.Height > 0 {
		m.Quant.Height = rows
	}
	if w.format.Row().Codes.Flat {
		state := []byte(fmt.Sprintf(`{"blocksize": %d, "dtype": "float32"}`, w.matrix.packed.Columns))
		m.Quant.Global, m.Quant.Width = tensor.Tensor{Data: state, DType: meta.Uint8, Rank: 1, Dims: [tensor.MaxRank]int{len(state)}}, dims[1]
	}
	return m
}

// processors are variants of many processors, also those that this one is not.
func processors() []isa.Variant {
	spr := isa.Variant{Name: "amx", Level: isa.AVX512, Lanes: 16, VNNI: true, BF16: true, AMX: true}
	withoutTiles, zen4 := spr, spr
	withoutTiles.Name, withoutTiles.AMX, withoutTiles.SlowPairs = "avx512bf16", false, true
	zen4.Name, zen4.AMX = "avx512bf16", false
	return []isa.Variant{spr, withoutTiles, zen4, {Name: "avx512", Level: isa.AVX512, Lanes: 16}, {Name: "avx2", Level: isa.AVX2, Lanes: 8}, isa.Portable()}
}

// TestEveryKernelIsReachable: each kernel of the table is chosen for some weight, shape, role and processor. One
// that is not has no reason to exist.
func TestEveryKernelIsReachable(t *testing.T) {
	testenv.Need(t, "assembly", kernels.Names()[0] != "go", "this build or processor has no assembly to choose")
	var chosen uint32
	for _, v := range processors() {
		set := kernels.For(v)
		for _, w := range storedWeights() {
			for _, shape := range []func(m *matrix){
				func(*matrix) {},
				func(m *matrix) { m.packed.Height = 0 },
				func(m *matrix) { m.transposed = true },
				func(m *matrix) { m.transposed, m.step = true, 2 },
				func(m *matrix) { m.cols -= 12 },
			} {
				m := w.matrix
				shape(&m)
				for _, tokens := range []int{1, 2, 8, 64, 512} {
					for role := backend.Generated; role <= gradientRole; role++ {
						for _, mode := range []mode{exact, rounded} {
							c := choice{set: set, w: &m, tokens: tokens, mode: mode, role: role}
							k := c.kernel()
							if k == packedMatrices {
								k += kernel(matmul.KernelFor(set, mode == rounded, m.cols))
							}
							chosen |= 1 << k
						}
					}
				}
			}
		}
		for _, p := range storedPages() {
			for _, tokens := range []int{1, 2} {
				for _, mode := range []mode{exact, rounded} {
					c := choice{set: set, k: &p.pages, v: &p.pages, tokens: tokens, mode: mode, role: backend.Prompt}
					chosen |= 1 << c.kernel()
				}
			}
		}
	}
	for k := noKernel + 1; k < allKernels; k++ {
		if chosen&(1<<k) == 0 {
			t.Errorf("no weight, shape, role or processor uses %v", k)
		}
	}
}

// TestKernelTableOfAllProcessors holds the table for processors that this one is not: every product has a kernel,
// and the best known choices for bfloat16 and q4_0 stand.
func TestKernelTableOfAllProcessors(t *testing.T) {
	for _, v := range processors() {
		table := tableOf(kernels.For(v))
		for _, r := range table {
			if r.Kernel == "" {
				t.Errorf("%s: no kernel for %+v", v.Name, r)
			}
		}
		if kernels.Names()[0] == "go" { // this build has no assembly to choose
			continue
		}
		if v.BF16 && !v.AMX && !v.SlowPairs {
			for tokens, want := range map[int]string{1: "gemm.TileFew", 24: "gemm.TileFew", 25: "gemm.Tile"} {
				if got := entry(table, "linear", "bfloat16", rounded, backend.Prompt, tokens); got != want {
					t.Errorf("%s, a prompt of %d tokens: %s, want %s", v.Name, tokens, got, want)
				}
			}
		}
		if !v.AMX {
			continue
		}
		for _, c := range []struct {
			format string
			role   backend.Role
			tokens int
			want   string
		}{
			{"bfloat16", backend.Generated, 1, "gemv.MulTile"},
			{"bfloat16", backend.Generated, 8, "gemm.TileRows"},
			{"bfloat16", backend.Prompt, 136, "gemm.TileRows"}, // of 4096 columns
			{"bfloat16", backend.Prompt, 137, "gemm.TileSteps"},
			{"q4_0", backend.Generated, 1, "qgemm.MulInt8"},
			{"q4_0", backend.Prompt, 512, "gemm.TileSteps"},
		} {
			if got := entry(table, "linear", c.format, rounded, c.role, c.tokens); got != c.want {
				t.Errorf("amx, %s, %d tokens of role %d: %s, want %s", c.format, c.tokens, c.role, got, c.want)
			}
		}
	}
}
