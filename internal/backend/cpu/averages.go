package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Averaged = (*Backend)(nil)

// averageKeys is one call of AverageKeys. A unit is a row.
type averageKeys struct {
	dst   mat.Floats
	keys  pageRows
	spans []backend.Span
	size  int
}

// AverageKeys implements [backend.Averaged].
func (b *Backend) AverageKeys(dst tensor.Tensor, keys backend.KV, spans []backend.Span, size int) {
	if b.failed.Load() {
		return
	}
	if size < 1 {
		b.fail("averages of keys: blocks of %d positions", size)
		return
	}
	n, dim := dst.Rows(), dst.Cols()
	op := averageKeys{keys: pageRows{set: b.set, dim: dim}, spans: spans, size: size}
	var ok, ok2 bool
	op.dst, ok = b.floats("averages of keys", "result", dst, n, dim)
	op.keys.pages, ok2 = b.pages("keys of the indexer", &keys, keys.K, 1, dim)
	if !ok || !ok2 {
		return
	}
	_, rows, ok := b.checkSpans(spans, n, op.keys.pages.count, keys.PageTokens)
	if !ok || !b.reserve(dim+op.keys.pages.widened()) {
		return
	}
	b.averageKeys = op
	b.run(&b.averageKeys, rows, rows*dim)
}

func (op *averageKeys) run(w *worker, unit int) {
	s, i := rowOf(op.spans, unit)
	dst, key, wide := row(op.dst, s.First+i, op.keys.dim), w.scratch.v[:op.keys.dim], w.scratch.v[op.keys.dim:]
	clear(dst)
	end := s.Start + i + 1
	if end%op.size != 0 {
		return
	}
	for position := end - op.size; position < end; position++ {
		op.keys.copyTo(key, s.Pages, position, wide)
		for c, x := range key {
			dst[c] += x
		}
	}
	for c := range dst {
		dst[c] /= float32(op.size)
	}
}
