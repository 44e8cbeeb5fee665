package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// rowsOfCodes is a random matrix of rows × width codes with a scale for tall × columns of them, and zeros where the format may have
// them and zeros is set. Scales of NF4 and FP4 are then bytes that have scales.
func rowsOfCodes(r *rand.Rand, packing quant.Packing, scales, round mat.Format, rows, width, tall, columns int, zeros bool) *quant.Packed {
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	floats := func(n int, f mat.Format) (b []byte) {
		for i := range n {
			v := float32(r.NormFloat64()) / 16
			if i%61 == 60 { // numbers that no sane file has are used as they are
				v = []float32{0, float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1)), 1e-38}[i/61%5]
			}
			data, _ := kerneltest.Store(f, []float32{v}, 0)
			b = append(b, data...)
		}
		return b
	}
	groups := mat.CeilDiv(rows, tall) * mat.CeilDiv(width, columns)
	p := &quant.Packed{Packing: packing, Width: width, Rows: tall, Columns: columns, ScaleFormat: scales, Global: 3, Round: round}
	p.Codes = random(rows * p.RowBytes())
	switch packing {
	case quant.NVFP4, quant.NVFP4Times, quant.E2M1Powers:
		p.Scales = random(groups)
	case quant.NF4, quant.FP4:
		p.ScaleFormat = mat.Float32
		if zeros {
			p.Scales, p.Zeros, p.Index = random(groups), floats(mat.CeilDiv(groups, 256), mat.Float32), floats(256, mat.Float32)
			break
		}
		p.Scales = floats(groups, mat.Float32)
	default:
		p.Scales = floats(groups, scales)
		if zeros && packing == quant.Int4Packed {
			p.Zeros = random(4 * mat.CeilDiv(rows, 8) * mat.CeilDiv(width, columns))
		} else if zeros && packing == quant.Int8 {
			p.Zeros = random(groups)
		}
	}
	return p
}

// dotCases are shapes of views; columns 0 stands for a scale for the row.
var dotCases = []struct {
	packings             []quant.Packing
	columns              []int
	zeros                bool
	tall                 int // 0 stands for 1
	rows, width          int
	row, step, col, cols int
	n, tokens            int
}{
	{packings: floatScales, columns: []int{32, 128, 0}, rows: 9, width: 512, step: 1, cols: 512, n: 9, tokens: 1},
	{packings: floatScales, columns: []int{32, 64, 0}, zeros: true, rows: 13, width: 256, row: 1, step: 2, col: 64, cols: 192, n: 6, tokens: 2},
	{packings: floatScales, columns: []int{64, 1152}, zeros: true, rows: 7, width: 2304, step: 1, cols: 2304, n: 7, tokens: 15},
	{packings: floatScales, columns: []int{96, 0}, rows: 4, width: 1440, step: 1, cols: 1440, n: 4, tokens: 4},
	{packings: floatScales, columns: []int{32}, rows: 1, width: 32, step: 1, cols: 32, n: 1, tokens: 32},
	{packings: []quant.Packing{quant.Int8, quant.BnbInt8}, columns: []int{128, 0}, zeros: true, tall: 3, rows: 11, width: 384, row: 2, step: 1, cols: 384, n: 9, tokens: 3},
	{packings: byteScales, columns: []int{16, 32}, rows: 9, width: 512, step: 1, cols: 512, n: 9, tokens: 1},
	{packings: byteScales, columns: []int{16, 32}, rows: 13, width: 256, row: 1, step: 2, col: 64, cols: 192, n: 6, tokens: 2},
	{packings: byteScales, columns: []int{16, 32}, rows: 7, width: 1056, step: 1, cols: 1056, n: 7, tokens: 15},
}

var (
	floatScales = []quant.Packing{quant.Int4Packed, quant.Int8, quant.BnbInt8, quant.NF4, quant.FP4}
	byteScales  = []quant.Packing{quant.NVFP4, quant.NVFP4Times, quant.E2M1Powers}
)

// eachDot runs test for views of all packings that DotRows takes.
func eachDot(t *testing.T, set *kernels.Set, test func(what string, w *quant.View, tokens int)) {
	t.Helper()
	r, tried := rand.New(rand.NewPCG(12, 28)), 0
	for _, c := range dotCases {
		for _, packing := range c.packings {
			for i, columns := range c.columns {
				if columns == 0 {
					columns = c.width
				}
				formats := []mat.Format{mat.Float16, mat.BFloat16, mat.Float32}
				p := rowsOfCodes(r, packing, formats[i%3], formats[(i+int(packing))%3], c.rows, c.width, max(c.tall, 1), columns, c.zeros)
				w := &quant.View{Packed: p, Row: c.row, Step: c.step, Col: c.col, Rows: c.n, Cols: c.cols}
				if !set.Quant.TakesDots(w) {
					continue
				}
				tried++
				test(fmt.Sprintf("%v in groups of %d, %+v", packing, columns, c), w, c.tokens)
			}
		}
	}
	if set.Quant.HasDots(quant.Q8) && tried < 60 {
		t.Errorf("%d views were tried", tried)
	}
}

// TestDotsOfRowsHaveTheBitsOfUnpackedRows: products with rows of codes that are widened in registers are those of the unpacked
// rows, for any group, scale, part of the matrix and number of tokens.
func TestDotsOfRowsHaveTheBitsOfUnpackedRows(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(11, 28))
		eachDot(t, set, func(what string, w *quant.View, tokens int) {
			x := mat.Floats{V: kerneltest.Random(r, tokens*(w.Cols+3)), Stride: w.Cols + 3}
			plain := mat.Floats{V: make([]float32, w.Rows*w.Cols), Stride: w.Cols}
			for i := range w.Rows {
				row := *w
				row.Row, row.Rows = w.Row+i*w.Step, 1
				set.Quant.Unpack(mat.Floats{V: plain.V[i*w.Cols:], Stride: w.Cols}, row, make([]float32, quant.UnpackScratch))
			}
			data, _ := kerneltest.Store(mat.Float32, plain.V, 0)
			want := mat.Floats{V: make([]float32, tokens*w.Rows), Stride: w.Rows}
			set.GEMV.Mul(&gemv.Product{Y: want, W: mat.Weights{Data: data, Stride: 4 * w.Cols, Format: mat.Float32}, X: x, Rows: w.Rows, Tokens: tokens, N: w.Cols})
			got := mat.Floats{V: make([]float32, tokens*(w.Rows+1)), Stride: w.Rows + 1}
			scratch := make([]float32, quant.DotScratch(w, tokens))
			for i := range scratch {
				scratch[i] = float32(math.NaN())
			}
			set.Quant.DotRows(got, w, x, tokens, scratch)
			for token := range tokens {
				kerneltest.Same(t, fmt.Sprintf("%s, token %d", what, token), got.V[token*got.Stride:][:w.Rows], want.V[token*want.Stride:][:w.Rows])
			}
		})
	})
}

// TestDotsOfRowsStayInside is TestStaysInside for them, with the matrix, its scales, the tokens and the scratch at the ends of
// their memory.
func TestDotsOfRowsStayInside(t *testing.T) {
	guarded := func(b []byte) []byte {
		out := kerneltest.Guarded(t, len(b))
		copy(out, b)
		return out
	}
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		eachDot(t, set, func(what string, w *quant.View, tokens int) {
			p := w.Packed
			if p.Codes, p.Scales = guarded(p.Codes), guarded(p.Scales); p.Zeros != nil {
				p.Zeros = guarded(p.Zeros)
			}
			x := mat.Floats{V: kerneltest.GuardedFloats(t, tokens*w.Cols), Stride: w.Cols}
			y := mat.Floats{V: kerneltest.GuardedFloats(t, tokens*w.Rows), Stride: w.Rows}
			set.Quant.DotRows(y, w, x, tokens, kerneltest.GuardedFloats(t, quant.DotScratch(w, tokens)))
		})
	})
}

// TestViewsThatDotsOfRowsDoNotTake: groups that begin inside the view's columns, columns in any group and other layouts are left
// to kernels that unpack rows.
func TestViewsThatDotsOfRowsDoNotTake(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 1))
		view := func(packing quant.Packing, columns int) quant.View {
			return quant.View{Packed: rowsOfCodes(r, packing, mat.Float16, mat.Float32, 4, 256, 1, columns, false), Step: 1, Rows: 4, Cols: 256}
		}
		w := map[string]quant.View{"columns inside 32": view(quant.Int4Packed, 128), "a group of 24 columns": view(quant.Int8, 24), "a part of a group": view(quant.NF4, 128), "act-order": view(quant.Int4Packed, 128), "a group that goes on in the next row": view(quant.NF4, 96), "two rows with a scale": view(quant.NVFP4, 16), "blocks": view(quant.Q41, 32)}
		for what, v := range w {
			switch what {
			case "columns inside 32":
				v.Cols -= 16
			case "a part of a group":
				v.Col, v.Cols = 64, 128
			case "act-order":
				v.Index = binary.LittleEndian.AppendUint32(nil, 0)
			case "two rows with a scale":
				v.Packed.Rows = 2
			}
			if set.Quant.TakesDots(&v) {
				t.Errorf("%s: taken", what)
			}
		}
	})
}

// BenchmarkDotsOfRows is the product of 32 rows of 4096 columns at a time of a matrix that does not stay in the cache with tokens.
// Beside it is the same by way of unpacked rows.
func BenchmarkDotsOfRows(b *testing.B) {
	const rows, width, unit = 4096, 4096, 32
	r := rand.New(rand.NewPCG(1, 2))
	for _, f := range []struct {
		packing quant.Packing
		columns int
		zeros   bool
	}{
		{quant.Int4Packed, 128, false}, {quant.Int4Packed, 128, true}, {quant.Int8, width, false}, {quant.BnbInt8, width, false}, {quant.NVFP4, 16, false}, {quant.NVFP4Times, 16, false},
		{quant.E2M1Powers, 32, false}, {quant.NF4, 64, false}, {quant.NF4, 64, true},
	} {
		p := rowsOfCodes(r, f.packing, mat.Float16, mat.BFloat16, rows, width, 1, f.columns, f.zeros)
		for _, tokens := range []int{1, 2, 4, 8} {
			for _, set := range kerneltest.Variants() {
				w := quant.View{Packed: p, Step: 1, Rows: unit, Cols: width}
				if !set.Quant.TakesDots(&w) || set.AMX || set.BF16 {
					continue
				}
				x, y := mat.Floats{V: kerneltest.Random(r, tokens*width), Stride: width}, mat.Floats{V: make([]float32, tokens*unit), Stride: unit}
				scratch, at := make([]float32, max(quant.DotScratch(&w, tokens), unit*width+quant.UnpackScratch)), 0
				run := func(way string, mul func()) {
					b.Run(fmt.Sprintf("%v/zeros=%v/%d/%s/%s", f.packing, f.zeros, tokens, set.Name, way), func(b *testing.B) {
						for b.Loop() {
							w.Row = at
							mul()
							at = (at + unit) % rows
						}
						b.ReportMetric(float64(tokens)*unit*width*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "Gmul/s")
					})
				}
				run("dots", func() { set.Quant.DotRows(y, &w, x, tokens, scratch) })
				data, _ := kerneltest.Store(mat.Float32, scratch[:unit*width], 0)
				plain := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), unit*width)
				run("unpacked", func() {
					for i := 0; i < unit; i += 8 { // rows that stay in the second-level cache
						part := w
						part.Row, part.Rows = w.Row+i, 8
						set.Quant.Unpack(mat.Floats{V: plain, Stride: width}, part, scratch)
						set.GEMV.Mul(&gemv.Product{Y: kerneltest.From(y, i), W: mat.Weights{Data: data, Stride: 4 * width, Format: mat.Float32}, X: x, Rows: 8, Tokens: tokens, N: width})
					}
				})
			}
		}
	}
}
