package backendtest

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// program runs every operation, at sizes that are divided among threads.
func program(e *env) map[string][]float32 {
	e.Helper()
	out := map[string][]float32{}
	const tokens, width, inner = 21, 160, 259
	x := e.floats(e.values(tokens*width), tokens, width)
	for _, d := range dtypes {
		for _, n := range []int{1, tokens} {
			for _, transposed := range []bool{false, true} {
				m := backend.Matrix{Tensor: e.place(d, e.values(inner*width), 0, inner, width), Transposed: transposed}
				if transposed {
					m.Tensor = e.place(d, e.values(inner*width), 0, width, inner)
				}
				bias := e.place(d, e.values(inner), 0, inner)
				out[name("linear", d, n, transposed)] = e.linear(x.Slice(0, n), m, bias)
				for _, role := range roles {
					out[name("rounded linear", d, n, transposed, role)] = e.linearRounded(x.Slice(0, n), m, bias, role)
				}
			}
		}
	}
	wide := e.floats(out[name("linear", meta.BFloat16, tokens, false)], tokens, inner)
	var ps []backend.Product
	for i := range 5 {
		w := backend.Matrix{Tensor: e.place(meta.BFloat16, e.values((20+i)*width), 0, 20+i, width)}
		ps = append(ps, backend.Product{Dst: e.empty(tokens, 20+i), X: x, W: w, Rounded: i > 0, Role: roles[i%2]})
	}
	e.Products(ps)
	for _, p := range ps {
		out["products"] = append(out["products"], e.read(p.Dst)...)
	}
	dst := e.empty(tokens, inner)
	e.Gate(dst, wide, wide, meta.ActSiLU, 0)
	out["gate"] = e.read(dst)
	e.Norm(dst, dst, tensor.Tensor{}, tensor.Tensor{}, meta.NormSpec{Dim: inner, Eps: 1e-6, Layer: true})
	out["norm"] = e.read(dst)
	e.Add(dst, wide, 0.3)
	e.Scale(dst, 2, 3)
	e.ScatterAdd(dst, wide.Slice(0, 3), []int32{4, 4, 9}, []float32{1, 2, 3})
	e.Gather(wide, dst, make([]int32, tokens))
	out["rows"] = append(e.read(dst), e.read(wide)...)
	angles := e.floats(e.values(tokens*16), tokens, 16)
	e.Rope(x, 40, angles, angles, true)
	out["rope"] = e.read(x)
	a := backend.AttentionArgs{Heads: 8, KVHeads: 2, Dim: 32, ValueDim: 32, Scale: 0.2, Window: 50}
	for _, d := range kvTypes {
		c := newCache(e, a, d, 16, 5, 120)
		for _, rows := range append(c.run([]int{4, 0}, []int{5, 120}), c.runAs([]int{0, 110}, []int{4, 0}, []int{5, 120})...) {
			out["attention"] = append(out["attention"], rows...)
		}
	}
	experts, weights := make([]int32, 4*tokens), make([]float32, 4*tokens)
	e.Route(experts, weights, dst, tensor.Tensor{}, &meta.MoESpec{TopK: 4, Renormalise: true})
	e.sync()
	for i, v := range experts {
		out["route"] = append(out["route"], float32(v), weights[i])
	}
	gradientProgram(e, out)
	imageProgram(e, out)
	return out
}
