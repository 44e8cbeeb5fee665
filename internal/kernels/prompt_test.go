package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestWidenColumns: a panel is the transpose of rows, exactly, with zeros beyond them.
func TestWidenColumns(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r, lanes := rand.New(rand.NewPCG(1, 2)), set.PanelLanes()
		for n := 1; n < 100; n += 1 + n/20 {
			for f := range formats {
				rows := n % (lanes + 1)
				data, values := store(f, random(r, max(rows, 1)*(n+3)), n%5)
				dst := random(r, n*lanes)
				set.WidenColumns(dst, Weights{data, (n + 3) * f.Size(), f}, rows, n, 64*n)
				for k := range n {
					for i := range lanes {
						want := float32(0)
						if i < rows {
							want = values[i*(n+3)+k]
						}
						if got := dst[k*lanes+i]; math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("format %d, n %d, rows %d: element %d of row %d is %g, want %g", f, n, rows, k, i, got, want)
						}
					}
				}
			}
		}
	})
}

// TestSumPanels: a sum has the same bits whatever the rows, columns and pieces of k beside it,
// and is right.
func TestSumPanels(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r, lanes, high := rand.New(rand.NewPCG(3, 1)), set.PanelLanes(), set.PanelRows()
		for n := 1; n < 40; n += 3 {
			rows, cols := 1+n*7%45, 2*lanes
			a, b := random(r, rows*n), random(r, n*cols)
			left, right := pack(set, Floats{a, n}, true, high, rows, n), pack(set, Floats{b, cols}, false, lanes, cols, n)
			want := make([]float32, rows*cols)
			set.SumPanels(Floats{want, cols}, left, n*lanes, right, rows, cols, n, false)
			for i := range rows {
				for j := range cols {
					sum, size := 0.0, 0.0
					for k := range n {
						p := float64(a[i*n+k]) * float64(b[k*cols+j])
						sum, size = sum+p, size+math.Abs(p)
					}
					near(t, fmt.Sprintf("n %d, element %d %d", n, i, j), want[i*cols+j], sum, size)
				}
			}
			for _, part := range []int{1, 2, 5, n} {
				few, less := 1+r.IntN(rows), 1+r.IntN(cols)
				got := random(r, few*(less+1))
				before := append([]float32{}, got...)
				for k := 0; k < n; k += part {
					m := min(part, n-k)
					piece := append(append([]float32{}, right[k*lanes:][:m*lanes]...), right[(n+k)*lanes:][:m*lanes]...)
					set.SumPanels(Floats{got, less + 1}, left[k*lanes:], n*lanes, piece, few, less, m, k > 0)
				}
				for i := range few {
					for j := range less {
						if g, w := got[i*(less+1)+j], want[i*cols+j]; math.Float32bits(g) != math.Float32bits(w) {
							t.Fatalf("n %d in pieces of %d, %d by %d: element %d %d is %g, alone %g", n, part, few, less, i, j, g, w)
						}
					}
					if i < few-1 && got[i*(less+1)+less] != before[i*(less+1)+less] {
						t.Fatalf("n %d, %d by %d: a column too many in row %d", n, few, less, i)
					}
				}
			}
		}
	})
}

func promptStaysInside(t *testing.T, set *Set, n int) {
	lanes, high := set.PanelLanes(), set.PanelRows()
	rows, cols := 1+n%lanes, 1+n%(2*lanes)
	for f := range formats {
		set.WidenColumns(guardedFloats(t, n*lanes), Weights{guarded(t, rows*n*f.Size()), n * f.Size(), f}, rows, n, 1<<20)
	}
	a, b := guardedFloats(t, ceil(n, high)*lanes*5), guardedFloats(t, 2*lanes*5)
	for _, add := range []bool{false, true} {
		set.SumPanels(Floats{guardedFloats(t, n*cols), cols}, a, 5*lanes, b, n, cols, 5, add)
	}
}

// BenchmarkSumPanels is a step of prompts of many and few tokens with their weights packed, in
// the share of time that is not packing too.
func BenchmarkSumPanels(b *testing.B) {
	for _, set := range available() {
		if set.Name == "amx" || set.Name == "avx512bf16" {
			continue // avx512
		}
		const n = 256
		lanes, high := set.PanelLanes(), set.PanelRows()
		for _, tokens := range []int{1, 8, 24, 168} {
			b.Run(fmt.Sprintf("%s/%d", set.Name, tokens), func(b *testing.B) {
				w := Weights{make([]byte, 2*lanes*n*2), n * 2, BFloat16}
				x, panels := make([]float32, ceil(tokens, high)*n*lanes), make([]float32, 2*lanes*n)
				y := make([]float32, tokens*2*lanes)
				for b.Loop() {
					for half := range 2 {
						part := w
						part.Data = w.Data[half*lanes*w.Stride:]
						set.WidenColumns(panels[half*lanes*n:], part, lanes, n, 0)
					}
					set.SumPanels(Floats{y, 2 * lanes}, x, n*lanes, panels, tokens, 2*lanes, n, true)
				}
				b.ReportMetric(2*float64(tokens*2*lanes*n)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
			})
		}
	}
}
