package qgemm_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// rowHalves are the packings with kernels for rows, and where their blocks have float16.
var rowHalves = map[quant.Packing][]int{
	quant.Q41: {0, 2}, quant.Q50: {0}, quant.Q51: {0, 2}, quant.IQ4NL: {0}, quant.Q2K: {80, 82}, quant.Q3K: {108},
	quant.Q4K: {0, 2}, quant.Q5K: {0, 2}, quant.IQ4XS: {0}, quant.Q6K: {208},
	quant.MXFP4Block: {}, quant.IQ2XXS: {0}, quant.IQ2XS: {0}, quant.IQ2S: {0}, quant.IQ3XXS: {0}, quant.IQ3S: {0},
	quant.TQ10: {52}, quant.TQ20: {64}, quant.NVFP4Block: {}, quant.Q10: {0}, quant.Q20: {0}, quant.IQ1S: {0}, quant.IQ1M: {},
}

// rowBlocks is rows of random blocks.
func rowBlocks(random *rand.Rand, p quant.Packing, rows, width int) *quant.Packed {
	w := &quant.Packed{Packing: p, Width: width, Rows: 1, Columns: p.BlockColumns()}
	w.Codes = make([]byte, rows*w.RowBytes())
	for i := range w.Codes {
		w.Codes[i] = byte(random.Uint32())
	}
	for i := 0; i < len(w.Codes); i += p.BlockBytes() {
		for _, at := range rowHalves[p] {
			binary.LittleEndian.PutUint16(w.Codes[i+at:], mat.ToFloat16(float32(random.NormFloat64())))
		}
		if p == quant.MXFP4Block { // a power of two
			w.Codes[i] = byte(120 + random.IntN(16))
		}
		ordinaryIQ1M(w, i)
	}
	return w
}

// ordinaryIQ1M makes the scale of a block of IQ1M, whose bits are in four bytes, an ordinary number.
func ordinaryIQ1M(w *quant.Packed, at int) {
	if w.Packing == quant.IQ1M {
		w.Codes[at+53], w.Codes[at+55] = w.Codes[at+53]&15|0xc0, w.Codes[at+55]&15|0x30
	}
}

// mulRows rounds tokens and multiplies them.
func mulRows(s *kernels.Set, w quant.View, x []float32, tokens int) []float32 {
	in := mat.Pairs{V: make([]uint32, tokens*qgemm.RowsWords(w.Cols)), Stride: qgemm.RowsWords(w.Cols)}
	for t := range tokens {
		s.QGEMM.RoundRows(in.V[t*in.Stride:], x[t*w.Cols:][:w.Cols])
	}
	y := mat.Floats{V: make([]float32, tokens*w.Rows), Stride: w.Rows}
	s.QGEMM.MulRows(y, w, in, tokens)
	return y.V
}

// TestMulRows: products are those of the unpacked rows with the rounded inputs. All variants have the same bits, for
// any number of rows and tokens and any step of the rows.
func TestMulRows(t *testing.T) {
	const tokens, height = 7, 27
	random := rand.New(rand.NewPCG(21, 22))
	for p := range rowHalves {
		for _, width := range []int{p.BlockColumns(), 3 * p.BlockColumns(), 2304} {
			w := rowBlocks(random, p, height, width)
			values := make([]float32, height*width)
			quant.UnpackBlocks(p, values, w.Codes)
			x := make([]float32, tokens*width)
			var in []float64
			for i := range x {
				x[i] = float32(random.NormFloat64() * math.Ldexp(1, i/width*9-20))
			}
			for i := range tokens {
				in = append(in, roundedInts(x[i*width:][:width])...)
			}
			for _, c := range [][3]int{{0, 1, height}, {0, 2, 13}, {1, 1, 8}, {26, 1, 1}, {3, 5, 3}} {
				view := quant.View{Packed: w, Row: c[0], Step: c[1], Rows: c[2], Cols: width}
				var first []float32
				for _, s := range kerneltest.Variants() {
					if !s.QGEMM.HasRows(w, 0, width) {
						continue
					}
					what := fmt.Sprintf("%v, %s, width %d, rows %v", p, s.Name, width, c)
					got := mulRows(&s, view, x, tokens)
					if first == nil {
						first = got
						nearRows(t, what, values, in, view, got)
					}
					kerneltest.SameBits(t, what, got, first)
					for i := range tokens {
						kerneltest.SameBits(t, what+", a token alone", mulRows(&s, view, x[i*width:][:width], 1), first[i*view.Rows:][:view.Rows])
					}
					alone := view
					alone.Row, alone.Rows = view.Row+(view.Rows-1)*view.Step, 1
					if v := mulRows(&s, alone, x, 1); math.Float32bits(v[0]) != math.Float32bits(first[view.Rows-1]) {
						t.Fatalf("%s: the last row alone is %v, among others %v", what, v[0], first[view.Rows-1])
					}
				}
			}
		}
	}
}

// nearRows checks products in double precision. An error is compared with the sum of the magnitudes of all terms,
// of which those of a row's least values may be larger than the row's values.
func nearRows(t *testing.T, what string, values []float32, in []float64, w quant.View, got []float32) {
	t.Helper()
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(float64(v)))
	}
	for i, y := range got {
		row, x := values[(w.Row+i%w.Rows*w.Step)*w.Width:][:w.Cols], in[i/w.Rows*w.Cols:][:w.Cols]
		want, size := 0.0, 0.0
		for k, v := range x {
			want += v * float64(row[k])
			size += math.Abs(v) * largest
		}
		if !(math.Abs(float64(y)-want) <= 1e-6*size) {
			t.Fatalf("%s: element %d is %g, want %g", what, i, y, want)
		}
	}
}

// TestMulRowsExtremes: rows whose bits are all ones, and those whose bits are all zeros, are multiplied by the largest
// codes of both signs; no sum of two products overflows.
func TestMulRowsExtremes(t *testing.T) {
	for p, halves := range rowHalves {
		for _, bits := range []byte{0, 0xff} {
			w := rowBlocks(rand.New(rand.NewPCG(1, 1)), p, 5, p.BlockColumns())
			for i := range w.Codes {
				w.Codes[i] = bits
			}
			for i := 0; i < len(w.Codes); i += p.BlockBytes() {
				for _, at := range halves {
					binary.LittleEndian.PutUint16(w.Codes[i+at:], 0x3c00) // 1
				}
				if p == quant.MXFP4Block {
					w.Codes[i] = 128 // 1, halved
				}
				ordinaryIQ1M(w, i)
			}
			values := make([]float32, w.Width)
			quant.UnpackBlocks(p, values, w.Codes)
			for _, v := range []float32{127, -127} {
				x, want := make([]float32, w.Width), 0.0
				for i := range x {
					x[i] = v
					want += float64(v) * float64(values[i])
				}
				for _, s := range kerneltest.Variants() {
					if !s.QGEMM.HasRows(w, 0, w.Width) {
						continue
					}
					for _, y := range mulRows(&s, quant.View{Packed: w, Step: 1, Rows: 5, Cols: w.Width}, x, 1) {
						if !(math.Abs(float64(y)-want) <= 1e-6*math.Abs(want)) {
							t.Fatalf("%v, %s: bits %#x times %v are %v, want %v", p, s.Name, bits, v, y, want)
						}
					}
				}
			}
		}
	}
}

// TestMulRowsReadNothingElse: kernels read no byte beyond rows and tokens but by prefetching, and activations that are
// not finite make their products NaN.
func TestMulRowsReadNothingElse(t *testing.T) {
	for p := range rowHalves {
		for _, rows := range []int{1, 2, 3, 4, 9} {
			w := rowBlocks(rand.New(rand.NewPCG(3, 4)), p, rows, 3*p.BlockColumns())
			guarded := kerneltest.Guarded(t, len(w.Codes))
			copy(guarded, w.Codes)
			w.Codes = guarded
			for _, s := range kerneltest.Variants() {
				if !s.QGEMM.HasRows(w, 0, w.Width) {
					continue
				}
				in := mat.Pairs{V: kerneltest.GuardedWords(t, qgemm.RowsWords(w.Width)), Stride: qgemm.RowsWords(w.Width)}
				x := kerneltest.GuardedFloats(t, w.Width)
				x[w.Width-1] = float32(math.Inf(1))
				s.QGEMM.RoundRows(in.V, x)
				y := kerneltest.GuardedFloats(t, rows)
				s.QGEMM.MulRows(mat.Floats{V: y, Stride: rows}, quant.View{Packed: w, Step: 1, Rows: rows, Cols: w.Width}, in, 1)
				for _, v := range y {
					if v == v {
						t.Fatalf("%v, %s: an infinite activation makes %v", p, s.Name, v)
					}
				}
			}
		}
	}
}
