package qgemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// packOfValues is what Pack is to make.
func packOfValues(s *kernels.Set, p *quant.Packed, row, step, col, rows, n int) []uint32 {
	values, scratch := make([]float32, n), make([]float32, quant.UnpackScratch)
	narrow := make([]uint32, rows*mat.PairWords(n)+1)
	for i := range rows {
		s.Quant.Unpack(mat.Floats{V: values, Stride: n}, quant.View{Packed: p, Row: row + i*step, Col: col, Rows: 1, Cols: n}, scratch)
		s.Vector.RoundPairs(narrow[i*mat.PairWords(n):], values)
	}
	out := make([]uint32, gemm.PanelWords(n))
	s.GEMM.PackWeights(out, mat.Weights{Data: kerneltest.BytesOfWords(narrow), Stride: 4 * mat.PairWords(n), Format: mat.BFloat16}, rows, n)
	return out
}

// samePacks compares pairs of bfloat16; NaNs may differ in their bits.
func samePacks(got, want []uint32) error {
	for i, w := range want {
		for shift := 0; shift < 32; shift += 16 {
			g, w := uint16(got[i]>>shift), uint16(w>>shift)
			a, b := mat.FromBFloat16(g), mat.FromBFloat16(w)
			if g != w && !(a != a && b != b) {
				return fmt.Errorf("word %d is %v, want %v", i, a, b)
			}
		}
	}
	return nil
}

// packers are the variants that pack, also without the instructions that change no bit.
func packers() (list []kernels.Set) {
	for _, s := range kerneltest.Variants() {
		if !s.BF16 {
			continue
		}
		if list = append(list, s); s.Bytes {
			v := s.Variant
			v.Bytes = false
			s.QGEMM = qgemm.For(v)
			list = append(list, s)
		}
	}
	return list
}

// TestPackQuantised: packs of quantised weights are those of their values, rounded.
func TestPackQuantised(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	cases := kerneltest.Quantised()
	for name, packing := range kerneltest.BlockPackings {
		cases[name+" in bands"], _ = kerneltest.Interleaved(random, packing, 72, 224)
		cases[name] = &quant.Packed{Packing: packing, Codes: kerneltest.RandomBlocks(random, packing, 72*224/32), Width: 224}
	}
	scales := func(n int) []byte {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(random.NormFloat64()) * float32(math.Ldexp(1, i%60-30))
		}
		return kerneltest.BytesOf(v)
	}
	codes := cases["e4m3"].Codes
	cases["e4m3 of a scale"] = &quant.Packed{Packing: quant.E4M3, Codes: codes, Width: 224, Scales: scales(1), ScaleFormat: mat.Float32, Rows: 72, Columns: 224}
	cases["e4m3 of rows"] = &quant.Packed{Packing: quant.E4M3, Codes: codes, Width: 224, Scales: scales(72), ScaleFormat: mat.Float32, Rows: 1, Columns: 224}
	cases["e4m3 of blocks"] = &quant.Packed{Packing: quant.E4M3, Codes: codes, Width: 224, Scales: scales(8 * 4), ScaleFormat: mat.Float32, Rows: 10, Columns: 64}
	cases["e4m3 of large scales"] = &quant.Packed{Packing: quant.E4M3, Codes: codes, Width: 224, Scales: kerneltest.BytesOf([]float32{math.MaxFloat32}), ScaleFormat: mat.Float32, Rows: 72, Columns: 224}
	powers := make([]byte, 72*224/32)
	for i := range powers {
		powers[i] = byte(random.Uint32())
	}
	cases["e4m3 of powers"] = &quant.Packed{Packing: quant.E4M3Powers, Codes: codes, Width: 224, Scales: powers, Rows: 32, Columns: 64}
	cases["e2m1 of powers"] = &quant.Packed{Packing: quant.E2M1Powers, Codes: codes, Width: 224, Scales: powers, Rows: 1, Columns: 32}
	zeros := make([]byte, 72*224/32)
	for i := range zeros {
		zeros[i] = byte(random.Uint32())
	}
	cases["int8 of rows"] = &quant.Packed{Packing: quant.Int8, Codes: codes, Width: 224, Scales: scales(72), ScaleFormat: mat.Float32, Rows: 1, Columns: 224}
	cases["int8 of groups"] = &quant.Packed{Packing: quant.Int8, Codes: codes, Width: 224, Scales: scales(72 * 4), ScaleFormat: mat.BFloat16, Rows: 1, Columns: 64, Zeros: zeros}
	cases["int8 of a scale"] = &quant.Packed{Packing: quant.Int8, Codes: codes, Width: 224, Scales: scales(1), ScaleFormat: mat.Float32, Rows: 72, Columns: 224, Zeros: zeros}
	cases["int8 of odd groups"] = &quant.Packed{Packing: quant.Int8, Codes: codes, Width: 224, Scales: scales(72 * 5), ScaleFormat: mat.Float32, Rows: 1, Columns: 48}
	cases["int8 packed"] = &quant.Packed{Packing: quant.Int8Packed, Codes: codes, Width: 224, Scales: scales(72), ScaleFormat: mat.Float32, Rows: 1, Columns: 224}
	cases["int8 packed of groups"] = &quant.Packed{Packing: quant.Int8Packed, Codes: codes, Width: 224, Scales: scales(72 * 7), ScaleFormat: mat.BFloat16, Rows: 1, Columns: 32, Zeros: zeros}
	cases["bitsandbytes int8"] = &quant.Packed{Packing: quant.BnbInt8, Codes: codes, Width: 224, Scales: scales(72), ScaleFormat: mat.Float32, Rows: 1, Columns: 224}
	for _, packing := range []quant.Packing{quant.NVFP4, quant.NVFP4Times} {
		cases[packing.String()] = &quant.Packed{Packing: packing, Codes: codes, Width: 224, Scales: codes[:72*224/16], Rows: 1, Columns: 16, Global: 0.37}
	}
	scratch := make([]float32, quant.UnpackScratch)
	for _, s := range packers() {
		for name, p := range cases {
			for _, c := range []struct{ row, step, col, rows, n int }{
				{0, 1, 0, 16, 224}, {16, 1, 32, 16, 96}, {48, 1, 64, 16, 160}, {64, 1, 0, 8, 64}, {32, 1, 0, 5, 64}, {3, 2, 64, 16, 32},
				{71, 1, 192, 1, 32}, {0, 1, 0, 0, 32}, {16, 1, 16, 16, 64}, {16, 1, 0, 16, 40}, {5, 3, 7, 9, 1},
			} {
				got := make([]uint32, gemm.PanelWords(c.n))
				for i := range got {
					got[i] = 1
				}
				s.QGEMM.Pack(got, quant.View{Packed: p, Row: c.row, Step: c.step, Col: c.col, Rows: c.rows, Cols: c.n}, scratch)
				if err := samePacks(got, packOfValues(&s, p, c.row, c.step, c.col, c.rows, c.n)); err != nil {
					t.Fatalf("%s, %s, %+v: %v", s.Name, name, c, err)
				}
			}
		}
	}
}

// TestPackQuantisedTransposed: packed columns are the rounded values of the columns.
func TestPackQuantisedTransposed(t *testing.T) {
	const rows, width = 96, 64
	random := rand.New(rand.NewPCG(23, 24))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	cases := map[string]*quant.Packed{"e4m3": {Packing: quant.E4M3, Codes: bytes(rows * width), Width: width, Scales: kerneltest.BytesOf([]float32{3}), ScaleFormat: mat.Float32, Rows: rows, Columns: width}}
	for _, packing := range []quant.Packing{quant.Int4Rows, quant.Int4Columns} {
		for _, group := range []int{32, 64, 96, 24} {
			n := mat.CeilDiv(rows, group) * width
			p := &quant.Packed{Packing: packing, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(2 * n), ScaleFormat: mat.Float16, Rows: group, Columns: 1, Zeros: bytes(n / 2), ZeroWords: [3]uint32{uint32(group % 3)}}
			cases[fmt.Sprint(packing, " ", group)] = p
		}
	}
	scratch := make([]float32, qgemm.TransposeScratch(3))
	values := make([]float32, rows*width)
	for _, s := range kerneltest.Variants() {
		if !s.BF16 {
			continue
		}
		for name, p := range cases {
			for _, c := range []struct{ row, col, step, rows, n int }{
				{0, 0, 1, 16, 96}, {32, 48, 1, 16, 64}, {0, 8, 1, 16, 32}, {64, 40, 1, 16, 32}, {32, 16, 1, 16, 40}, {5, 16, 1, 16, 32}, {0, 3, 1, 16, 64},
				{0, 48, 1, 7, 96}, {64, 1, 3, 16, 17}, {0, 0, 1, 0, 32},
			} {
				wide := max(0, (c.rows-1)*c.step+1)
				s.Quant.Unpack(mat.Floats{V: values, Stride: width}, quant.View{Packed: p, Row: c.row, Col: c.col, Rows: c.n, Cols: wide}, scratch)
				turned := make([]float32, c.rows*c.n)
				for i := range turned {
					turned[i] = values[i%c.n*width+i/c.n*c.step]
				}
				got, want, narrow := make([]uint32, gemm.PanelWords(c.n)), make([]uint32, gemm.PanelWords(c.n)), make([]uint32, c.rows*mat.PairWords(c.n)+1)
				for i := range got {
					got[i] = 1
				}
				for i := range c.rows {
					s.Vector.RoundPairs(narrow[i*mat.PairWords(c.n):], turned[i*c.n:][:c.n])
				}
				s.GEMM.PackWeights(want, mat.Weights{Data: kerneltest.BytesOfWords(narrow), Stride: 4 * mat.PairWords(c.n), Format: mat.BFloat16}, c.rows, c.n)
				s.QGEMM.PackTransposed(got, quant.View{Packed: p, Row: c.row, Col: c.col, Step: c.step, Rows: c.rows, Cols: c.n}, scratch)
				if err := samePacks(got, want); err != nil {
					t.Fatalf("%s, %s, %+v: %v", s.Name, name, c, err)
				}
			}
		}
	}
}

// TestPackMXFP4Scales has every code at every scale.
func TestPackMXFP4Scales(t *testing.T) {
	p := &quant.Packed{Packing: quant.MXFP4, Codes: make([]byte, 256*16), Scales: make([]byte, 256), Width: 256 * 32, Rows: 1, Columns: 32}
	for i := range p.Codes {
		p.Codes[i] = byte(i%16 | (15-i%16)<<4)
		p.Scales[i/16] = byte(i / 16)
	}
	for _, s := range kerneltest.Variants() {
		if !s.BF16 {
			continue
		}
		got := make([]uint32, gemm.PanelWords(p.Width))
		s.QGEMM.Pack(got, quant.View{Packed: p, Step: 1, Rows: 1, Cols: p.Width}, nil)
		if err := samePacks(got, packOfValues(&s, p, 0, 1, 0, 1, p.Width)); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
	}
}

// TestPackingAllocated: buffers for a part of a pack and its scales were allocated at each call.
func TestPackingAllocated(t *testing.T) {
	for name, p := range kerneltest.Quantised() {
		transposed := p.Packing == quant.Int4Rows || p.Packing == quant.Int4Columns
		for _, s := range kerneltest.Variants() {
			if !s.BF16 {
				continue
			}
			rows := min(gemm.PackRows, p.Width)
			n := 32
			dst, scratch := make([]uint32, gemm.PanelWords(n)), make([]float32, qgemm.TransposeScratch(1))
			pack := func() {
				if transposed {
					s.QGEMM.PackTransposed(dst, quant.View{Packed: p, Step: 1, Rows: rows, Cols: n}, scratch)
				} else {
					s.QGEMM.Pack(dst, quant.View{Packed: p, Step: 1, Rows: 1, Cols: n}, scratch)
				}
			}
			if got := testing.AllocsPerRun(20, pack); got != 0 {
				t.Errorf("%s, %s: %v allocations a pack", s.Name, name, got)
			}
		}
	}
}

// BenchmarkPackQuantised is a pack of 16 rows of each format, from the second-level cache.
func BenchmarkPackQuantised(b *testing.B) {
	const width, rows = 2048, 64
	codes, scales := make([]byte, 2*rows*width), make([]byte, 4*width)
	for i := range scales {
		scales[i] = 0x3c
	}
	for i := range codes {
		codes[i] = byte(i % 47)
	}
	dst, scratch := make([]uint32, rows/gemm.PackRows*gemm.PanelWords(width)), make([]float32, qgemm.TransposeScratch(1))
	for _, s := range kerneltest.Variants() {
		if !s.BF16 {
			continue
		}
		run := func(name string, f func(dst []uint32, row int)) {
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				for b.Loop() {
					for r := 0; r < rows; r += gemm.PackRows {
						f(dst[r/gemm.PackRows*gemm.PanelWords(width):], r)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows/gemm.PackRows*width/gemm.BlockK), "ns/block")
			})
		}
		run("bfloat16", func(dst []uint32, row int) {
			s.GEMM.PackWeights(dst, mat.Weights{Data: codes[row*2*width:], Stride: 2 * width, Format: mat.BFloat16}, gemm.PackRows, width)
		})
		for _, p := range []*quant.Packed{
			{Packing: quant.Q8, Height: rows}, {Packing: quant.Q4, Height: rows}, {Packing: quant.E4M3, Columns: 128, ScaleFormat: mat.Float32}, {Packing: quant.MXFP4, Columns: 32},
		} {
			p.Codes, p.Scales, p.Zeros, p.Width, p.Rows = codes, scales, codes, width, 128
			run([]string{quant.E4M3: "e4m3", quant.MXFP4: "mxfp4", quant.Q8: "q8", quant.Q4: "q4"}[p.Packing], func(dst []uint32, row int) {
				s.QGEMM.Pack(dst, quant.View{Packed: p, Row: row, Step: 1, Rows: gemm.PackRows, Cols: width}, scratch)
			})
		}
		for _, packing := range []quant.Packing{quant.Int4Rows, quant.Int4Columns} {
			p := &quant.Packed{Packing: packing, Codes: codes, Scales: scales, Zeros: codes, ScaleFormat: mat.Float16, Width: rows, Rows: 128, Columns: 1}
			run([]string{quant.Int4Rows: "nibble rows", quant.Int4Columns: "nibble columns"}[packing], func(dst []uint32, row int) {
				s.QGEMM.PackTransposed(dst, quant.View{Packed: p, Col: row, Step: 1, Rows: gemm.PackRows, Cols: width}, scratch)
			})
		}
	}
}
