//go:build cuda

package cuda

import (
	"math"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/meta"
)

// Pairs of operations that follow each other in most blocks run as one kernel: an operation
// inspects the pending launch and replaces it by a kernel that computes both. The fused kernel
// still writes the result of the first operation.

// operandsOf returns the operand of the pending launch. Its kernel must take a T.
func operandsOf[T any](p *pending) *T { return (*T)(unsafe.Pointer(&p.words)) }

// addNorm queues Norm, fused with the pending Add if that computes its operand.
func (b *Backend) addNorm(out, in matrix, w, v vector, rows, cols int, a meta.NormSpec) {
	var added matrix
	var scale uint64
	if p := &b.pending; p.is(kernelAdd) && a.Dim == cols && p.y == rows && p.words[0] == in.at && p.words[1] == in.stride && p.words[5] == uint64(cols) {
		added, scale = matrix{p.words[2], p.words[3]}, p.words[4]
		p.operands = 0
	}
	threads := min(1024, max(32, ceil(a.Dim, 256)*32))
	b.launch(kernelAddNorm, rows, cols/a.Dim, threads, out.at, out.stride, in.at, in.stride, added.at, added.stride, scale,
		w.at, w.format, flag(w.n == cols), v.at, v.format, flag(v.n == cols), uint64(a.Dim), flag(a.Layer), math.Float64bits(float64(a.Eps)), word(a.Offset))
}

// gateProducts fuses a gate into the pending products that compute its two operands. It reports
// whether it did.
func (b *Backend) gateProducts(out, gate, up matrix, rows, cols int, act meta.Activation, limit float32) bool {
	p := &b.pending
	gated := kernelFewGated
	switch {
	case p.is(kernelAlone):
		return b.gateAlone(out, gate, up, rows, cols, uint64(act), word(limit))
	case p.is(kernelFewCodes8):
		gated = kernelFewCodesGated
	case !p.is(kernelFew8):
		return false
	}
	o := operandsOf[products](p)
	one, two := &o.part[0], &o.part[1]
	if overlap(out.at, uint64((rows-1)*int(out.stride)+cols), o.x, (o.tokens-1)*o.xs+o.cols) { // blocks read it at any time
		return false
	}
	if o.part[2].rows != 0 || one.rows != uint64(cols) || two.rows != uint64(cols) || o.tokens != uint64(rows) ||
		(matrix{one.y, one.ys}) != gate || (matrix{two.y, two.ys}) != up {
		return false
	}
	o.gated, o.gatedStride, o.activation, o.limit = out.at, out.stride, uint64(act), word(limit)
	p.kernel, p.x = gated, ceil(cols, 8)
	return true
}

// ropeStore mirrors the struct RopeStore of fast.cu. Element 1 of x is for the keys.
type ropeStore struct {
	x, stride, heads                           [2]uint64
	cosine, cosineStride, sine, sineStride     uint64
	dim, half, interleaved                     uint64
	k, kPage, kHead, kToken                    uint64
	values, valuesStride, valueHeads, valueDim uint64
	v, vPage, vHead, vToken                    uint64
	slots, pageTokens, format                  uint64
}

// rotate queues Rope, fused with a pending rotation by the same angles.
func (b *Backend) rotate(x matrix, rows, heads, dim int, c, s matrix, half int, interleaved bool) {
	o := ropeStore{cosine: c.at, cosineStride: c.stride, sine: s.at, sineStride: s.stride, dim: uint64(dim), half: uint64(half), interleaved: flag(interleaved)}
	if p := &b.pending; p.is(kernelRopeStore) && p.y == rows {
		before := *operandsOf[ropeStore](p)
		o.x[0], o.stride[0], o.heads[0] = before.x[0], before.stride[0], before.heads[0]
		if before == o {
			p.operands = 0
		} else {
			o.heads[0] = 0
		}
	}
	i := 0
	if o.heads[0] != 0 {
		i = 1
	}
	o.x[i], o.stride[i], o.heads[i] = x.at, x.stride, uint64(heads)
	b.launchRopeStore(&o, rows)
}

func (b *Backend) launchRopeStore(o *ropeStore, rows int) {
	n := (o.heads[0]+o.heads[1])*(o.dim-o.half) + o.valueHeads*o.valueDim
	launchStruct(b, kernelRopeStore, ceil(int(n), threads), rows, threads, o)
}

// storeRotated makes the pending rotation of keys also store them and the values in the KV cache.
// It reports whether it did.
func (b *Backend) storeRotated(kv *backend.KV, k, v matrix, width, valueWidth int, slots []int32) bool {
	p := &b.pending
	if !p.is(kernelRopeStore) || p.y != len(slots) || b.err != nil {
		return false
	}
	o := *operandsOf[ropeStore](p)
	if o.heads[1] == 0 {
		o.x[0], o.x[1], o.stride[0], o.stride[1], o.heads[0], o.heads[1] = 0, o.x[0], 0, o.stride[0], 0, o.heads[0]
	}
	heads, dim := int(o.heads[1]), int(o.dim)
	if (matrix{o.x[1], o.stride[1]}) != k || heads*dim != width || o.slots != 0 || kv.Heads > 0 && (kv.Heads != heads || valueWidth%heads != 0) {
		return false
	}
	keys, values := b.pages("store", "keys", kv, kv.K, heads, dim), pages{}
	o.valueHeads, o.valueDim = 1, uint64(valueWidth)
	if kv.Heads > 0 {
		o.valueHeads, o.valueDim = uint64(kv.Heads), uint64(valueWidth/heads)
	}
	if valueWidth > 0 {
		values = b.pages("store", "values", kv, kv.V, int(o.valueHeads), int(o.valueDim))
	} else {
		o.valueHeads, values.format = 0, keys.format
	}
	if b.err != nil || keys.format > formatF32 || keys.format != values.format {
		return false
	}
	p.operands = 0
	b.room(len(slots))
	o.k, o.kPage, o.kHead, o.kToken = keys.at, keys.page, keys.head, keys.token
	o.values, o.valuesStride = v.at, v.stride
	o.v, o.vPage, o.vHead, o.vToken = values.at, values.page, values.head, values.token
	o.slots, o.pageTokens, o.format = send(b, slots), uint64(kv.PageTokens), keys.format
	b.launchRopeStore(&o, len(slots))
	return true
}
