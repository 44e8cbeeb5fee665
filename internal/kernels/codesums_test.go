package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// codesOf is a random matrix of rows × width integer codes with a scale and a zero for each column of a group of rows.
func codesOf(r *rand.Rand, packing quant.Packing, scales mat.Format, rows, width, group int) *quant.Packed {
	groups := mat.CeilDiv(rows, group)
	p := &quant.Packed{Packing: packing, Width: width, Rows: group, Columns: 1, ScaleFormat: scales, ZeroWords: [3]uint32{r.Uint32()}}
	bytes := 2 // of 4 codes
	if packing == quant.Int8Rows {
		bytes = 4
	}
	p.Codes, p.Zeros, p.Scales = make([]byte, rows*width*bytes/4), make([]byte, groups*width*bytes/4), make([]byte, groups*width*scales.Size())
	for _, b := range [][]byte{p.Codes, p.Zeros} {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	for i := range groups * width {
		v := float32(r.NormFloat64()) / 16
		if i%61 == 0 { // numbers that no sane file has are used as they are
			v = []float32{0, float32(math.Inf(1)), float32(math.NaN()), float32(math.Copysign(0, -1)), 1e-38}[i/61%5]
		}
		switch b := p.Scales[i*scales.Size():]; scales {
		case mat.Float32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(v))
		case mat.BFloat16:
			binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(v)>>16))
		default: // the bits of an ordinary number of float16, or of infinity
			binary.LittleEndian.PutUint16(b, uint16(r.IntN(0x7c01)))
		}
	}
	return p
}

// TestCodeSumsHaveTheBitsOfUnpackedWeights: products of columns of integer codes that are widened in registers are those of
// the unpacked matrix, for any group, scale, part of the matrix and number of tokens.
func TestCodeSumsHaveTheBitsOfUnpackedWeights(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(11, 28))
		for _, packing := range []quant.Packing{quant.Int4Rows, quant.Int8Rows, quant.Int4Columns} {
			for _, c := range []struct {
				scales                  mat.Format
				rows, width, group, col int
				row, n, tokens          int
			}{
				{mat.Float16, 128, 128, 128, 0, 0, 128, 1},
				{mat.BFloat16, 320, 256, 32, 128, 0, 320, 1},
				{mat.Float32, 512, 384, 64, 152, 64, 432, 1},
				{mat.Float16, 272, 128, 272, 0, 0, 272, 3},
				{mat.Float32, 160, 264, 48, 8, 16, 144, 8},
				{mat.BFloat16, 16, 128, 16, 0, 0, 16, 2},
				{mat.Float16, -320, 256, 32, 128, 64, 256, 1}, // with rows of groups in any order
				{mat.Float32, -128, 128, 128, 0, 0, 128, 4},
			} {
				p := codesOf(r, packing, c.scales, max(c.rows, -c.rows), c.width, c.group)
				if c.rows < 0 && packing != quant.Int4Columns {
					for range -c.rows {
						p.Index = binary.LittleEndian.AppendUint32(p.Index, r.Uint32N(uint32(-c.rows/c.group)))
					}
				}
				w := quant.View{Packed: p, Row: c.row, Step: 1, Col: c.col, Rows: c.n, Cols: quant.SumColumns}
				if !w.TakesSums() {
					t.Fatalf("%v, %+v: no kernel", packing, c)
				}
				x := mat.Floats{V: make([]float32, c.tokens*(c.n+3)), Stride: c.n + 3}
				for i := range x.V {
					x.V[i] = float32(r.NormFloat64())
				}
				each := set.Lanes * quant.SumColumns
				got := make([]float32, c.tokens*each)
				if !set.Quant.AddCodes(got, x, c.tokens, &w, make([]float32, quant.SumScratch(&w))) {
					t.Fatalf("%v, %+v: not added", packing, c)
				}
				plain := mat.Floats{V: make([]float32, c.n*quant.SumColumns), Stride: quant.SumColumns}
				set.Quant.Unpack(plain, w, make([]float32, quant.UnpackScratch))
				data, _ := kerneltest.Store(mat.Float32, plain.V, 0)
				unpacked := mat.Weights{Data: data, Stride: 4 * plain.Stride, Format: mat.Float32}
				for token := range c.tokens {
					lanes := make([]float32, each)
					set.GEMV.AddLanes(lanes, x.V[token*x.Stride:][:c.n], unpacked, quant.SumColumns)
					for i, want := range lanes {
						at := i/quant.SumColumns*quant.SumColumns + packing.SumPlace(i%quant.SumColumns)
						if v := got[token*each+at]; math.Float32bits(v) != math.Float32bits(want) && !(v != v && want != want) {
							t.Fatalf("%v, %+v, token %d: lane %d of column %d is %v, want %v", packing, c, token, i/quant.SumColumns, i%quant.SumColumns, v, want)
						}
					}
				}
			}
		}
	})
}

// TestScalesOfGroupsThatNoRowHasAreNotRead: a file may have as many groups as its index names, and fewer than its rows would
// have in order.
func TestScalesOfGroupsThatNoRowHasAreNotRead(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		p := codesOf(rand.New(rand.NewPCG(2, 1)), quant.Int4Rows, mat.Float16, 64, 128, 64)
		p.Rows, p.Index = 16, make([]byte, 4*64) // one group instead of four
		w := quant.View{Packed: p, Step: 1, Rows: 64, Cols: quant.SumColumns}
		if !set.Quant.AddCodes(make([]float32, set.Lanes*quant.SumColumns), mat.Floats{V: make([]float32, 64), Stride: 64}, 1, &w, make([]float32, quant.SumScratch(&w))) {
			t.Error("rows of one group were not added")
		}
	})
}

// TestAGroupThatDoesNotExistIsNotAdded: an index that names more groups than there are is left to other kernels.
func TestAGroupThatDoesNotExistIsNotAdded(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		p := codesOf(rand.New(rand.NewPCG(1, 1)), quant.Int4Rows, mat.Float16, 64, 128, 32)
		for _, group := range []uint32{2, math.MaxUint32} {
			p.Index = binary.LittleEndian.AppendUint32(make([]byte, 4*63), group)
			w := quant.View{Packed: p, Step: 1, Rows: 64, Cols: quant.SumColumns}
			if lanes := make([]float32, set.Lanes*quant.SumColumns); set.Quant.AddCodes(lanes, mat.Floats{V: make([]float32, 64), Stride: 64}, 1, &w, make([]float32, quant.SumScratch(&w))) {
				t.Errorf("group %d of 2 was added", int32(group))
			}
		}
	})
}

// TestCodeSumsStayInside is TestStaysInside for them, with the matrix, its scales, the tokens and the scratch at the ends of
// their memory.
func TestCodeSumsStayInside(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for _, packing := range []quant.Packing{quant.Int4Rows, quant.Int8Rows, quant.Int4Columns} {
			for rows := 16; rows <= 304; rows += 96 {
				for tokens := 1; tokens <= 2; tokens++ {
					const width, group = 2 * quant.SumColumns, 64
					p := codesOf(rand.New(rand.NewPCG(1, 1)), packing, mat.Float16, rows, width, group)
					p.Codes, p.Scales, p.Zeros = kerneltest.Guarded(t, len(p.Codes)), kerneltest.Guarded(t, len(p.Scales)), kerneltest.Guarded(t, len(p.Zeros))
					x := mat.Floats{V: kerneltest.GuardedFloats(t, tokens*rows), Stride: rows}
					w := quant.View{Packed: p, Step: 1, Col: width - quant.SumColumns, Rows: rows, Cols: quant.SumColumns}
					set.Quant.AddCodes(kerneltest.GuardedFloats(t, tokens*set.Lanes*quant.SumColumns), x, tokens, &w, kerneltest.GuardedFloats(t, quant.SumScratch(&w)))
				}
			}
		}
	})
}

// BenchmarkCodeSums is the product of 128 columns of 4096 rows with tokens, in groups of 128 rows, of GPTQ also with
// groups in any order; the matrix does not stay in the cache. Beside it is the same by way of unpacked rows.
func BenchmarkCodeSums(b *testing.B) {
	const rows, width = 4096, 4096
	r := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []string{"gptq", "act-order", "gptq 8 bits", "awq"} {
		packing := map[string]quant.Packing{"gptq": quant.Int4Rows, "act-order": quant.Int4Rows, "gptq 8 bits": quant.Int8Rows, "awq": quant.Int4Columns}[kind]
		p := codesOf(r, packing, mat.Float16, rows, width, 128)
		if kind == "act-order" {
			for range rows {
				p.Index = binary.LittleEndian.AppendUint32(p.Index, r.Uint32N(rows/128))
			}
		}
		for _, tokens := range []int{1, 8} {
			for _, set := range kerneltest.Variants() {
				x := mat.Floats{V: make([]float32, tokens*rows), Stride: rows}
				each, at := set.Lanes*quant.SumColumns, 0
				lanes := make([]float32, tokens*each)
				run := func(way string, add func(w *quant.View, scratch []float32)) {
					b.Run(fmt.Sprintf("%s/%d/%s/%s", kind, tokens, set.Name, way), func(b *testing.B) {
						w := quant.View{Packed: p, Step: 1, Rows: rows, Cols: quant.SumColumns}
						scratch := make([]float32, quant.SumScratch(&w)+quant.UnpackScratch+32*quant.SumColumns)
						for b.Loop() {
							w.Col = at
							add(&w, scratch)
							at = (at + quant.SumColumns) % width
						}
						b.ReportMetric(float64(tokens)*rows*quant.SumColumns*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "Gmul/s")
					})
				}
				run("sums", func(w *quant.View, scratch []float32) { set.Quant.AddCodes(lanes, x, tokens, w, scratch) })
				run("unpacked", func(w *quant.View, scratch []float32) {
					const lines = 32
					block, part := mat.Floats{V: scratch[quant.UnpackScratch:][:lines*quant.SumColumns], Stride: quant.SumColumns}, *w
					data, _ := kerneltest.Store(mat.Float32, block.V, 0)
					for part.Rows = lines; part.Row < rows; part.Row += lines {
						set.Quant.Unpack(block, part, scratch)
						for t := range tokens {
							set.GEMV.AddLanes(lanes[t*each:][:each], x.V[t*rows+part.Row:][:lines], mat.Weights{Data: data, Stride: 4 * quant.SumColumns, Format: mat.Float32}, quant.SumColumns)
						}
					}
				})
			}
		}
	}
}
