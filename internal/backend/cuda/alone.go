//go:build cuda

package cuda

import "github.com/heftai/heft/internal/backend"

// single and alone mirror the structs Single and Alone of alone.h.
type single struct {
	weight, stride       uint64
	x, y                 uint64
	bias, biasStep, rows uint64
	slot                 uint64
}

const singles = 16

type alone struct {
	parts                                 [singles]single
	cols, each, tiles, blocks, biasFormat uint64
	gated, gatedStride, activation, limit uint64
}

// Constants of alone.h: the columns that a block reads in one step, the bytes of its queue, and the
// rows of a tile.
const aloneTurn, aloneQueue, aloneRows = 1024, 8 * 2 * 16 * productThreads, 16

// mostAloneBytes is the maximum of a block's dynamic shared memory, in bytes.
const mostAloneBytes = 200 << 10

// aloneProducts computes the leading products of ps with one kernel if they are for single
// generated tokens with different inputs, as the products of a token's routed experts are. It
// returns how many products it computed.
func (b *Backend) aloneProducts(ps []backend.Product) (n int) {
	if !ofTokens(ps) {
		return 0
	}
	o := &b.alone
	*o = alone{}
	for n < len(ps) && n < singles && b.addSingle(o, n, &ps[n]) {
		n++
	}
	if n < 2 || o.parts[n-1].slot == 0 || b.err != nil {
		return 0
	}
	if launchStruct(b, kernelAlone, 1, 1, productThreads, o); b.err == nil {
		b.spread(&b.pending, n)
	}
	return n
}

// ofTokens is a quick check: it reports whether the first and the last product of ps have different
// single-row inputs. Most lists have one input, and aloneProducts can skip them.
func ofTokens(ps []backend.Product) bool {
	first, last := &ps[0], &ps[len(ps)-1]
	return first.X.Rows() == 1 && first.Role != backend.Prompt && !sameTensor(first.X, last.X)
}

// addSingle makes product p part i of o. It reports false if the kernel cannot compute p with the
// other parts.
func (b *Backend) addSingle(o *alone, i int, p *backend.Product) bool {
	if !p.Rounded || p.Role == backend.Prompt || p.X.Rows() != 1 || p.Dst.Rows() != 1 {
		return false
	}
	w, ok := b.weight("linear", p.W)
	if !ok || w.format != formatBF16 || !w.hasFast() || (w.at|w.stride|2*w.col|uint64(2*w.cols))%16 != 0 {
		return false
	}
	in, out, v := b.matrix("linear", "input", p.X, 1, w.cols), b.matrix("linear", "result", p.Dst, 1, w.rows), b.vector("linear", "bias", p.Bias, w.rows, w.rows)
	s := single{weight: w.at + w.row*w.stride + 2*w.col, stride: w.step * w.stride, x: in.at, y: out.at, bias: v.at, biasStep: v.step, rows: uint64(w.rows)}
	if i == 0 {
		o.cols, o.biasFormat, o.parts[0] = uint64(w.cols), v.format, s
		return aloneQueue+aloneToken(o.cols) <= mostAloneBytes
	}
	before := &o.parts[i-1]
	if s.slot = before.slot; s.x != before.x {
		s.slot++
	}
	if uint64(w.cols) != o.cols || v.format != o.biasFormat || s.rows != before.rows {
		return false
	}
	o.parts[i] = s
	return true
}

// aloneToken returns the bytes of one token's bfloat16 input, padded to a multiple of aloneTurn
// columns.
func aloneToken(cols uint64) int { return 2 * aloneTurn * ceil(int(cols), aloneTurn) }

// spread distributes the tiles of a pending launch of n parts over the GPU's multiprocessors. It
// starts more blocks if the tokens of a block's tiles do not fit in shared memory.
func (b *Backend) spread(p *pending, n int) {
	o := operandsOf[alone](p)
	parts, rows, tokens := n, aloneRows, int(o.parts[n-1].slot)+1
	if p.kernel == kernelAloneGated {
		parts, rows = n/2, aloneRows/2
	}
	each := ceil(int(o.parts[0].rows), rows)
	tiles := parts * each
	blocks := min(tiles, b.multiprocessors)
	shared := func() int { // shared memory of a block; its tiles may span this many parts
		return aloneQueue + min(tokens, (ceil(tiles, blocks)+each-2)/each+1)*aloneToken(o.cols)
	}
	for shared() > mostAloneBytes && blocks < tiles {
		blocks = min(2*blocks, tiles)
	}
	o.each, o.tiles, o.blocks = uint64(each), uint64(tiles), uint64(blocks)
	p.x, p.shared = blocks, shared()
}

// gateAlone fuses a gate into the pending products of single tokens. It reports false unless the
// gate has as many rows as the launch has pairs of products.
func (b *Backend) gateAlone(out, gate, up matrix, rows, cols int, act, limit uint64) bool {
	p := &b.pending
	o := operandsOf[alone](p)
	if 2*rows > singles || 2*rows < singles && o.parts[2*rows].rows != 0 || o.parts[2*rows-1].rows != uint64(cols) {
		return false
	}
	for i := range rows {
		one, two := &o.parts[2*i], &o.parts[2*i+1]
		if one.y != gate.row(i).at || two.y != up.row(i).at || one.x != two.x || o.reads(out.row(i).at, uint64(cols)) {
			return false
		}
	}
	o.gated, o.gatedStride, o.activation, o.limit = out.at, out.stride, act, limit
	p.kernel = kernelAloneGated
	b.spread(p, 2*rows)
	return true
}

// reads reports whether n floats from address at on overlap a token, which blocks may read at any
// time.
func (o *alone) reads(at, n uint64) bool {
	for i := range o.parts {
		if o.parts[i].rows > 0 && overlap(o.parts[i].x, o.cols, at, n) {
			return true
		}
	}
	return false
}

// overlap reports whether n floats from address a on and m floats from address b on overlap.
func overlap(a, n, b, m uint64) bool { return a < b+4*m && b < a+4*n }
