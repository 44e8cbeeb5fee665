package cpu

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestKernelTableIsWhatRuns multiplies weights of all stored formats, for both precisions and roles and for
// numbers of tokens around every limit, in all variants of this processor. The kernel that computes is the one
// that the printed table names.
func TestKernelTableIsWhatRuns(t *testing.T) {
	const rows, cols = 48, 512
	for _, variant := range kernels.Names() {
		table, err := Kernels(variant)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(Options{Variant: variant})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range storedWeights() {
			m := testWeight(t, &w, rows, cols)
			for _, precision := range []mode{rounded, exact} {
				for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
					for _, tokens := range []int{1, 2, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33} {
						what := fmt.Sprintf("%s, %s, %s, %s tokens: %d", variant, w.name, precisionNames[precision], roleNames[role], tokens)
						x, _ := tensor.Of(make([]byte, 4*tokens*cols), meta.Float32, tokens, cols)
						y, _ := tensor.Of(make([]byte, 4*tokens*rows), meta.Float32, tokens, rows)
						for _, w := range b.pool.workers {
							w.ran = 0
						}
						b.single(backend.Product{Dst: y, X: x, W: m, Rounded: precision == rounded, Role: role})
						if err := b.Sync(); err != nil {
							t.Fatalf("%s: %v", what, err)
						}
						ran := uint32(0)
						for _, w := range b.pool.workers {
							ran |= w.ran
						}
						want := entry(table, w.name, precision, role, tokens)
						if bits.OnesCount32(ran) != 1 || kernel(bits.TrailingZeros32(ran)).String() != want {
							t.Errorf("%s: kernels %b ran, want %s", what, ran, want)
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

// entry is the kernel that the table names.
func entry(table []KernelRow, format string, precision mode, role backend.Role, tokens int) string {
	i := slices.IndexFunc(table, func(r KernelRow) bool {
		return r.Format == format && r.Precision == precisionNames[precision] && r.Role == roleNames[role] && r.From <= tokens && (r.To == 0 || tokens <= r.To)
	})
	if i < 0 {
		return "nothing"
	}
	return table[i].Kernel
}

// testWeight is a weight of zeros as w is stored.
func testWeight(t *testing.T, w *storedWeight, rows, cols int) backend.Matrix {
	t.Helper()
	d := meta.BFloat16
	for _, dense := range []meta.DType{meta.Float16, meta.Float32} {
		if dense.String() == w.name {
			d = dense
		}
	}
	dims := []int{rows, cols}
	if w.matrix.transposed {
		slices.Reverse(dims)
	}
	data, err := tensor.Of(make([]byte, d.Bytes(int64(rows*cols))), d, dims...)
	if err != nil {
		t.Fatal(err)
	}
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
	return m
}

// TestKernelTableOfAllProcessors holds the table for processors that this one is not: every product has a kernel,
// and the best known choices for bfloat16 and q4_0 stand.
func TestKernelTableOfAllProcessors(t *testing.T) {
	spr := isa.Variant{Name: "amx", Level: isa.AVX512, Lanes: 16, VNNI: true, BF16: true, AMX: true}
	withoutTiles := spr
	withoutTiles.Name, withoutTiles.AMX, withoutTiles.SlowPairs = "avx512bf16", false, true
	for _, v := range []isa.Variant{spr, withoutTiles, {Name: "avx512", Level: isa.AVX512, Lanes: 16}, {Name: "avx2", Level: isa.AVX2, Lanes: 8}, isa.Portable()} {
		table := tableOf(kernels.For(v))
		for _, r := range table {
			if r.Kernel == "" {
				t.Errorf("%s: no kernel for %+v", v.Name, r)
			}
		}
		if !v.AMX || kernels.Names()[0] == "go" { // this build has no assembly to choose
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
			{"bfloat16", backend.Prompt, 128, "gemm.TileRows"},
			{"bfloat16", backend.Prompt, 129, "gemm.Tile"},
			{"q4_0", backend.Generated, 1, "qgemm.MulInt8"},
			{"q4_0", backend.Prompt, 512, "gemm.Tile"},
		} {
			if got := entry(table, c.format, rounded, c.role, c.tokens); got != c.want {
				t.Errorf("amx, %s, %d tokens of role %d: %s, want %s", c.format, c.tokens, c.role, got, c.want)
			}
		}
	}
}
