package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// packOfValues is what PackQuantised is to make.
func packOfValues(s *Set, p *Packed, row, step, col, rows, n int) []uint32 {
	values, scratch := make([]float32, n), make([]float32, UnpackScratch)
	narrow := make([]uint32, rows*PairWords(n)+1)
	for i := range rows {
		s.Unpack(Floats{values, n}, p, row+i*step, col, 1, n, scratch)
		s.Narrow(narrow[i*PairWords(n):], values)
	}
	out := make([]uint32, PanelWords(n))
	s.PackWeights(out, Weights{Data: bytesOfWords(narrow), Stride: 4 * PairWords(n), Format: BFloat16}, rows, n)
	return out
}

// samePacks compares pairs of bfloat16; NaNs may differ in their bits.
func samePacks(got, want []uint32) error {
	for i, w := range want {
		for shift := 0; shift < 32; shift += 16 {
			g, w := uint16(got[i]>>shift), uint16(w>>shift)
			a, b := FromBFloat16(g), FromBFloat16(w)
			if g != w && !(a != a && b != b) {
				return fmt.Errorf("word %d is %v, want %v", i, a, b)
			}
		}
	}
	return nil
}

// TestPackQuantised: packs of quantised weights are those of their values, rounded.
func TestPackQuantised(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	cases := packedCases()
	for name, packing := range blockPackings {
		cases[name+" in bands"], _ = inBands(random, packing, 72, 224)
		cases[name] = &Packed{Packing: packing, Codes: randomBlocks(random, packing, 72*224/32), Width: 224}
	}
	scales := func(n int) []byte {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(random.NormFloat64()) * float32(math.Ldexp(1, i%60-30))
		}
		return bytesOf(v)
	}
	codes := cases["e4m3"].Codes
	cases["e4m3 of a scale"] = &Packed{Packing: E4M3, Codes: codes, Width: 224, Scales: scales(1), ScaleFormat: Float32, Rows: 72, Columns: 224}
	cases["e4m3 of rows"] = &Packed{Packing: E4M3, Codes: codes, Width: 224, Scales: scales(72), ScaleFormat: Float32, Rows: 1, Columns: 224}
	cases["e4m3 of blocks"] = &Packed{Packing: E4M3, Codes: codes, Width: 224, Scales: scales(8 * 4), ScaleFormat: Float32, Rows: 10, Columns: 64}
	cases["e4m3 of large scales"] = &Packed{Packing: E4M3, Codes: codes, Width: 224, Scales: bytesOf([]float32{math.MaxFloat32}), ScaleFormat: Float32, Rows: 72, Columns: 224}
	scratch := make([]float32, UnpackScratch)
	for _, s := range available() {
		if !s.Rounds() {
			continue
		}
		for name, p := range cases {
			for _, c := range []struct{ row, step, col, rows, n int }{
				{0, 1, 0, 16, 224}, {16, 1, 32, 16, 96}, {48, 1, 64, 16, 160}, {64, 1, 0, 8, 64}, {32, 1, 0, 5, 64}, {3, 2, 64, 16, 32},
				{71, 1, 192, 1, 32}, {0, 1, 0, 0, 32}, {16, 1, 16, 16, 64}, {16, 1, 0, 16, 40}, {5, 3, 7, 9, 1},
			} {
				got := make([]uint32, PanelWords(c.n))
				for i := range got {
					got[i] = 1
				}
				s.PackQuantised(got, p, c.row, c.step, c.col, c.rows, c.n, scratch)
				if err := samePacks(got, packOfValues(&s, p, c.row, c.step, c.col, c.rows, c.n)); err != nil {
					t.Fatalf("%s, %s, %+v: %v", s.Name, name, c, err)
				}
			}
		}
	}
}

// TestPackQuantisedTurned: packs of columns are those of their values, rounded.
func TestPackQuantisedTurned(t *testing.T) {
	const rows, width = 96, 64
	random := rand.New(rand.NewPCG(23, 24))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	cases := map[string]*Packed{"e4m3": {Packing: E4M3, Codes: bytes(rows * width), Width: width, Scales: bytesOf([]float32{3}), ScaleFormat: Float32, Rows: rows, Columns: width}}
	for _, packing := range []Packing{NibbleRows, NibbleColumns} {
		for _, group := range []int{32, 64, 96, 24} {
			n := ceil(rows, group) * width
			p := &Packed{Packing: packing, Codes: bytes(rows * width / 2), Width: width, Scales: bytes(2 * n), ScaleFormat: Float16, Rows: group, Columns: 1, Zeros: bytes(n / 2), ZeroBias: group % 3}
			cases[fmt.Sprint(packing, " ", group)] = p
		}
	}
	scratch := make([]float32, TurnScratch(3))
	values := make([]float32, rows*width)
	for _, s := range available() {
		if !s.Rounds() {
			continue
		}
		for name, p := range cases {
			for _, c := range []struct{ row, col, step, rows, n int }{
				{0, 0, 1, 16, 96}, {32, 48, 1, 16, 64}, {0, 8, 1, 16, 32}, {64, 40, 1, 16, 32}, {32, 16, 1, 16, 40}, {5, 16, 1, 16, 32}, {0, 3, 1, 16, 64},
				{0, 48, 1, 7, 96}, {64, 1, 3, 16, 17}, {0, 0, 1, 0, 32},
			} {
				wide := max(0, (c.rows-1)*c.step+1)
				s.Unpack(Floats{values, width}, p, c.row, c.col, c.n, wide, scratch)
				turned := make([]float32, c.rows*c.n)
				for i := range turned {
					turned[i] = values[i%c.n*width+i/c.n*c.step]
				}
				got, want, narrow := make([]uint32, PanelWords(c.n)), make([]uint32, PanelWords(c.n)), make([]uint32, c.rows*PairWords(c.n)+1)
				for i := range got {
					got[i] = 1
				}
				for i := range c.rows {
					s.Narrow(narrow[i*PairWords(c.n):], turned[i*c.n:][:c.n])
				}
				s.PackWeights(want, Weights{Data: bytesOfWords(narrow), Stride: 4 * PairWords(c.n), Format: BFloat16}, c.rows, c.n)
				s.PackQuantisedTurned(got, p, c.row, c.col, c.step, c.rows, c.n, scratch)
				if err := samePacks(got, want); err != nil {
					t.Fatalf("%s, %s, %+v: %v", s.Name, name, c, err)
				}
			}
		}
	}
}

// TestPackMXFP4Scales has every code at every scale.
func TestPackMXFP4Scales(t *testing.T) {
	p := &Packed{Packing: MXFP4, Codes: make([]byte, 256*16), Scales: make([]byte, 256), Width: 256 * 32, Rows: 1, Columns: 32}
	for i := range p.Codes {
		p.Codes[i] = byte(i%16 | (15-i%16)<<4)
		p.Scales[i/16] = byte(i / 16)
	}
	for _, s := range available() {
		if !s.Rounds() {
			continue
		}
		got := make([]uint32, PanelWords(p.Width))
		s.PackQuantised(got, p, 0, 1, 0, 1, p.Width, nil)
		if err := samePacks(got, packOfValues(&s, p, 0, 1, 0, 1, p.Width)); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
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
	dst, scratch := make([]uint32, rows/PackRows*PanelWords(width)), make([]float32, TurnScratch(1))
	for _, s := range available() {
		if !s.Rounds() {
			continue
		}
		run := func(name string, f func(dst []uint32, row int)) {
			b.Run(name+"/"+s.Name, func(b *testing.B) {
				for b.Loop() {
					for r := 0; r < rows; r += PackRows {
						f(dst[r/PackRows*PanelWords(width):], r)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows/PackRows*width/BlockK), "ns/block")
			})
		}
		run("bfloat16", func(dst []uint32, row int) {
			s.PackWeights(dst, Weights{Data: codes[row*2*width:], Stride: 2 * width, Format: BFloat16}, PackRows, width)
		})
		for _, p := range []*Packed{
			{Packing: Q8, Height: rows}, {Packing: Q4, Height: rows}, {Packing: E4M3, Columns: 128, ScaleFormat: Float32}, {Packing: MXFP4, Columns: 32},
		} {
			p.Codes, p.Scales, p.Zeros, p.Width, p.Rows = codes, scales, codes, width, 128
			run([]string{E4M3: "e4m3", MXFP4: "mxfp4", Q8: "q8", Q4: "q4"}[p.Packing], func(dst []uint32, row int) {
				s.PackQuantised(dst, p, row, 1, 0, PackRows, width, scratch)
			})
		}
		for _, packing := range []Packing{NibbleRows, NibbleColumns} {
			p := &Packed{Packing: packing, Codes: codes, Scales: scales, Zeros: codes, ScaleFormat: Float16, Width: rows, Rows: 128, Columns: 1}
			run([]string{NibbleRows: "nibble rows", NibbleColumns: "nibble columns"}[packing], func(dst []uint32, row int) {
				s.PackQuantisedTurned(dst, p, 0, row, 1, PackRows, width, scratch)
			})
		}
	}
}
