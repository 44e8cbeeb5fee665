//go:build cuda

package cuda

import (
	"math/bits"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

const blockColumns, blockBytes = 32, 34 // of a Q8 block

// pages describes the keys or values of one layer. Strides are in bytes.
type pages struct {
	at, format, page, head, token uint64
	count                         int
}

func (b *Backend) pages(op, name string, kv *backend.KV, t tensor.Tensor, heads, dim int) pages {
	format, ok := formatOf(t.DType)
	size := sizeOf(format)
	if t.DType == meta.Int8 {
		format, size, ok = formatQ8, 1, kv.Heads == heads
	}
	if !ok || heads <= 0 || t.Rank != 3 || t.Dims[1] != kv.PageTokens || kv.PageTokens <= 0 || t.Dims[2]%heads != 0 || t.Dims[2] < backend.KVRow(t.DType, heads, dim) || t.Data != nil ||
		!b.holds(t.Address, (t.Dims[0]-1)*t.RowStride()*size+t.Dims[1]*t.Dims[2]*size) {
		b.fail("%s: %s are %v %v with pages of %d tokens and %d heads of %d", op, name, t.DType, t.Shape(), kv.PageTokens, heads, dim)
		return pages{}
	}
	token, head := t.Dims[2]*size, t.Dims[2]/heads*size
	if kv.Heads == heads {
		token, head = head, head*kv.PageTokens
	}
	return pages{uint64(t.Address), format, uint64(t.RowStride() * size), uint64(head), uint64(token), t.Dims[0]}
}

// StoreKV rounds as the CPU does.
func (b *Backend) StoreKV(kv backend.KV, k, v tensor.Tensor, slots []int32) {
	if b.err != nil {
		return
	}
	if b.options.Fast && kv.K.DType != meta.Int8 && k.Data == nil {
		width, values := k.Cols(), matrix{}
		valueWidth := 0
		if !v.IsZero() {
			valueWidth = v.Cols()
			values = b.matrix("store", "values", v, len(slots), valueWidth)
		}
		b.inside("store", slots, kv.K.Dims[0]*kv.PageTokens)
		if b.storeRotated(&kv, b.matrix("store", "keys", k, len(slots), width), values, width, valueWidth, slots) {
			return
		}
	}
	b.storeRows(&kv, "keys", kv.K, k, slots)
	if !v.IsZero() {
		b.storeRows(&kv, "values", kv.V, v, slots)
	}
}

func (b *Backend) storeRows(kv *backend.KV, name string, t, x tensor.Tensor, slots []int32) {
	heads, width := max(kv.Heads, 1), x.Cols()
	if width%heads != 0 {
		b.fail("store: %s are rows of %d for %d heads", name, width, heads)
		return
	}
	p, in := b.pages("store", name, kv, t, heads, width/heads), b.matrix("store", name, x, len(slots), width)
	b.inside("store", slots, p.count*kv.PageTokens)
	if each := backend.KVRow(t.DType, heads, width/heads); b.err == nil && t.Dims[2] != each {
		b.fail("store: %s are %v %v, rows have %d elements", name, t.DType, t.Shape(), each)
	}
	b.eachRows(slots, func(first int, part []int32) {
		x, s := in.row(first), send(b, part)
		if p.format == formatQ8 {
			n := heads * ceil(width/heads, blockColumns)
			b.launch(kernelStoreBlocks, ceil(n, threads), len(part), threads, p.at, p.page, p.head, p.token, x.at, x.stride, s, uint64(kv.PageTokens), uint64(width/heads), uint64(n))
			return
		}
		b.launch(kernelStoreKV, ceil(width, threads), len(part), threads, p.at, p.format, p.page, p.head, p.token, x.at, x.stride, s, uint64(kv.PageTokens), uint64(width/heads), uint64(width))
	})
}

// Attention starts a block for each head of each row. The scores are in scratch memory.
func (b *Backend) Attention(dst, q tensor.Tensor, kv backend.KV, spans []backend.Span, a backend.AttentionArgs) {
	if b.err != nil {
		return
	}
	n := q.Rows()
	if a.Heads <= 0 || a.KVHeads <= 0 || a.Heads%a.KVHeads != 0 || a.Dim <= 0 || a.ValueDim <= 0 {
		b.fail("attention: %d heads over %d key/value heads of dimension %d and %d", a.Heads, a.KVHeads, a.Dim, a.ValueDim)
		return
	}
	if !a.Relative.States.IsZero() {
		b.fail("attention: biases of distances that depend on the query do not run on a GPU")
		return
	}
	if a.RoundedSlopes && (len(a.Slopes) == 0 || a.Window > 0 || a.Chunk > 0) {
		b.fail("attention: %d rounded slopes in a window of %d and chunks of %d", len(a.Slopes), a.Window, a.Chunk)
		return
	}
	if len(a.Slopes) != 0 && len(a.Slopes) != a.Heads {
		b.fail("attention: %d slopes for %d heads", len(a.Slopes), a.Heads)
		return
	}
	in, out := b.matrix("attention", "query", q, n, a.Heads*a.Dim), b.matrix("attention", "result", dst, n, a.Heads*a.ValueDim)
	k, v := b.pages("attention", "keys", &kv, kv.K, a.KVHeads, a.Dim), b.pages("attention", "values", &kv, kv.V, a.KVHeads, a.ValueDim)
	sinks := b.dense("attention", "sinks", a.Sinks, a.Heads, a.Heads)
	if b.err != nil || !b.checkSpans(spans, n, min(k.count, v.count), kv.PageTokens) {
		return
	}
	scale, softcap := a.Scale, float32(0)
	if a.Softcap > 0 {
		scale, softcap = a.Scale/a.Softcap, a.Softcap
	}
	if b.fastAttention(&k, &v, kv.PageTokens, &a) {
		b.attention = attention{k: k.at, kPage: k.page, kHead: k.head, kToken: k.token, v: v.at, vPage: v.page, vHead: v.head, vToken: v.token,
			pageShift: uint64(bits.TrailingZeros(uint(kv.PageTokens))), group: uint64(a.Heads / a.KVHeads), dim: uint64(a.Dim), valueDim: uint64(a.ValueDim), scale: word(scale), softcap: word(softcap),
			sinks: sinks.at, sinkFormat: sinks.format, heads: uint64(a.Heads)}
		b.attendFast(spans, &b.attention, kv.PageTokens, &a, in, out)
		return
	}
	rounded := uint64(0)
	if a.RoundedSlopes {
		rounded = word(a.Scale)
	}
	for i := range spans {
		b.attendSpan(&spans[i], kv.PageTokens, &a, func(first, rows, pitch int, scores, about, tables uint64) {
			x, y := in.row(first), out.row(first)
			b.launch(kernelAttend, rows, a.Heads, 64, y.at, y.stride, x.at, x.stride, k.at, k.format, k.page, k.head, k.token, v.at, v.format, v.page, v.head, v.token,
				about, tables, uint64(kv.PageTokens), uint64(a.Heads/a.KVHeads), uint64(a.Dim), uint64(a.ValueDim), word(scale), word(softcap),
				sinks.at, sinks.format, scores, uint64(pitch), uint64(a.Heads), uint64(b.options.Lanes), send(b, a.Slopes), rounded)
		})
	}
}

// scratchBytes limits the scores of a launch that has several rows.
const scratchBytes = 64 << 20

// attendSpan calls launch for chunks of a span's rows whose scores fit in the scratch memory.
func (b *Backend) attendSpan(s *backend.Span, pageTokens int, a *backend.AttentionArgs, launch func(first, rows, pitch int, scores, about, tables uint64)) {
	table := s.Pages[:ceil(s.Start+s.Rows, pageTokens)]
	for done := 0; done < s.Rows && b.err == nil; {
		longest := s.Start + s.Rows
		if a.Window > 0 {
			longest = min(longest, a.Window)
		}
		if a.Chunk > 0 {
			longest = min(longest, a.Chunk)
		}
		rows := min(max(1, scratchBytes/(4*a.Heads*longest)), s.Rows-done)
		b.rows = b.rows[:0]
		for i := range rows {
			lo, hi := visible(s.Start+done+i, a)
			b.rows = append(b.rows, int32(lo), int32(hi), 0)
		}
		scores := b.reserve(int64(4 * rows * a.Heads * longest))
		b.room(len(b.rows), len(table), len(a.Slopes))
		launch(s.First+done, rows, longest, scores, send(b, b.rows), send(b, table))
		done += rows
	}
}

// checkSpans checks that the rows and pages of spans exist.
func (b *Backend) checkSpans(spans []backend.Span, n, pages, pageTokens int) bool {
	for i := range spans {
		s := &spans[i]
		end := s.Start + s.Rows
		if s.First < 0 || s.Rows < 0 || s.Start < 0 || s.First+s.Rows > n || end > len(s.Pages)*pageTokens {
			b.fail("attention: span %d has rows %d+%d of %d at position %d with %d pages", i, s.First, s.Rows, n, s.Start, len(s.Pages))
			return false
		}
		b.inside("attention", s.Pages[:ceil(end, pageTokens)], pages)
	}
	return b.err == nil
}
