package coded_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// trained is n weights as training leaves them: normal, with a scale that differs from row to row.
func trained(r *rand.Rand, rows, cols int) []byte {
	out := make([]byte, 2*rows*cols)
	for i := range rows * cols {
		scale := math.Exp2(float64(i / cols % 7))
		binary.LittleEndian.PutUint16(out[2*i:], mat.ToBFloat16(float32(r.NormFloat64()*0.02*scale)))
	}
	return out
}

// hostile is trained weights among which are all kinds of numbers, some in every group of some rows.
func hostile(r *rand.Rand, rows, cols int) []byte {
	out := trained(r, rows, cols)
	kinds := []uint16{0, 0x8000, 1, 0x8001, 0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f7f, 0x0080}
	for range rows * cols / 300 {
		binary.LittleEndian.PutUint16(out[2*r.IntN(rows*cols):], kinds[r.IntN(len(kinds))])
	}
	return out
}

// restored checks that a coded matrix decodes to words in every variant, rows in any number.
func restored(t *testing.T, words []byte, rows, cols int) bool {
	t.Helper()
	m := coded.Matrix{Data: kerneltest.Guarded(t, rows*coded.RowBytes(cols)), Rows: rows, Cols: cols}
	if err := coded.Encode(m.Data, words, rows, cols); errors.Is(err, coded.ErrNoRoom) {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	if !m.Holds() {
		t.Fatal("a coded matrix is too small")
	}
	stride := coded.Stride(cols)
	for _, name := range kernels.Names() {
		set, err := kernels.Select(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][2]int{{0, rows}, {rows / 3, rows - rows/3}, {rows - 1, 1}} {
			got := kerneltest.Guarded(t, part[1]*stride)
			set.Coded.Decode(got, &m, part[0], part[1])
			for i := range part[1] {
				if want := words[(part[0]+i)*2*cols:][:2*cols]; !bytes.Equal(got[i*stride:][:2*cols], want) {
					t.Fatalf("%s, %d × %d: row %d is not restored", name, rows, cols, part[0]+i)
				}
			}
		}
	}
	return true
}

func TestDecodeRestoresEveryBit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 19))
	for _, cols := range []int{1, 2, 63, 64, 127, 128, 129, 256, 320, 1000, 2048} {
		for _, rows := range []int{1, 3, 15, 16, 17, 33, 40} {
			if !restored(t, trained(r, rows, cols), rows, cols) {
				t.Errorf("%d × %d trained weights do not fit", rows, cols)
			}
			if !restored(t, hostile(r, rows, cols), rows, cols) && cols%256 == 0 && cols < 1000 {
				t.Errorf("%d × %d weights with a few others do not fit", rows, cols)
			}
		}
	}
}

// TestEveryWordIsRestored has all 65536 words, so that each row has all 256 high bytes: those rows fit
// only if their exceptions fit in the units of neighbouring rows.
func TestEveryWordIsRestored(t *testing.T) {
	const cols, rows = 256, 16
	for first := 0; first < 1<<16; first += cols {
		words := bytes.Repeat([]byte{0x34, 0x12}, rows*cols)
		for i := range cols { // one group of the band at a time
			binary.LittleEndian.PutUint16(words[2*(5*cols+i):], uint16(first+i))
		}
		if !restored(t, words, rows, cols) {
			t.Fatalf("words from %#x on do not fit", first)
		}
	}
	words := make([]byte, 2*rows*cols)
	for i := range 128 { // high bytes that no table of 32 has
		words[2*(7*cols+128+i)+1] = byte(2*i + 1)
	}
	if !restored(t, words, rows, cols) {
		t.Error("a group of 128 different high bytes does not fit")
	}
}

func TestRandomBitsDoNotFit(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 19))
	words := make([]byte, 2*16*256)
	for i := range words {
		words[i] = byte(r.Uint32())
	}
	if restored(t, words, 16, 256) {
		t.Error("random bits fit into three quarters of their size")
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		cols int
		bits float64
	}{{64, 31}, {128, 15.5}, {256, 13.75}, {2880, 12.63}, {4096, 12.33}} {
		bits := 8 * float64(coded.RowBytes(c.cols)) / float64(c.cols)
		if !(math.Abs(bits-c.bits) <= 0.05) {
			t.Errorf("%d columns take %.2f bits a weight; want %.2f", c.cols, bits, c.bits)
		}
	}
}

// TestProductsHaveThePlainBits compares products of rows decoded in registers with those of the plain
// kernel of the same variant.
func TestProductsHaveThePlainBits(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(3, 19))
		for _, cols := range []int{100, 128, 256, 384, 1024, 2176} {
			if !set.Coded.HasPairs(cols) {
				continue
			}
			const rows = 39
			for kind, words := range [][]byte{trained(r, rows, cols), hostile(r, rows, cols)} {
				m := coded.Matrix{Data: kerneltest.Guarded(t, rows*coded.RowBytes(cols)), Rows: rows, Cols: cols}
				if err := coded.Encode(m.Data, words, rows, cols); err != nil {
					continue
				}
				x := make([]uint32, mat.PairWords(cols))
				set.Vector.RoundPairs(x, kerneltest.Random(r, cols))
				want, got := make([]float32, rows), make([]float32, rows)
				set.GEMV.MulPairs(mat.Floats{V: want, Stride: rows}, mat.Weights{Data: words, Stride: 2 * cols, Format: mat.BFloat16}, mat.Pairs{V: x, Stride: len(x)}, rows, 1, cols)
				for _, first := range []int{0, 1, 14, 38} {
					clear(got)
					set.Coded.MulPairs(got[first:], &m, first, x)
					for i := first; i < rows; i++ {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) { // which NaN it is depends on the order of operands
							t.Fatalf("kind %d, %d columns: row %d from %d on is %g, plain %g", kind, cols, i, first, got[i], want[i])
						}
					}
				}
			}
		}
	})
}

// TestProductsOfSeveralTokensHaveThePlainBits is that for several tokens, also of rows that begin or end inside a band.
func TestProductsOfSeveralTokensHaveThePlainBits(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(9, 19))
		for _, cols := range []int{128, 256, 640, 1024, 2176} {
			if !set.Coded.HasPairs(cols) {
				continue
			}
			const rows = 39
			for kind, words := range [][]byte{trained(r, rows, cols), hostile(r, rows, cols)} {
				m := coded.Matrix{Data: kerneltest.Guarded(t, rows*coded.RowBytes(cols)), Rows: rows, Cols: cols}
				if err := coded.Encode(m.Data, words, rows, cols); err != nil {
					continue
				}
				for _, tokens := range []int{1, 2, 3, 5, 7, 8, 9, 12, 17} {
					several := severalTokens{set: set, m: &m, words: words, tokens: tokens, x: mat.Pairs{V: make([]uint32, tokens*(cols/2+16)), Stride: cols/2 + 16}}
					for i := range tokens {
						set.Vector.RoundPairs(several.x.V[i*several.x.Stride:], kerneltest.Random(r, cols))
					}
					for _, part := range [][2]int{{0, rows}, {1, 15}, {14, 7}, {38, 1}} {
						if at, got, want, ok := several.compare(part[0], part[1]); !ok {
							t.Fatalf("kind %d, %d columns, %d tokens, rows %v: product %d is %g, plain %g", kind, cols, tokens, part, at, got, want)
						}
					}
				}
			}
		}
	})
}

// severalTokens are tokens and a matrix, coded and plain.
type severalTokens struct {
	set    *kernels.Set
	m      *coded.Matrix
	words  []byte
	x      mat.Pairs
	tokens int
}

func (s *severalTokens) product(y []float32, stride, first, rows int) coded.TokensProduct {
	sums := make([]float32, coded.TokenSums(s.tokens))
	for i := range sums {
		sums[i] = 7
	}
	return coded.TokensProduct{Y: mat.Floats{V: y, Stride: stride}, W: s.m, Row: first, X: s.x, Rows: rows, Tokens: s.tokens, Sums: sums}
}

// compare multiplies rows from first on by both kernels. It returns a product that differs, if there is one, or false if a
// kernel has written between the products.
func (s *severalTokens) compare(first, rows int) (at int, got, want float32, ok bool) {
	cols, stride := s.m.Cols, rows+3
	coded, plain := make([]float32, s.tokens*stride), make([]float32, s.tokens*stride)
	for i := range coded {
		coded[i], plain[i] = 7, 7
	}
	s.set.Coded.MulTokens(s.product(coded, stride, first, rows))
	w := mat.Weights{Data: s.words[2*first*cols:], Stride: 2 * cols, Format: mat.BFloat16}
	s.set.GEMV.MulPairs(mat.Floats{V: plain, Stride: stride}, w, s.x, rows, s.tokens, cols)
	for i := range coded {
		if math.Float32bits(coded[i]) != math.Float32bits(plain[i]) && (coded[i] == coded[i] || plain[i] == plain[i]) {
			return i, coded[i], plain[i], false
		}
	}
	return 0, 0, 0, true
}

// TestProductsOfTilesHaveThePlainBits is that for tiles: one token, and panels of tokens.
func TestProductsOfTilesHaveThePlainBits(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(4, 19))
		for _, cols := range []int{128, 256, 640, 1024, 2176} {
			if !set.Coded.HasTiles(cols) {
				continue
			}
			const rows, most = 55, coded.MostPanels * gemm.PanelTokens
			for kind, words := range [][]byte{trained(r, rows, cols), hostile(r, rows, cols)} {
				m := coded.Matrix{Data: kerneltest.Guarded(t, rows*coded.RowBytes(cols)), Rows: rows, Cols: cols}
				if err := coded.Encode(m.Data, words, rows, cols); err != nil {
					continue
				}
				x := kerneltest.Random(r, most*cols)
				token, panels := kerneltest.GuardedWords(t, cols/2), kerneltest.GuardedWords(t, coded.MostPanels*gemm.PanelWords(cols))
				set.Vector.RoundPairs(token, x[:cols])
				for i := range coded.MostPanels {
					set.GEMM.PackTokens(panels[i*gemm.PanelWords(cols):], mat.Floats{V: x[i*gemm.PanelTokens*cols:], Stride: cols}, gemm.PanelTokens, cols)
				}
				scratch := kerneltest.GuardedFloats(t, coded.TileScratch)
				want := kerneltest.Tiled(set, words, x, nil, rows, most, cols, 1)
				for _, part := range [][2]int{{0, rows}, {0, 32}, {1, 15}, {14, 7}, {16, 39}, {54, 1}} {
					first, n := part[0], part[1]
					for count := range coded.MostPanels + 1 {
						each, p := coded.RowSums(count), coded.TilesProduct{W: &m, Row: first, Rows: n, X: token, Panels: count, Scratch: scratch}
						if count > 0 {
							p.X, p.XStride = panels[(coded.MostPanels-count)*gemm.PanelWords(cols):], gemm.PanelWords(cols)
						}
						if count%2 == 0 { // prefetches beyond the weights, which changes nothing
							p.Next, p.Part, p.Parts = m.Data[len(m.Data)-1:], 1, 2
						}
						p.C = kerneltest.GuardedFloats(t, n*each)
						set.Coded.MulTiles(p)
						for i := range n {
							for token := range max(1, count*gemm.PanelTokens) {
								at := 0 // the first token of the panels
								if count > 0 {
									at = (coded.MostPanels - count) * gemm.PanelTokens
								}
								got, want := p.C[i*each+token], want[(at+token)*rows+first+i]
								if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
									t.Fatalf("kind %d, %d columns, rows %v, %d panels: row %d, token %d is %g, plain %g", kind, cols, part, count, i, token, got, want)
								}
							}
						}
					}
				}
			}
		}
	})
}

// TestSplitProductsHaveThePlainBits is that for tokens that are not rounded.
func TestSplitProductsHaveThePlainBits(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(8, 19))
		for _, cols := range []int{100, 128, 256, 384, 1024, 2176} {
			if !set.Coded.HasSplit(cols) {
				continue
			}
			const rows = 39
			for kind, words := range [][]byte{trained(r, rows, cols), hostile(r, rows, cols)} {
				m := coded.Matrix{Data: kerneltest.Guarded(t, rows*coded.RowBytes(cols)), Rows: rows, Cols: cols}
				if err := coded.Encode(m.Data, words, rows, cols); err != nil {
					continue
				}
				x := make([]float32, set.GEMV.SplitFloats(cols))
				set.GEMV.SplitTokens(x, mat.Floats{V: kerneltest.Random(r, cols), Stride: cols}, 1, cols)
				want, got := make([]float32, rows), make([]float32, rows)
				set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: want, Stride: rows}, W: mat.Weights{Data: words, Stride: 2 * cols, Format: mat.BFloat16},
					X: x, Sums: make([]float32, set.GEMV.SplitSums(rows, 1)), Rows: rows, Tokens: 1, N: cols, Last: true})
				for _, first := range []int{0, 1, 14, 38} {
					clear(got)
					set.Coded.MulSplit(got[first:], &m, first, x)
					for i := first; i < rows; i++ {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
							t.Fatalf("kind %d, %d columns: row %d from %d on is %g, plain %g", kind, cols, i, first, got[i], want[i])
						}
					}
				}
			}
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	r := rand.New(rand.NewPCG(4, 19))
	f.Add(trained(r, 3, 200), uint8(3))
	f.Add(hostile(r, 5, 256), uint8(5))
	f.Fuzz(func(t *testing.T, data []byte, rows uint8) {
		high := max(int(rows%40), 1)
		cols := len(data) / 2 / high
		if cols == 0 || cols > 4096 {
			return
		}
		restored(t, data[:2*high*cols], high, cols)
	})
}

func BenchmarkEncode(b *testing.B) {
	const rows, cols = 64, 4096
	words := trained(rand.New(rand.NewPCG(5, 19)), rows, cols)
	to := make([]byte, rows*coded.RowBytes(cols))
	b.SetBytes(int64(len(words)))
	for b.Loop() {
		if err := coded.Encode(to, words, rows, cols); err != nil {
			b.Fatal(err)
		}
	}
}
