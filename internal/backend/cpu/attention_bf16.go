package cpu

import (
	"math"
	"unsafe"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// The size of a tile of rounded attention: queries that share the cost of packing keys, and keys
// whose scores, weights and packs stay in the cache. Blocks of keys begin at multiples of their
// size, so that a query's sums do not depend on its tile.
const (
	roundedQueries = 256
	roundedKeys    = 256
	roundedBytes   = 768 << 10 // of queries and sums
	couple         = 2 * gemm.PanelTokens
	stateFloats    = int(unsafe.Sizeof(attention.Online{})) / 4
)

// roundedQueries returns the largest number of queries in a tile.
func (op *attentionOp) roundedQueries() int {
	n := roundedQueries
	for n > couple && n*(2*op.a.Dim+4*op.a.ValueDim) > roundedBytes {
		n /= 2
	}
	return n
}

// tileScratch has the parts of a tile's scratch memory. A couple is two panels of queries.
type tileScratch struct {
	columns   int // of the sums, a multiple of two packs
	panelSize int // words of a panel of queries, or a pack of keys
	blockSize int // words of a panel of weights, or a pack of values
	panels    []uint32
	keys      []uint32
	values    []uint32
	weights   []uint32
	scores    mat.Floats // of a couple, a row a key
	sums      []float32  // of all couples, each a row a column
	rows      []float32  // queries or results of a couple
	states    []float32  // of all panels
	lines     []byte     // two times 16 keys or values as bfloat16
	lineBytes int        // of a line
}

// layout assigns each part its place in scratch, in whole cache lines, and returns the total
// size. If scratch is nil, it only computes the size.
func (op *attentionOp) layout(r *tileScratch, scratch []float32, couples int) (floats int) {
	take := func(n int) []float32 {
		begin := floats
		floats += ceil(n, 16) * 16
		if scratch == nil {
			return nil
		}
		return scratch[begin:][:n]
	}
	dim, width, keys := op.a.Dim, op.a.ValueDim, min(roundedKeys, ceil(op.pitch, gemm.BlockK)*gemm.BlockK)
	r.columns = ceil(width, 2*gemm.PackRows) * 2 * gemm.PackRows
	r.panelSize, r.blockSize = gemm.PanelWords(dim), gemm.PanelWords(keys)
	r.lineBytes = 2 * ceil(max(dim, width), quant.BlockColumns) * quant.BlockColumns
	r.panels = words(take(2 * couples * r.panelSize))
	r.keys = words(take(keys / gemm.PackRows * r.panelSize))
	r.values = words(take(r.columns / gemm.PackRows * r.blockSize))
	r.weights = words(take(2 * r.blockSize))
	r.scores = mat.Floats{V: take(keys * couple), Stride: couple}
	r.sums = take(couples * r.columns * couple)
	r.rows = take(couple * max(dim, width))
	r.states = take(2 * couples * stateFloats)
	lines := take(2 * gemm.PackRows * r.lineBytes / 4)
	r.lines = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(lines))), 4*len(lines))
	return floats
}

func (op *attentionOp) roundedScratch() int {
	c := op.cutOf(attentionRounded)
	return op.layout(new(tileScratch), nil, ceil(c.tokens*c.heads, couple))
}

// state returns the state of panel i of queries.
func (r *tileScratch) state(i int) *attention.Online {
	return (*attention.Online)(unsafe.Pointer(&r.states[i*stateFloats]))
}

// roundedTile computes a tile one block of keys after another. Values that are not finite would
// reach queries that do not see them, as 0 times infinity. If there are any, each token is
// computed in a tile of its own.
func (op *attentionOp) roundedTile(scratch []float32, t *tileOf) {
	var r tileScratch
	op.layout(&r, scratch, ceil(t.tokens*t.heads, couple))
	if op.attend(&r, t) {
		return
	}
	one := *t
	one.tokens = 1
	for i := range t.tokens {
		one.first = t.first + i
		op.layout(&r, scratch, ceil(t.heads, couple))
		op.attend(&r, &one)
	}
}

// attend returns false if the tile has several tokens and a value is not finite.
func (op *attentionOp) attend(r *tileScratch, t *tileOf) bool {
	op.loadQueries(r, t)
	lo, _ := op.visible(t.span, t.first)
	_, hi := op.visible(t.span, t.first+t.tokens-1)
	by := float32(float64(op.a.Scale) * math.Log2E)
	if op.a.Softcap > 0 {
		by = math.Log2E
	}
	couples := ceil(t.tokens*t.heads, couple)
	for base := lo / roundedKeys * roundedKeys; base < hi; base += roundedKeys {
		begin := max(base, lo&^(gemm.BlockK-1))
		n := ceil(min(hi, base+roundedKeys)-begin, gemm.BlockK) * gemm.BlockK
		if finite := op.loadKeys(r, t, begin, n, lo, hi); !finite && t.tokens > 1 {
			return false
		}
		for c := range couples {
			op.addBlock(r, t, c, begin, n, by)
		}
	}
	for c := range couples {
		op.finish(r, t, c)
	}
	return true
}

// loadQueries packs the queries of a tile, token by token and head by head, and records which
// keys each sees.
func (op *attentionOp) loadQueries(r *tileScratch, t *tileOf) {
	m, dim := t.tokens*t.heads, op.a.Dim
	clear(r.sums)
	for c := 0; c < m; c += couple {
		for i := c; i < min(c+couple, m); i++ {
			q := op.q.V[(t.span.First+t.first+i/t.heads)*op.q.Stride+(t.head+i%t.heads)*dim:]
			copy(r.rows[(i-c)*dim:][:dim], q)
		}
		for p := c / gemm.PanelTokens; p < (c+couple)/gemm.PanelTokens; p++ {
			first := p * gemm.PanelTokens
			tokens, state := max(0, min(m-first, gemm.PanelTokens)), r.state(p)
			at := min(first-c, couple-1) * dim
			op.set.GEMM.PackTokens(r.panels[p*r.panelSize:], mat.Floats{V: r.rows[at:], Stride: dim}, tokens, dim)
			state.Reset()
			for i := range tokens {
				lo, hi := op.visible(t.span, t.first+(first+i)/t.heads)
				state.First[i], state.Count[i] = int32(lo), int32(hi-lo)
			}
		}
	}
}

// loadKeys packs n keys and values from position begin on, with zeros for positions outside of
// [lo, hi). It reports whether the values are finite.
func (op *attentionOp) loadKeys(r *tileScratch, t *tileOf, begin, n, lo, hi int) (finite bool) {
	finite = true
	half := len(r.lines) / 2
	for i := 0; i < n; i += gemm.BlockK {
		for j := i; j < i+gemm.BlockK; j += gemm.PackRows {
			w := op.k.lines(op.set, t, begin+j, lo, hi, op.a.Dim, r.lines[:half], r.lineBytes)
			op.set.GEMM.PackWeights(r.keys[j/gemm.PackRows*r.panelSize:], w, gemm.PackRows, op.a.Dim)
		}
		first := op.v.lines(op.set, t, begin+i, lo, hi, op.a.ValueDim, r.lines[:half], r.lineBytes)
		next := op.v.lines(op.set, t, begin+i+gemm.PackRows, lo, hi, op.a.ValueDim, r.lines[half:], r.lineBytes)
		if !op.set.Attention.PackTransposed(r.values[i/2*gemm.PackRows:], r.blockSize, first, next, op.a.ValueDim) {
			finite = false
		}
	}
	return finite
}

// lines returns 16 keys or values of a tile's head from a position on as bfloat16: in place if
// their layout allows it, else copied to room, with zeros outside of [lo, hi).
func (p *pages) lines(set *kernels.Set, t *tileOf, at, lo, hi, dim int, room []byte, stride int) mat.Weights {
	const n = gemm.PackRows
	if p.blocks == 0 && p.tokens%n == 0 && at%n == 0 && lo <= at && at+n <= hi {
		data := p.data[int(t.span.Pages[at/p.tokens])*p.page+at%p.tokens*p.row+t.kvHead*p.head:]
		return mat.Weights{Data: data, Stride: p.row, Format: mat.BFloat16}
	}
	if at < lo || at+n > hi {
		clear(room)
	}
	p.each(t.span.Pages, max(at, lo), min(at+n, hi), func(position, count int, data []byte) {
		to, data := room[(position-at)*stride:], data[t.kvHead*p.head:]
		if p.blocks > 0 {
			set.Attention.NarrowRows(to, stride, data, p.row, count, p.blocks)
			return
		}
		for i := range count {
			copy(to[i*stride:][:2*dim], data[i*p.row:])
		}
	})
	return mat.Weights{Data: room, Stride: stride, Format: mat.BFloat16}
}

// addBlock processes n keys from position begin on for couple c of queries, as far as they see
// them.
func (op *attentionOp) addBlock(r *tileScratch, t *tileOf, c, begin, n int, by float32) {
	if last := min((c+1)*couple, t.tokens*t.heads) - 1; op.unseen(t, c*couple/t.heads, last/t.heads, begin, begin+n) {
		return
	}
	set, dim := op.set, op.a.Dim
	panels, sums := r.panels[2*c*r.panelSize:], mat.Floats{V: r.sums[c*r.columns*couple:][:r.columns*couple], Stride: couple}
	set.GEMM.Couple(gemm.Tiles{C: r.scores, W: r.keys, WStride: r.panelSize, X: panels, XStride: r.panelSize, Blocks: ceil(dim, gemm.BlockK), Count: n / (2 * gemm.PackRows), Add: false})
	if softcap := op.a.Softcap; softcap > 0 {
		set.Vector.Tanh(r.scores.V[:n*couple], op.a.Scale/softcap, softcap)
	}
	for i := range 2 {
		state := r.state(2*c + i)
		set.Attention.Softmax(r.weights[i*r.blockSize:], from(r.scores, 0, i*gemm.PanelTokens), n, begin, by, state)
		set.Attention.ScaleLanes(from(sums, 0, i*gemm.PanelTokens), r.columns, &state.Factor)
	}
	set.GEMM.Couple(gemm.Tiles{C: sums, W: r.values, WStride: r.blockSize, X: r.weights, XStride: r.blockSize, Blocks: n / gemm.BlockK, Count: r.columns / (2 * gemm.PackRows), Add: true})
}

// unseen reports whether no token from first to last of a tile sees a key of [begin, end).
func (op *attentionOp) unseen(t *tileOf, first, last, begin, end int) bool {
	lo, _ := op.visible(t.span, t.first+first)
	_, hi := op.visible(t.span, t.first+last)
	return end <= lo || hi <= begin
}

// finish divides the sums of couple c by the sums of its weights and stores them.
func (op *attentionOp) finish(r *tileScratch, t *tileOf, c int) {
	width, m := op.a.ValueDim, t.tokens*t.heads
	sums := mat.Floats{V: r.sums[c*r.columns*couple:][:r.columns*couple], Stride: couple}
	for i := range 2 {
		state := r.state(2*c + i)
		for j := range state.Factor {
			total := float64(state.Sum[j])
			if op.sinks != nil {
				sink := float64(op.sinks[t.head+(c*couple+i*gemm.PanelTokens+j)%t.heads])
				total += math.Exp2(sink*math.Log2E - float64(state.Top[j]))
			}
			state.Factor[j] = float32(1 / total)
		}
		op.set.Attention.ScaleLanes(from(sums, 0, i*gemm.PanelTokens), r.columns, &state.Factor)
	}
	for at := 0; at < width; at += gemm.PackRows {
		rows := min(gemm.PackRows, width-at)
		op.set.GEMM.Transpose(mat.Floats{V: r.rows[at:], Stride: width}, from(sums, at, 0), op.zeros[:], rows, couple)
	}
	for i := c * couple; i < min((c+1)*couple, m); i++ {
		to := op.dst.V[(t.span.First+t.first+i/t.heads)*op.dst.Stride+(t.head+i%t.heads)*width:]
		copy(to[:width], r.rows[(i-c*couple)*width:])
	}
}
