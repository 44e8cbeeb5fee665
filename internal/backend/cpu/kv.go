package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// pages are the keys or the values of one layer.
type pages struct {
	data   []byte
	format mat.Format
	// blocks is set instead of format if heads are stored in blocks of q8_0. It is the number of
	// blocks per head.
	blocks int
	tokens int // tokens per page
	page   int // bytes from one page to the next
	row    int // bytes from one token to the next
	head   int // bytes from one head to the next
	count  int
}

// pages checks the keys or values of a layer.
func (b *Backend) pages(name string, kv *backend.KV, t tensor.Tensor, heads, dim int) (pages, bool) {
	f, ok := format(t.DType)
	p := pages{data: t.Data, format: f, tokens: kv.PageTokens, count: t.Dims[0]}
	size := f.Size()
	if t.DType == meta.Int8 {
		size, ok = 1, kv.Heads == heads
		p.blocks = ceil(dim, quant.BlockColumns)
	}
	least := backend.KVRow(t.DType, heads, dim)
	if !ok || t.Rank != 3 || t.Dims[1] != p.tokens || p.tokens <= 0 || t.Dims[2]%heads != 0 || t.Dims[2] < least {
		b.fail("attention: %s are %v %v with pages of %d tokens and %d heads of %d", name, t.DType, t.Shape(), p.tokens, heads, dim)
		return pages{}, false
	}
	p.page, p.row, p.head = t.RowStride()*size, t.Dims[2]*size, t.Dims[2]/heads*size
	if kv.Heads == heads {
		p.row, p.head = p.head, p.head*p.tokens
	}
	return p, true
}

// each calls f for every run of positions in [lo, hi) within one page, with the data from the
// first position on.
func (p *pages) each(table []int32, lo, hi int, f func(position, n int, data []byte)) {
	for lo < hi {
		offset := lo % p.tokens
		n := min(p.tokens-offset, hi-lo)
		f(lo, n, p.data[int(table[lo/p.tokens])*p.page+offset*p.row:])
		lo += n
	}
}

// headRows returns the keys or values of a head for n tokens. data begins with those of the first
// token. It dequantises blocks to scratch.
func (p *pages) headRows(set *kernels.Set, data []byte, head, n int, scratch []float32) mat.Weights {
	if p.blocks == 0 {
		return p.headOf(data, head)
	}
	data = data[head*p.head:]
	width := p.blocks * quant.BlockColumns
	set.Attention.UnpackRows(mat.Floats{V: scratch, Stride: width}, data, p.row, n, p.blocks)
	return weightsOf(scratch[:n*width], width)
}

// widened returns the length of headRows's scratch.
func (p *pages) widened() int { return min(p.tokens, keyBlock) * p.blocks * quant.BlockColumns }

type storeKV struct {
	set   *kernels.Set
	kv    backend.KV
	k, v  mat.Floats
	slots []int32
	// what a token has of each
	kwidth, vwidth int
}

// StoreKV rounds to the dtype of kv. In formats with blocks, a number that is not finite makes
// its block NaN. If v is absent, the values do not change; this is for a kv whose values are a
// view of its keys.
func (b *Backend) StoreKV(kv backend.KV, k, v tensor.Tensor, slots []int32) {
	if b.failed.Load() {
		return
	}
	keys, values, ok := b.storableKV("", &kv, k, v, slots)
	if !ok {
		return
	}
	b.store = storeKV{set: b.set, kv: kv, k: keys, v: values, slots: slots, kwidth: k.Cols()}
	if values.V != nil {
		b.store.vwidth = v.Cols()
	}
	if !b.reserve(quant.BlockColumns) {
		return
	}
	b.run(&b.store, len(slots), len(slots)*k.Cols())
}

// storableKV checks k and v against the pages of kv that they go to. v may be zero; then values
// is too. Errors refer to them as kind+"keys" and kind+"values".
func (b *Backend) storableKV(kind string, kv *backend.KV, k, v tensor.Tensor, slots []int32) (keys, values mat.Floats, ok bool) {
	keys, ok = b.storable(kind+"keys", kv, kv.K, k, slots)
	if ok && !v.IsZero() {
		values, ok = b.storable(kind+"values", kv, kv.V, v, slots)
	}
	return keys, values, ok
}

// storable checks rows x against the pages of t that they go to.
func (b *Backend) storable(name string, kv *backend.KV, t, x tensor.Tensor, slots []int32) (mat.Floats, bool) {
	_, ok := format(t.DType)
	width, pageTokens := t.Dims[2], kv.PageTokens
	if heads := max(kv.Heads, 1); kv.Heads > 0 {
		width = x.Cols()
		ok = (ok || t.DType == meta.Int8) && width%heads == 0 && backend.KVRow(t.DType, heads, width/heads) == t.Dims[2]
	}
	if !ok || t.Rank != 3 || t.Dims[1] != pageTokens || pageTokens <= 0 {
		b.fail("store: %s are %v %v with pages of %d tokens", name, t.DType, t.Shape(), pageTokens)
		return mat.Floats{}, false
	}
	for _, slot := range slots {
		if slot < 0 || int(slot) >= t.Dims[0]*pageTokens {
			b.fail("store: slot %d of %d pages of %d tokens", slot, t.Dims[0], pageTokens)
			return mat.Floats{}, false
		}
	}
	return b.floats("store", name, x, len(slots), width)
}

func (op *storeKV) run(w *worker, unit int) {
	op.put(op.kv.K, op.k, op.kwidth, unit, w.scratch.v)
	if op.v.V != nil {
		op.put(op.kv.V, op.v, op.vwidth, unit, w.scratch.v)
	}
}

// put stores the keys or values of a token, head by head if pages have one head after another.
func (op *storeKV) put(t tensor.Tensor, x mat.Floats, width, i int, scratch []float32) {
	heads, tokens := max(op.kv.Heads, 1), op.kv.PageTokens
	slot, each, dim := int(op.slots[i]), t.Dims[2]/heads, width/heads
	from := row(x, i, width)
	for h := range heads {
		at := slot/tokens*t.RowStride() + (h*tokens+slot%tokens)*each
		to := t.Data[t.DType.Bytes(int64(at)):][:t.DType.Bytes(int64(each))]
		switch part := from[h*dim:][:dim]; t.DType {
		case meta.BFloat16:
			op.set.Vector.NarrowBFloat16(to, part)
		case meta.Float32:
			copy(to, tensor.Floats(part, len(part)).Data)
		case meta.Int8:
			op.blocks(to, part, scratch[:quant.BlockColumns])
		default:
			f, _ := format(t.DType) // storable has checked the dtype
			mat.Narrow(to, part, f)
		}
	}
}

// blocks stores a head in blocks and pads the last one with zeros.
func (op *storeKV) blocks(to []byte, from, last []float32) {
	whole := len(from) &^ (quant.BlockColumns - 1)
	op.set.Quant.PackBlocks(quant.Q8, to, from[:whole])
	if whole < len(from) {
		clear(last[copy(last, from[whole:]):])
		op.set.Quant.PackBlocks(quant.Q8, to[whole/quant.BlockColumns*quant.Q8.BlockBytes():], last)
	}
}
