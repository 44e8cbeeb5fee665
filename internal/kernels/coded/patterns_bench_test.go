package coded_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// BenchmarkPatterns reports for each pattern how many times faster coded weights that no cache holds are multiplied by one
// token, or by several, than plain ones, on one thread: medians of the ratios of pieces of 4 MiB in turn.
func BenchmarkPatterns(b *testing.B) {
	for _, v := range []string{"avx512bf16", "avx512", "avx2"} {
		set, err := kernels.Select(v)
		if err != nil {
			continue // another processor's
		}
		for _, cols := range []int{512, 1024, 2048, 4096, 5632} {
			b.Run(fmt.Sprint(v, "/", cols), func(b *testing.B) { benchPatterns(b, set, cols, 1) })
			for _, tokens := range []int{2, 4, 8, 16} {
				if set.Coded.HasPairs(cols) {
					b.Run(fmt.Sprint(v, "/", cols, "/", tokens), func(b *testing.B) { benchPatterns(b, set, cols, tokens) })
				}
			}
		}
	}
}

func benchPatterns(b *testing.B, set *kernels.Set, cols, tokens int) {
	defer fetch.Use(fetch.Current())
	fetch.Use(fetch.Default("AuthenticAMD"))
	const some = 64
	rows := 128 << 20 / 2 / cols / some * some
	r := rand.New(rand.NewPCG(6, 19))
	words, data := kerneltest.Uncached(b)[:2*rows*cols], kerneltest.Uncached(b)[:rows*coded.RowBytes(cols)]
	sample, part := trained(r, some, cols), make([]byte, some*coded.RowBytes(cols))
	if err := coded.Encode(part, sample, some, cols); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < rows; i += some {
		copy(words[2*i*cols:], sample)
		copy(data[i*coded.RowBytes(cols):], part)
	}
	step := max(coded.BandRows, 128<<10/2/cols/coded.BandRows*coded.BandRows)
	role, multiply := multipliers(set, words, &coded.Matrix{Data: data, Rows: rows, Cols: cols}, kerneltest.Random(r, tokens*cols), step, tokens)
	patterns, piece := fetch.Candidates(role), max(step, 4<<20/2/cols/step*step)
	ratios := make([][]float64, len(patterns))
	for b.Loop() {
		for at := 0; at+piece <= rows; at += piece {
			var plain float64
			for k := -1; k < len(patterns); k++ {
				if k >= 0 {
					fetch.UseFor(role, patterns[k])
				}
				first := (at + (k+1)*5*piece) % (rows - piece + 1) / coded.BandRows * coded.BandRows
				begin := time.Now()
				for i := first; i < first+piece; i += step {
					multiply[min(k+1, 1)](i)
				}
				if took := time.Since(begin).Seconds(); k < 0 {
					plain = took
				} else {
					ratios[k] = append(ratios[k], plain/took)
				}
			}
		}
	}
	for k, p := range patterns {
		slices.Sort(ratios[k])
		b.ReportMetric(ratios[k][len(ratios[k])/2], strings.NewReplacer(" ", "-", ",", "").Replace(p.String())+"-x")
	}
}

// multipliers are functions that multiply some rows from one on by the tokens of x: plain ones and coded ones.
func multipliers(set *kernels.Set, words []byte, m *coded.Matrix, x []float32, step, tokens int) (fetch.Role, [2]func(int)) {
	cols, y := m.Cols, make([]float32, step*tokens)
	out := mat.Floats{V: y, Stride: step}
	plain := func(i int) mat.Weights {
		return mat.Weights{Data: words[2*i*cols:], Stride: 2 * cols, Format: mat.BFloat16}
	}
	if tokens > 1 {
		pairs := mat.Pairs{Stride: mat.SpreadPairs(cols)}
		pairs.V = make([]uint32, tokens*pairs.Stride)
		sums := make([]float32, coded.TokenSums(tokens))
		for t := range tokens {
			set.Vector.RoundPairs(pairs.V[t*pairs.Stride:], x[t*cols:][:cols])
		}
		return fetch.CodedTokens, [2]func(int){
			func(i int) { set.GEMV.MulPairs(out, plain(i), pairs, step, tokens, cols) },
			func(i int) {
				set.Coded.MulTokens(coded.TokensProduct{Y: out, W: m, Row: i, X: pairs, Rows: step, Tokens: tokens, Sums: sums})
			},
		}
	}
	if set.Coded.HasPairs(cols) {
		pairs := make([]uint32, cols/2)
		set.Vector.RoundPairs(pairs, x)
		return fetch.CodedPairs, [2]func(int){
			func(i int) { set.GEMV.MulPairs(out, plain(i), mat.Pairs{V: pairs, Stride: cols / 2}, step, 1, cols) },
			func(i int) { set.Coded.MulPairs(y, m, i, pairs) },
		}
	}
	split, sums := make([]float32, set.GEMV.SplitFloats(cols)), make([]float32, set.GEMV.SplitSums(step, 1))
	set.GEMV.SplitTokens(split, mat.Floats{V: x, Stride: cols}, 1, cols)
	return fetch.CodedFloats, [2]func(int){
		func(i int) {
			set.GEMV.MulSplit(gemv.SplitProduct{Y: out, W: plain(i), X: split, Sums: sums, Rows: step, Tokens: 1, N: cols, Last: true})
		},
		func(i int) { set.Coded.MulSplit(y, m, i, split) },
	}
}
