package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// PanelSums computes products of rows of values with x by SumPanels.
func PanelSums(s *kernels.Set, values []float32, width, row, step, col, rows int, x []float32, tokens, n int) []float32 {
	lanes := s.GEMM.PanelLanes()
	y := mat.Floats{V: make([]float32, tokens*rows), Stride: rows}
	panels, apart := mat.CeilDiv(tokens, s.GEMM.PanelRows()), lanes*n
	left := make([]float32, panels*apart)
	for i := range panels {
		t := i * s.GEMM.PanelRows()
		s.GEMM.PackColumns(left[i*apart:], mat.Floats{V: x[t*n:], Stride: n}, min(s.GEMM.PanelRows(), tokens-t), n)
	}
	for r := 0; r < rows; r += 2 * lanes {
		right := make([]float32, 2*apart)
		for i := range min(2*lanes, rows-r) {
			for k := range n {
				right[i/lanes*apart+k*lanes+i%lanes] = values[(row+(r+i)*step)*width+col+k]
			}
		}
		s.GEMM.SumPanels(gemm.PanelProduct{C: From(y, r), A: left, AStride: apart, B: right, Rows: tokens, Cols: min(2*lanes, rows-r), N: n, Add: false})
	}
	return y.V
}

// Summed computes products by panels of widened rows.
func Summed(set *kernels.Set, f mat.Format, v, x []float32, rows, tokens, n int) []float32 {
	lanes := set.GEMM.PanelLanes()
	data, _ := Store(f, v, 1)
	left, y := Pack(set, mat.Floats{V: x, Stride: n}, true, set.GEMM.PanelRows(), tokens, n), make([]float32, tokens*rows)
	for r := 0; r < rows; r += 2 * lanes {
		both := make([]float32, 2*lanes*n)
		for half := range 2 {
			at := min(r+half*lanes, rows)
			set.GEMM.WidenColumns(both[half*lanes*n:], mat.Weights{Data: data[at*n*f.Size():], Stride: n * f.Size(), Format: f}, min(lanes, rows-at), n, 0)
		}
		set.GEMM.SumPanels(gemm.PanelProduct{C: mat.Floats{V: y[r:], Stride: rows}, A: left, AStride: n * lanes, B: both, Rows: tokens, Cols: min(2*lanes, rows-r), N: n, Add: false})
	}
	return y
}

// Grouped computes Mul's product by groups, with k split into pieces of the given number of
// rounds of the lanes.
func Grouped(set *kernels.Set, w mat.Weights, x mat.Floats, rows, tokens, n, rounds int) []float32 {
	y := make([]float32, tokens*rows)
	group, step := make([]float32, set.GEMM.GroupFloats(set.GEMM.GroupTokens, n)), rounds*set.Lanes
	sums, packed := make([]float32, set.GEMM.SumFloats(rows)), make([]float32, set.GEMM.GroupFloats(mat.CeilDiv(rows, gemm.GroupRows)*gemm.GroupRows, step))
	for t := 0; t < tokens; t += set.GEMM.GroupTokens {
		count := min(set.GEMM.GroupTokens, tokens-t)
		set.GEMM.PackGroup(group, mat.Floats{V: x.V[t*x.Stride:], Stride: x.Stride}, count, n)
		for k := 0; k < n; k += step {
			part := w
			part.Data = w.Data[k*w.Format.Size():]
			set.GEMM.PackGroups(packed, part, rows, min(step, n-k))
			out := mat.Floats{V: y[t*rows:], Stride: rows}
			set.GEMM.MulGroups(gemm.GroupProduct{Y: out, W: packed, X: group[k*set.GEMM.GroupTokens:], Next: nil, Sums: sums, Rows: rows, Tokens: count, N: min(step, n-k), First: k == 0, Last: k+step >= n})
		}
	}
	return y
}

// BySplit computes Mul's product by split tokens, with k split into pieces of step.
func BySplit(set *kernels.Set, w mat.Weights, x mat.Floats, rows, tokens, n, step int) []float32 {
	y := make([]float32, tokens*rows)
	for t := 0; t < tokens; {
		group := set.GEMV.SplitGroup(tokens - t)
		split, sums := make([]float32, group*set.GEMV.SplitFloats(n)), make([]float32, set.GEMV.SplitSums(rows, group))
		set.GEMV.SplitTokens(split, mat.Floats{V: x.V[t*x.Stride:], Stride: x.Stride}, group, n)
		for k := 0; k < n; k += step {
			part := w
			part.Data = w.Data[2*k:]
			set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: y[t*rows:], Stride: rows}, W: part, X: split[k*group:], Sums: sums, Rows: rows, Tokens: group, N: min(step, n-k), K: k, Last: k+step >= n})
		}
		t += group
	}
	return y
}

// Interleaved returns a matrix with interleaved rows, and its values.
func Interleaved(random *rand.Rand, packing quant.Packing, rows, width int) (*quant.Packed, []float32) {
	blocks, values := RandomBlocks(random, packing, rows*width/32), make([]float32, rows*width)
	quant.UnpackBlocks(packing, values, blocks)
	p := &quant.Packed{Packing: packing, Codes: make([]byte, len(blocks)), Width: width, Height: rows, Rows: 1, Columns: 32}
	reference := *kernels.For(isa.Portable())
	reference.Quant.Interleave(packing, p.Codes, blocks, width/32*packing.BlockBytes(), rows, width/32)
	return p, values
}

// Pack packs rows of x, or its columns, into panels of height rows.
func Pack(set *kernels.Set, x mat.Floats, turned bool, height, rows, n int) []float32 {
	size := n * set.GEMM.PanelLanes()
	panels := mat.CeilDiv(rows, height)
	dst := make([]float32, (panels+panels%2)*size)
	if !turned {
		set.GEMM.PackLines(mat.Floats{V: dst, Stride: size}, x, rows, height, n)
	}
	for p := 0; turned && p < panels; p++ {
		set.GEMM.PackColumns(dst[p*size:][:size], mat.Floats{V: x.V[p*height*x.Stride:], Stride: x.Stride}, min(height, rows-p*height), n)
	}
	return dst
}

// PanelsOf returns panels of n terms, stored one after another in v.
func PanelsOf(set *kernels.Set, v []float32, n int) mat.Floats {
	return mat.Floats{V: v, Stride: n * set.GEMM.PanelLanes()}
}

// PacksOf returns the packs that PackAll wrote to v.
func PacksOf(v []uint32, parts, n int) gemm.Packs {
	return gemm.Packs{V: v, Parts: parts, Words: gemm.PanelWords(n)}
}

// PackAll packs all rows of x into packs or panels, or all columns if lines is set. Their number
// is even.
func PackAll(set *kernels.Set, x mat.Floats, panel, lines bool, parts, rows, n int) []uint32 {
	words := parts * gemm.PanelWords(n)
	count := mat.CeilDiv(rows, 2*gemm.PackRows) * 2
	dst := make([]uint32, count*words)
	for i := range count {
		width := min(gemm.PackRows, rows-i*gemm.PackRows)
		from := mat.Floats{Stride: x.Stride}
		if width > 0 {
			at := i * gemm.PackRows * x.Stride
			if lines {
				at = i * gemm.PackRows
			}
			from.V = x.V[at:]
		}
		set.GEMM.PackParts(dst[i*words:], gemm.PanelWords(n), from, gemm.PartsLayout{Panel: panel, Lines: lines, Parts: parts, Width: width, N: n})
	}
	return dst
}

// Transposed returns the transpose of x, a matrix of the given rows with n columns.
func Transposed(x []float32, rows, n int) []float32 {
	out := make([]float32, len(x))
	for i := range rows {
		for k := range n {
			out[k*rows+i] = x[i*n+k]
		}
	}
	return out
}

// Tiled computes a product by packs and panels, with k split into steps of some blocks.
func Tiled(set *kernels.Set, data []byte, x, bias []float32, rows, tokens, n, step int) []float32 {
	couples, size := mat.CeilDiv(tokens, 2*gemm.PanelTokens), gemm.PanelWords(n)
	panels, packs := make([]uint32, 2*couples*size), make([]uint32, 2*size)
	for i := range 2 * couples {
		count := max(0, min(gemm.PanelTokens, tokens-i*gemm.PanelTokens))
		set.GEMM.PackTokens(panels[i*size:], mat.Floats{V: x[min(i*gemm.PanelTokens, tokens)*n:], Stride: n}, count, n)
	}
	y := make([]float32, tokens*rows)
	c := mat.Floats{V: make([]float32, 2*gemm.PackRows*2*gemm.PanelTokens*couples), Stride: 2 * gemm.PanelTokens * couples}
	for r := 0; r < rows; r += 2 * gemm.PackRows {
		for i := range 2 {
			at := min(r+i*gemm.PackRows, rows)
			set.GEMM.PackWeights(packs[i*size:], mat.Weights{Data: data[at*2*n:], Stride: 2 * n, Format: mat.BFloat16}, min(gemm.PackRows, rows-at), n)
		}
		for b := 0; b < mat.CeilDiv(n, gemm.BlockK); b += step {
			at := b * gemm.BlockK / 2 * gemm.PackRows
			set.GEMM.Tile(gemm.Tiles{C: c, W: packs[at:], WStride: size, X: panels[at:], XStride: size, Blocks: min(step, mat.CeilDiv(n, gemm.BlockK)-b), Count: couples, Add: b > 0})
		}
		for i := r; i < min(r+2*gemm.PackRows, rows); i += gemm.PackRows {
			var own []float32
			if bias != nil {
				own = bias[i:]
			}
			part := mat.Floats{V: c.V[(i-r)*c.Stride:], Stride: c.Stride}
			set.GEMM.Transpose(mat.Floats{V: y[i:], Stride: rows}, part, own, min(gemm.PackRows, rows-i), tokens)
		}
	}
	return y
}

// MulInts computes MulInt8's product of rows of p with x in two calls, split at column half.
func MulInts(s *kernels.Set, p *quant.Packed, row, step, col, rows int, x []float32, tokens, n, half int) []float32 {
	in := mat.Pairs{V: make([]uint32, tokens*s.QGEMM.Int8Words(p.Packing, n)), Stride: s.QGEMM.Int8Words(p.Packing, n)}
	for i := range tokens {
		s.QGEMM.RoundInt8(p.Packing, in.V[i*in.Stride:], x[i*n:][:n])
	}
	y := mat.Floats{V: make([]float32, tokens*rows), Stride: rows}
	s.QGEMM.MulInt8(y, quant.View{Packed: p, Row: row, Step: step, Col: col, Rows: rows, Cols: half}, in, tokens, false)
	in.V = in.V[s.QGEMM.Int8Words(p.Packing, half):]
	s.QGEMM.MulInt8(y, quant.View{Packed: p, Row: row, Step: step, Col: col + half, Rows: rows, Cols: n - half}, in, tokens, true)
	return y.V
}

// Quantised returns matrices of random codes with arbitrary scales, by name.
func Quantised() map[string]*quant.Packed {
	random := rand.New(rand.NewPCG(1, 2))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	const rows, width = 72, 224
	return map[string]*quant.Packed{
		"e4m3":    {Packing: quant.E4M3, Codes: bytes(rows * width), Width: width, Scales: bytes(4 * 3 * 4), ScaleFormat: mat.Float32, Rows: 30, Columns: 70},
		"mxfp4":   {Packing: quant.MXFP4, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(rows * width / 32), Rows: 1, Columns: 32},
		"rows":    {Packing: quant.Int4Rows, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(2 * 3 * width), ScaleFormat: mat.Float16, Rows: 24, Columns: 1, Zeros: bytes(3 * width / 2), ZeroWords: [3]uint32{0x11111111}},
		"columns": {Packing: quant.Int4Columns, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(2 * 3 * width), ScaleFormat: mat.BFloat16, Rows: 24, Columns: 1, Zeros: bytes(3 * width / 2)},
	}
}

// Minifloats returns a matrix of random codes with scales around 1.
func Minifloats(r *rand.Rand, packing quant.Packing, rows, width, blockRows, blockColumns int) *quant.Packed {
	p := &quant.Packed{Packing: packing, Width: width, Rows: blockRows, Columns: blockColumns}
	scales := mat.CeilDiv(rows, blockRows) * mat.CeilDiv(width, blockColumns)
	if p.Codes = make([]byte, rows*width); packing == quant.MXFP4 || packing == quant.E2M1Powers {
		p.Codes = p.Codes[:rows*width/2]
	}
	if p.Scales = make([]byte, scales); packing != quant.E4M3 {
		for i := range p.Scales {
			p.Scales[i] = byte(120 + r.IntN(10))
		}
	} else {
		p.Scales, p.ScaleFormat = make([]byte, 4*scales), mat.Float32
		for i := 0; i < len(p.Scales); i += 4 {
			binary.LittleEndian.PutUint32(p.Scales[i:], math.Float32bits(0.5+r.Float32()))
		}
	}
	for i := range p.Codes {
		if p.Codes[i] = byte(r.Uint32()); p.Codes[i]&0x7f == 0x7f {
			p.Codes[i]--
		}
	}
	return p
}

// MulCodes computes the products of tokens with every step-th row from row on.
func MulCodes(set *kernels.Set, p *quant.Packed, row, step, rows int, x mat.Floats, tokens, n int) []float32 {
	y := make([]float32, tokens*rows)
	for t := 0; t < tokens; {
		group := set.QGEMM.MinifloatGroup(tokens - t)
		packed, scratch := make([]float32, group*set.QGEMM.MinifloatFloats(p, n)), make([]float32, set.QGEMM.MinifloatScratch(p, rows, group, n))
		for i := range scratch {
			scratch[i] = float32(math.NaN())
		}
		set.QGEMM.PackMinifloat(packed, p, mat.Floats{V: x.V[t*x.Stride:], Stride: x.Stride}, group, n)
		set.QGEMM.MulMinifloat(mat.Floats{V: y[t*rows:], Stride: rows}, quant.View{Packed: p, Row: row, Step: step, Rows: rows, Cols: n}, packed, scratch, group)
		t += group
	}
	return y
}
