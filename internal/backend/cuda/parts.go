//go:build cuda

package cuda

import (
	"math/bits"

	"github.com/heftai/heft/internal/backend"
)

// attention mirrors the struct Attention of attention.h.
type attention struct {
	y, ys, q, qs                                    uint64
	k, kPage, kHead, kToken                         uint64
	v, vPage, vHead, vToken                         uint64
	rows, tables                                    uint64
	pageShift, group, dim, valueDim, scale, softcap uint64
	sinks, sinkFormat                               uint64
	parts                                           uint64
	heads, most                                     uint64
	tiles, tileCount                                uint64
}

const (
	partPositions = 64 // PART of attention.h
	partWarps     = 4
	partQueries   = 16
	mostPages     = 1 << 18 // in the page tables of a launch
	mostRows      = 1 << 14
)

// fastAttention reports whether the kernels of attention.h support keys and values stored this way.
func (b *Backend) fastAttention(k, v *pages, pageTokens int, a *backend.AttentionArgs) bool {
	aligned := (k.at|k.page|k.head|k.token|v.at|v.page|v.head|v.token)%16 == 0
	return b.options.Fast && len(a.Slopes) == 0 && a.Prompts != nil && aligned && bits.OnesCount(uint(pageTokens)) == 1 && k.format == formatBF16 && v.format == formatBF16 &&
		a.Dim <= 256 && a.ValueDim <= 256 && a.Dim%8 == 0 && a.ValueDim%8 == 0
}

// partRows are the rows of one launch: consecutive rows of the queries, and the positions that they
// see.
type partRows struct {
	whole       bool // a warp computes a tile's whole context
	first, most int
	rows        []int32 // three numbers each
	tables      []int32
	tiles       []int32 // two numbers each: the first row, and the number of rows of the same span
}

func (r *partRows) reset() {
	*r = partRows{whole: r.whole, rows: r.rows[:0], tables: r.tables[:0], tiles: r.tiles[:0]}
}

// add appends a row. The row joins the last tile if there is room and begin is false.
func (r *partRows) add(lo, hi, table, tileRows int, begin bool) {
	n := len(r.rows) / 3
	if last := len(r.tiles) - 1; begin || last < 0 || int(r.tiles[last]) == tileRows {
		r.tiles = append(r.tiles, int32(n), 1)
	} else {
		r.tiles[last]++
	}
	r.rows = append(r.rows, int32(lo), int32(hi), int32(table))
	r.most = max(r.most, r.partsTo(hi))
}

// partsTo returns the number of parts from the first position of the last tile up to a position.
func (r *partRows) partsTo(hi int) int {
	lo := int(r.rows[3*r.tiles[len(r.tiles)-2]])
	return (hi-1)/partPositions - lo/partPositions + 1
}

// attendFast computes spans with many tiles one tile per warp, and other spans in parts.
func (b *Backend) attendFast(spans []backend.Span, o *attention, pageTokens int, a *backend.AttentionArgs, in, out matrix) {
	r := &b.partRows
	for _, r.whole = range []bool{false, true} {
		for i := range spans {
			if s := &spans[i]; b.inRows(s, a) == r.whole {
				b.collect(s, s.Pages[:ceil(s.Start+s.Rows, pageTokens)], o, a, in, out)
			}
		}
		b.launchParts(o, a, in, out)
	}
}

// tileRows returns the maximum number of rows of a tile.
func tileRows(a *backend.AttentionArgs) int { return max(1, partQueries*a.KVHeads/a.Heads) }

// tileColumns returns the number of tiles for the heads of a row.
func tileColumns(a *backend.AttentionArgs) int {
	return ceil(a.Heads/a.KVHeads, partQueries) * a.KVHeads
}

// inRows reports whether a warp computes the whole context of a tile of s. Otherwise it computes
// one part, which is faster if there are few tiles. Both give the same bits.
func (b *Backend) inRows(s *backend.Span, a *backend.AttentionArgs) bool {
	return max(a.Dim, a.ValueDim) <= 128 && ceil(s.Rows, tileRows(a))*tileColumns(a) >= 2*b.multiprocessors
}

// collect adds the rows of a span to partRows. If there is no room for more, it first launches the
// rows collected so far.
func (b *Backend) collect(s *backend.Span, table []int32, o *attention, a *backend.AttentionArgs, in, out matrix) {
	r, each, perTile := &b.partRows, 4*a.Heads*(a.ValueDim+2), tileRows(a)
	at := -1 // offset of the table
	for j := range s.Rows {
		lo, hi := visible(s.Start+j, a)
		// A row's tile begins up to perTile - 1 positions before the first position that the row
		// sees.
		n, most := len(r.rows)/3, max(r.most, (hi-1)/partPositions-max(0, lo-perTile)/partPositions+1)
		if n > 0 && (s.First+j != r.first+n || !r.whole && each*most*(n+1) > scratchBytes || n == mostRows || at < 0 && len(r.tables)+len(table) > mostPages) {
			b.launchParts(o, a, in, out)
			n, at = 0, -1
		}
		if n == 0 {
			r.first = s.First + j
		}
		begin := at < 0
		if begin {
			at = len(r.tables)
			r.tables = append(r.tables, table...)
		}
		r.add(lo, hi, at, perTile, begin)
	}
}

// launchParts computes the attention of the collected rows and clears them.
func (b *Backend) launchParts(o *attention, a *backend.AttentionArgs, in, out matrix) {
	r := &b.partRows
	if n := len(r.rows) / 3; n > 0 && b.err == nil {
		b.room(len(r.rows), len(r.tables), len(r.tiles))
		o.rows, o.tables, o.tiles = send(b, r.rows), send(b, r.tables), send(b, r.tiles)
		o.most, o.tileCount = uint64(r.most), uint64(len(r.tiles)/2)
		x, y := in.row(r.first), out.row(r.first)
		o.q, o.qs, o.y, o.ys = x.at, x.stride, y.at, y.stride
		if r.whole {
			launchStruct(b, kernelAttendRows, ceil(len(r.tiles)/2, partWarps), tileColumns(a), 32*partWarps, o)
		} else {
			k := kernelAttendParts128
			if max(a.Dim, a.ValueDim) > 128 {
				k = kernelAttendParts256
			}
			o.parts = b.reserve(int64(4 * a.Heads * (a.ValueDim + 2) * r.most * n))
			launchStruct(b, k, len(r.tiles)/2*ceil(r.most, partWarps), tileColumns(a), 32*partWarps, o)
			launchStruct(b, kernelAttendSum, n, a.Heads, threads, o)
		}
	}
	r.reset()
}

// visible returns the positions [lo, hi) that the row at a position sees.
func visible(position int, a *backend.AttentionArgs) (lo, hi int) {
	if a.Window > 0 {
		lo = max(0, position+1-a.Window)
	}
	if a.Chunk > 0 {
		lo = max(lo, position/a.Chunk*a.Chunk)
	}
	return lo, position + 1
}
