package backendtest

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

func testMemory(e *env) {
	for _, n := range []int{1, 5, 1000} {
		t, err := e.New(meta.Float32, n, 3)
		if err != nil {
			e.Fatal(err)
		}
		sameBits(e, name("new memory", n), e.read(t), make([]float32, 3*n))
		e.Free(t)
	}
	if _, err := e.New(meta.Float32, -1); err == nil {
		e.Error("memory of a negative size was given")
	}
	v := e.values(12)
	t := e.strided(v, 3, 4, 5)
	sameBits(e, "copy from rows with gaps", e.read(t), v)
	other := e.empty(3, 4)
	if err := e.Copy(other, t); err != nil {
		e.Fatal(err)
	}
	sameBits(e, "copy on the device", e.read(other), v)
	if err := e.Copy(other, tensor.Floats(v, 4, 3)); err == nil {
		e.Error("a copy between different shapes was made")
	}
}

// testErrors: operands that do not fit are an error. Later operations do nothing until Sync, which
// makes the backend usable again.
func testErrors(e *env) {
	x, y := e.floats(e.values(12), 3, 4), e.floats(e.values(12), 3, 4)
	before := e.read(y)
	w := backend.Matrix{Tensor: e.floats(e.values(20), 4, 5)}
	none := tensor.Tensor{}
	spans := func(s backend.Span) []backend.Span { return []backend.Span{s} }
	kv := backend.KV{K: e.floats(e.values(32), 2, 4, 4), V: e.floats(e.values(32), 2, 4, 4), PageTokens: 4}
	a := backend.AttentionArgs{Heads: 1, KVHeads: 1, Dim: 4, ValueDim: 4, Scale: 1}
	for what, op := range map[string]func(){
		"linear with another width":    func() { e.Linear(y, x, w, none) },
		"linear of a wrong dtype":      func() { e.Linear(y, x, backend.Matrix{Tensor: tensor.Tensor{DType: meta.Int64, Rank: 2}}, none) },
		"embed of a missing row":       func() { e.Embed(y.Slice(0, 1).Columns(0, 4), backend.Matrix{Tensor: x}, []int32{3}, 1) },
		"norm of a partial group":      func() { e.Norm(y, x, none, none, meta.NormSpec{Dim: 3}) },
		"norm with another weight":     func() { e.Norm(y, x, e.floats(e.values(3), 3), none, meta.NormSpec{Dim: 4}) },
		"rope wider than a head":       func() { e.Rope(y, 2, x, x, false) },
		"gate of another shape":        func() { e.Gate(y, x.Slice(0, 2), none, meta.ActSiLU, 0) },
		"gate of an unknown kind":      func() { e.Gate(y, x, none, 99, 0) },
		"add of another shape":         func() { e.Add(y, x.Slice(0, 1), 1) },
		"gather of a missing row":      func() { e.Gather(y, x, []int32{0, -1, 2}) },
		"scatter to a missing row":     func() { e.ScatterAdd(y, x, []int32{0, 1, 3}, []float32{1, 1, 1}) },
		"scatter without its weights":  func() { e.ScatterAdd(y, x, []int32{0, 1, 2}, nil) },
		"route to more than there are": func() { e.Route(nil, nil, x, none, &meta.MoESpec{TopK: 9}) },
		"store to a missing slot":      func() { e.StoreKV(kv, x, x, []int32{0, 1, 8}) },
		"attention to a missing page":  func() { e.Attention(y, x, kv, spans(backend.Span{Rows: 3, Pages: []int32{2}}), a) },
		"attention with few pages":     func() { e.Attention(y, x, kv, spans(backend.Span{Rows: 3, Start: 2, Pages: []int32{0}}), a) },
		"attention past the rows":      func() { e.Attention(y, x, kv, spans(backend.Span{First: 1, Rows: 3, Pages: []int32{0}}), a) },
	} {
		op()
		e.Add(y, x, 1)
		if err := e.Sync(); err == nil {
			e.Errorf("%s is no error", what)
		}
		sameBits(e, name("result after", what), e.read(y), before)
	}
	e.Add(y, x, 0)
	sameBits(e, "result after Sync", e.read(y), before)
}
