//go:build cuda

package cuda

import "github.com/heftai/heft/internal/backend"

// attention is Attention of attention.h.
type attention struct {
	y, ys, q, qs                                     uint64
	k, kPage, kHead, kToken                          uint64
	v, vPage, vHead, vToken                          uint64
	rows, tables                                     uint64
	pageTokens, group, dim, valueDim, scale, softcap uint64
	sinks, sinkFormat                                uint64
	parts                                            uint64
	heads, most                                      uint64
}

const (
	partPositions = 64 // PART of attention.h
	partWarps     = 4
	partQueries   = 16
	mostPages     = 1 << 18 // of the rows of a launch
)

// fastAttention reports whether the kernels of attention.h attend to keys and values stored so.
func (b *Backend) fastAttention(k, v *pages, a *backend.AttentionArgs) bool {
	aligned := (k.at|k.page|k.head|k.token|v.at|v.page|v.head|v.token)%16 == 0
	return b.options.Fast && len(a.Slopes) == 0 && a.Prompts != nil && aligned && k.format == formatBF16 && v.format == formatBF16 &&
		a.Dim <= 256 && a.ValueDim <= 256 && a.Dim%8 == 0 && a.ValueDim%8 == 0
}

// partRows are the rows of one launch: consecutive ones of the queries, and what they see.
type partRows struct {
	first, most int
	rows        []int32 // three numbers each
	tables      []int32
}

// attendInParts computes all rows, as many at a time as the scratch has room for.
func (b *Backend) attendInParts(spans []backend.Span, o *attention, a *backend.AttentionArgs, in, out matrix) {
	r := &b.partRows
	*r = partRows{rows: r.rows[:0], tables: r.tables[:0]}
	each := 4 * a.Heads * (a.ValueDim + 2)
	for i := range spans {
		s := &spans[i]
		table := s.Pages[:ceil(s.Start+s.Rows, int(o.pageTokens))]
		at := -1 // of the table
		for j := range s.Rows {
			lo, hi := visible(s.Start+j, a)
			n, most := len(r.rows)/3, max(r.most, (hi-1)/partPositions-lo/partPositions+1)
			if n > 0 && (s.First+j != r.first+n || each*most*(n+1) > scratchBytes || at < 0 && len(r.tables)+len(table) > mostPages) {
				b.launchParts(o, a, in, out)
				n, at, most = 0, -1, (hi-1)/partPositions-lo/partPositions+1
			}
			if n == 0 {
				r.first = s.First + j
			}
			if at < 0 {
				at = len(r.tables)
				r.tables = append(r.tables, table...)
			}
			r.most = most
			r.rows = append(r.rows, int32(lo), int32(hi), int32(at))
		}
	}
	b.launchParts(o, a, in, out)
}

// launchParts attends for the rows that were collected, and forgets them.
func (b *Backend) launchParts(o *attention, a *backend.AttentionArgs, in, out matrix) {
	r := &b.partRows
	n := len(r.rows) / 3
	if n > 0 && b.err == nil {
		k := kernelAttendParts128
		if a.Dim > 128 || a.ValueDim > 128 {
			k = kernelAttendParts256
		}
		o.parts = b.reserve(int64(4 * a.Heads * (a.ValueDim + 2) * r.most * n))
		b.room(len(r.rows), len(r.tables))
		o.rows, o.tables = send(b, r.rows), send(b, r.tables)
		o.most = uint64(r.most)
		x, y := in.row(r.first), out.row(r.first)
		o.q, o.qs, o.y, o.ys = x.at, x.stride, y.at, y.stride
		launchStruct(b, k, n*ceil(r.most, partWarps), ceil(a.Heads/a.KVHeads, partQueries)*a.KVHeads, 32*partWarps, o)
		launchStruct(b, kernelAttendSum, n, a.Heads, threads, o)
	}
	*r = partRows{rows: r.rows[:0], tables: r.tables[:0]}
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
