package attention_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// packTurned packs 32 rows that lie one after another.
func packTurned(set *kernels.Set, dst []uint32, apart int, w []byte, cols int) bool {
	first := mat.Weights{Data: w, Stride: 2 * cols, Format: mat.BFloat16}
	return set.Attention.PackTransposed(dst, apart, first, mat.Weights{Data: w[2*cols*gemm.PackRows:], Stride: 2 * cols, Format: mat.BFloat16}, cols)
}

// attended is the attention of 32 queries over keys of dim and values of width channels, by
// blocks of some keys, with the range of keys that each query sees.
func attended(set *kernels.Set, q []float32, k, v []byte, keys, dim, width, block int, by float32, seen [][2]int) []float32 {
	const queries = 2 * gemm.PanelTokens
	size, groups := gemm.PanelWords(dim), mat.CeilDiv(width, 2*gemm.PackRows)
	panels := make([]uint32, 2*size)
	for i := range 2 {
		set.GEMM.PackTokens(panels[i*size:], mat.Floats{V: q[i*gemm.PanelTokens*dim:], Stride: dim}, gemm.PanelTokens, dim)
	}
	var state [2]attention.Online
	for i := range state {
		state[i].Reset()
	}
	for i, s := range seen {
		state[i/gemm.PanelTokens].First[i%gemm.PanelTokens], state[i/gemm.PanelTokens].Count[i%gemm.PanelTokens] = int32(s[0]), int32(s[1]-s[0])
	}
	out := mat.Floats{V: make([]float32, groups*2*gemm.PackRows*queries), Stride: queries}
	apart := gemm.PanelWords(block)
	for base := 0; base < keys; base += block {
		packs, scores := make([]uint32, mat.CeilDiv(block, gemm.PackRows)*size), mat.Floats{V: make([]float32, block*queries), Stride: queries}
		for i := 0; i < block; i += gemm.PackRows {
			set.GEMM.PackWeights(packs[i/gemm.PackRows*size:], mat.Weights{Data: k[(base+i)*2*dim:], Stride: 2 * dim, Format: mat.BFloat16}, gemm.PackRows, dim)
		}
		set.GEMM.Couple(gemm.Tiles{C: scores, W: packs, WStride: size, X: panels, XStride: size, Blocks: mat.CeilDiv(dim, gemm.BlockK), Count: block / (2 * gemm.PackRows), Add: false})
		values, weights := make([]uint32, 2*groups*apart), make([]uint32, 2*apart)
		for i := 0; i < block; i += gemm.BlockK {
			packTurned(set, values[i/2*gemm.PackRows:], apart, v[(base+i)*2*width:], width)
		}
		for i := range state {
			set.Attention.Softmax(weights[i*apart:], mat.Floats{V: scores.V[i*gemm.PanelTokens:], Stride: queries}, block, base, by, &state[i])
			if base > 0 {
				set.Attention.ScaleLanes(mat.Floats{V: out.V[i*gemm.PanelTokens:], Stride: queries}, groups*2*gemm.PackRows, &state[i].Factor)
			}
		}
		set.GEMM.Couple(gemm.Tiles{C: out, W: values, WStride: apart, X: weights, XStride: apart, Blocks: block / gemm.BlockK, Count: groups, Add: base > 0})
	}
	result := make([]float32, queries*width)
	for i := range queries {
		for c := range width {
			result[i*width+c] = out.V[c*queries+i] / state[i/gemm.PanelTokens].Sum[i%gemm.PanelTokens]
		}
	}
	return result
}

// TestRoundedAttention is the way of a block of queries through the kernels, against a sum in
// float64 whose weights are rounded likewise.
func TestRoundedAttention(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(7, 5))
		for _, c := range [][4]int{{32, 64, 64, 32}, {64, 64, 64, 32}, {256, 40, 24, 64}, {128, 128, 96, 128}, {96, 7, 33, 32}} {
			keys, dim, width, block := c[0], c[1], c[2], c[3]
			k, kv := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, keys*dim), 0)
			v, vv := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, keys*width), 0)
			q := kerneltest.Rounded(kerneltest.Random(r, 32*dim))
			seen := make([][2]int, 32)
			for i := range seen {
				seen[i] = [2]int{0, keys}
				if dim != 128 {
					seen[i][0] = r.IntN(keys)
					seen[i][1] = seen[i][0] + 1 + r.IntN(keys-seen[i][0])
				}
			}
			const by = 0.35
			got := attended(set, q, k, v, keys, dim, width, block, by, seen)
			for i, s := range seen {
				top, scores := math.Inf(-1), make([]float64, keys)
				for j := s[0]; j < s[1]; j++ {
					for d := range dim {
						scores[j] += float64(q[i*dim+d]) * float64(kv[j*dim+d])
					}
					scores[j] *= by
					top = max(top, scores[j])
				}
				for c := range width {
					sum, total := 0.0, 0.0
					for j := s[0]; j < s[1]; j++ {
						p := math.Exp2(scores[j] - top)
						sum, total = sum+p*float64(vv[j*width+c]), total+p
					}
					if want := sum / total; !(math.Abs(float64(got[i*width+c])-want) <= 0.012) {
						t.Fatalf("%v: query %d sees %v: channel %d is %g, want %g", c, i, s, c, got[i*width+c], want)
					}
				}
			}
		}
	})
}

// TestSoftmaxBlocks: a query's result does not depend on keys that it does not see.
func TestSoftmaxBlocks(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(2, 5))
		scores := mat.Floats{V: kerneltest.Random(r, 64*gemm.PanelTokens), Stride: gemm.PanelTokens}
		run := func(extra float32, keys int) (attention.Online, []uint32) {
			var o attention.Online
			o.Reset()
			for i := range o.Count {
				o.First[i], o.Count[i] = 3, int32(i+1)
			}
			s := mat.Floats{V: append([]float32(nil), scores.V...), Stride: gemm.PanelTokens}
			for j := range 64 {
				for i := range gemm.PanelTokens {
					if j < 3 || j >= 4+i {
						s.V[j*gemm.PanelTokens+i] = extra
					}
				}
			}
			p := make([]uint32, keys/2*gemm.PanelTokens)
			set.Attention.Softmax(p, s, keys, 0, 1.25, &o)
			before := o.Sum
			set.Attention.Softmax(make([]uint32, 16*gemm.PanelTokens), mat.Floats{V: s.V[32*gemm.PanelTokens:], Stride: gemm.PanelTokens}, 32, 64, 1.25, &o)
			if o.Sum != before {
				t.Fatalf("a block that nobody sees changes the sums %v to %v", before, o.Sum)
			}
			return o, p[:16*gemm.PanelTokens]
		}
		o, p := run(0, 32)
		for _, extra := range []float32{float32(math.NaN()), float32(math.Inf(1)), 1e30, -4} {
			for _, keys := range []int{32, 64} {
				if other, q := run(extra, keys); other.Sum != o.Sum || other.Top != o.Top || fmt.Sprint(q) != fmt.Sprint(p) {
					t.Errorf("with %g beside: %v, want %v", extra, other, o)
				}
			}
		}
	})
}

func TestPackTransposedFinite(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(3, 5))
		for _, cols := range []int{1, 16, 31, 32, 45, 64, 100} {
			packs := mat.CeilDiv(cols, 32) * 2
			dst := make([]uint32, packs*300)
			values := kerneltest.Random(r, 32*cols)
			data, rounded := kerneltest.Store(mat.BFloat16, values, 0)
			if !packTurned(set, dst, 300, data, cols) {
				t.Errorf("%d columns: finite numbers are said not to be", cols)
			}
			for c := range cols {
				for k := range 32 {
					got := uint16(dst[c/16*300+c%16*16+k/2] >> (16 * (k % 2)))
					if mat.FromBFloat16(got) != rounded[k*cols+c] {
						t.Fatalf("%d columns: row %d of column %d is %g, want %g", cols, k, c, mat.FromBFloat16(got), rounded[k*cols+c])
					}
				}
			}
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				at := r.IntN(len(values))
				old := values[at]
				values[at] = float32(bad)
				data, _ = kerneltest.Store(mat.BFloat16, values, 0)
				if values[at] = old; packTurned(set, dst, 300, data, cols) {
					t.Errorf("%d columns: %g at %d is not noticed", cols, bad, at)
				}
			}
		}
	})
}

// TestUnpackRows: rows of blocks are widened as blocks are, and rounded as numbers are.
func TestUnpackRows(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(4, 5))
		for _, blocks := range []int{1, 2, 3, 5} {
			const rows, beside = 4, 7
			n, stride := blocks*quant.BlockColumns, blocks*quant.Q8Bytes+beside
			w := make([]byte, rows*stride-beside)
			x := kerneltest.Random(r, rows*n)
			x[n+3], x[2*n+1] = float32(math.NaN()), 1e20
			want, got := make([]float32, rows*n), mat.Floats{V: make([]float32, rows*(n+1)-1), Stride: n + 1}
			for i := range rows {
				set.Quant.PackBlocks(quant.Q8, w[i*stride:][:blocks*quant.Q8Bytes], x[i*n:][:n])
				quant.UnpackBlocks(quant.Q8, want[i*n:][:n], w[i*stride:])
			}
			set.Attention.UnpackRows(got, w, stride, rows, blocks)
			for i := range rows {
				kerneltest.SameFloats(t, fmt.Sprintf("%d blocks, row %d", blocks, i), got.V[i*(n+1):][:n], want[i*n:][:n])
			}
			if !set.BF16 {
				continue
			}
			narrow := make([]byte, rows*2*n)
			set.Attention.NarrowRows(narrow, 2*n, w, stride, rows, blocks)
			for i, v := range want {
				h := mat.FromBFloat16(uint16(narrow[2*i]) | uint16(narrow[2*i+1])<<8)
				if v == v && h != mat.FromBFloat16(mat.ToBFloat16(v)) || v != v && h == h {
					t.Fatalf("%d blocks: element %d is %g, want %g rounded", blocks, i, h, v)
				}
			}
		}
	})
}

func BenchmarkRoundedAttention(b *testing.B) {
	for _, name := range kernels.Names() {
		set, _ := kernels.Select(name)
		if !set.BF16 {
			continue
		}
		b.Run(name, func(b *testing.B) {
			const keys, dim = 256, 64
			scores, p := mat.Floats{V: make([]float32, keys*32), Stride: 32}, make([]uint32, 2*gemm.PanelWords(keys))
			size, apart := gemm.PanelWords(dim), gemm.PanelWords(keys)
			packs, panels := make([]uint32, keys/16*size), make([]uint32, 2*size)
			values, out := make([]uint32, dim/16*apart), mat.Floats{V: make([]float32, dim*32), Stride: 32}
			var state [2]attention.Online
			for i := range state {
				state[i].Reset()
				for j := range gemm.PanelTokens {
					state[i].Count[j] = keys
				}
			}
			for b.Loop() {
				set.GEMM.Couple(gemm.Tiles{C: scores, W: packs, WStride: size, X: panels, XStride: size, Blocks: dim / gemm.BlockK, Count: keys / 32, Add: false})
				for i := range state {
					set.Attention.Softmax(p[i*apart:], mat.Floats{V: scores.V[i*gemm.PanelTokens:], Stride: 32}, keys, 0, 1, &state[i])
					set.Attention.ScaleLanes(mat.Floats{V: out.V[i*gemm.PanelTokens:], Stride: 32}, dim, &state[i].Factor)
				}
				set.GEMM.Couple(gemm.Tiles{C: out, W: values, WStride: apart, X: p, XStride: apart, Blocks: keys / gemm.BlockK, Count: dim / 32, Add: true})
			}
			b.ReportMetric(4*32*keys*dim*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
		})
	}
}
