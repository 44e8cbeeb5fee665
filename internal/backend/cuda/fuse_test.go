//go:build cuda

package cuda

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// fuseBench is a backend with fast kernels, and tensors on its GPU.
type fuseBench struct {
	*testing.T
	*Backend
	made []tensor.Tensor // those whose contents are compared
}

// matrix returns GPU memory with numbers that depend on seed.
func (f *fuseBench) matrix(d meta.DType, seed, rows, cols int) tensor.Tensor {
	f.Helper()
	t, err := f.New(d, rows, cols)
	if err != nil {
		f.Fatal(err)
	}
	host := t
	host.Address, host.Data = 0, make([]byte, t.Bytes())
	if d == meta.Float32 {
		for i, v := 0, host.F32(); i < len(v); i++ {
			v[i] = float32((i*7+seed*13)%31-15) / 8
		}
	} else {
		for i := range host.Data {
			host.Data[i] = []byte{byte(i * 5), 0x3e}[i%2] // bfloat16 near 0.2
		}
	}
	if err := f.Copy(t, host); err != nil {
		f.Fatal(err)
	}
	f.made = append(f.made, t)
	return t
}

// contents returns the bytes of all tensors.
func (f *fuseBench) contents() (all [][]byte) {
	f.Helper()
	for _, t := range f.made {
		host := t
		host.Address, host.Data = 0, make([]byte, t.Bytes())
		if err := f.Copy(host, t); err != nil {
			f.Fatal(err)
		}
		all = append(all, host.Data)
	}
	return all
}

// fused are pairs of operations that one kernel can compute. They call between() between the two.
var fused = func() map[string]func(f *fuseBench, between func()) {
	const rows, width, inner, heads, kvHeads, dim, page = 3, 96, 40, 4, 2, 24, 4
	slots := []int32{1, 6, 3}
	return map[string]func(f *fuseBench, between func()){
		"add and norm": func(f *fuseBench, between func()) {
			x, more, y := f.matrix(meta.Float32, 1, rows, width), f.matrix(meta.Float32, 2, rows, width), f.matrix(meta.Float32, 3, rows, width)
			f.Add(x, more, 0.5)
			between()
			f.Norm(y, x, tensor.Tensor{}, tensor.Tensor{}, meta.NormSpec{Dim: width, Eps: 1e-5})
		},
		"products and gate": func(f *fuseBench, between func()) {
			x, gate, up := f.matrix(meta.Float32, 1, rows, width), f.matrix(meta.Float32, 2, rows, inner), f.matrix(meta.Float32, 3, rows, inner)
			w, v := f.matrix(meta.BFloat16, 4, inner, width), f.matrix(meta.BFloat16, 5, inner, width)
			f.Products([]backend.Product{{Dst: gate, X: x, W: backend.Matrix{Tensor: w}, Rounded: true}, {Dst: up, X: x, W: backend.Matrix{Tensor: v}, Rounded: true}})
			between()
			f.Gate(gate, gate, up, meta.ActSiLU, 0)
		},
		"experts' products and gates": func(f *fuseBench, between func()) {
			x, gate, up := f.matrix(meta.Float32, 1, rows, width), f.matrix(meta.Float32, 2, rows, inner), f.matrix(meta.Float32, 3, rows, inner)
			var ps []backend.Product
			for i := range rows {
				for j, to := range []tensor.Tensor{gate, up} {
					w := backend.Matrix{Tensor: f.matrix(meta.BFloat16, 4+2*i+j, inner, width)}
					ps = append(ps, backend.Product{Dst: to.Slice(i, i+1), X: x.Slice(i, i+1), W: w, Rounded: true})
				}
			}
			f.Products(ps)
			between()
			f.Gate(gate, gate, up, meta.ActSiLU, 0)
		},
		"rotations and the cache": func(f *fuseBench, between func()) {
			q, k, v := f.matrix(meta.Float32, 1, rows, heads*dim), f.matrix(meta.Float32, 2, rows, kvHeads*dim), f.matrix(meta.Float32, 3, rows, kvHeads*dim)
			c, s := f.matrix(meta.Float32, 4, rows, dim/2-2), f.matrix(meta.Float32, 5, rows, dim/2-2)
			kv := backend.KV{PageTokens: page, Heads: kvHeads, K: f.pagesOf(2, page, kvHeads*dim), V: f.pagesOf(2, page, kvHeads*dim)}
			f.Rope(q, dim, c, s, false)
			between()
			f.Rope(k, dim, c, s, false)
			between()
			f.StoreKV(kv, k, v, slots)
		},
	}
}()

// TestFusedOperationsWriteWhatTheyWriteApart: fused operations have the results of the same
// operations with a wait between them, including the intermediate results.
func TestFusedOperationsWriteWhatTheyWriteApart(t *testing.T) {
	need(t)
	for name, run := range fused {
		t.Run(name, func(t *testing.T) {
			var results [2][][]byte
			var launches [2]int64
			for i := range results {
				f := &fuseBench{T: t, Backend: openWith(t, kernels.Names()[0], true)}
				run(f, func() {
					if i == 0 {
						if err := f.Sync(); err != nil {
							t.Fatal(err)
						}
					}
				})
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				results[i], launches[i] = f.contents(), f.launches
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.EqualFunc(results[0], results[1], slices.Equal[[]byte]) {
				t.Error("the results differ")
			}
			if launches[1] != 1 || launches[0] <= 1 {
				t.Errorf("%d launches together and %d apart", launches[1], launches[0])
			}
		})
	}
}

// TestOperandsAreSentOnce: the ring keeps operands that later blocks and passes may need again,
// also after a wait. It discards them after an error, when they may not have arrived.
func TestOperandsAreSentOnce(t *testing.T) {
	need(t)
	f := &fuseBench{T: t, Backend: openWith(t, kernels.Names()[0], true)}
	x, y := f.matrix(meta.Float32, 1, 3, 8), f.matrix(meta.Float32, 2, 2, 8)
	gather := func() int64 {
		before := f.counters.toDevice.Load()
		f.Gather(y, x, []int32{2, 0})
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		return f.counters.toDevice.Load() - before
	}
	if first, second := gather(), gather(); first != 8 || second != 0 {
		t.Errorf("%d and %d bytes were sent, want 8 and 0", first, second)
	}
	f.Gather(y, x, []int32{3, 0})
	if f.Sync() == nil {
		t.Error("a row that is not there is no error")
	}
	if n := gather(); n != 8 {
		t.Errorf("%d bytes were sent after an error, want 8", n)
	}
}

// pagesOf returns memory for keys or values.
func (f *fuseBench) pagesOf(pages, tokens, width int) tensor.Tensor {
	f.Helper()
	t, err := f.New(meta.BFloat16, pages, tokens, width)
	if err != nil {
		f.Fatal(err)
	}
	f.made = append(f.made, t)
	return t
}
