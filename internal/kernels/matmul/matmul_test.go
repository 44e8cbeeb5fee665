package matmul

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
)

func random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// at is element (i, j).
func (m Matrix) at(i, j int) float32 {
	if m.Turned {
		i, j = j, i
	}
	if w := m.Stored; w.Data != nil {
		return mat.FromBFloat16(binary.LittleEndian.Uint16(w.Data[i*w.Stride+2*j:]))
	}
	return m.V[i*m.Stride+j]
}

// stored is m in bfloat16.
func stored(m Matrix) Matrix {
	data := make([]byte, 2*len(m.V))
	mat.NarrowBFloat16(data, m.V)
	return Matrix{Stored: mat.Weights{Data: data, Stride: 2 * m.Stride, Format: mat.BFloat16}, Turned: m.Turned}
}

// threads runs units on n goroutines.
func threads(n int) Run {
	return func(units int, f func(int)) {
		var all sync.WaitGroup
		for t := range n {
			all.Go(func() {
				for i := t; i < units; i += n {
					f(i)
				}
			})
		}
		all.Wait()
	}
}

// operands are a (rows by n) and b (n by cols), by rows or by columns.
func operands(r *rand.Rand, rows, cols, n int, turnA, turnB bool) (a, b Matrix) {
	a, b = Rows(random(r, rows*(n+1)), n+1), Rows(random(r, n*(cols+2)), cols+2)
	if turnA {
		a = Columns(random(r, n*(rows+1)), rows+1)
	}
	if turnB {
		b = Columns(random(r, cols*(n+3)), n+3)
	}
	return a, b
}

func eachSet(t *testing.T, test func(t *testing.T, set *kernels.Set)) {
	for _, name := range kernels.Names() {
		set, err := kernels.Select(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) { test(t, set) })
		if set.SlowPairs { // they are used elsewhere
			fast := *set
			fast.SlowPairs = false
			t.Run(name+" with pairs", func(t *testing.T) { test(t, &fast) })
		}
	}
}

var sizes = [][3]int{{1, 1, 1}, {3, 17, 5}, {14, 32, 16}, {15, 33, 321}, {30, 7, 700}, {200, 40, 33}, {5, 270, 64}, {2060, 9, 3}, {4, 2100, 2}}

func TestMul(t *testing.T) {
	eachSet(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(1, 2))
		m := New(set, threads(3))
		for _, s := range sizes {
			rows, cols, n := s[0], s[1], s[2]
			for form := range 16 {
				a, b := operands(r, rows, cols, n, form&1 != 0, form&2 != 0)
				add := form&4 != 0
				if form&8 != 0 {
					b = stored(b)
				}
				c := random(r, rows*(cols+1))
				before := append([]float32{}, c...)
				m.Mul(Product{C: mat.Floats{V: c, Stride: cols + 1}, A: a, B: b, Rows: rows, Cols: cols, N: n, Add: add})
				what := fmt.Sprintf("%d by %d by %d, form %d", rows, cols, n, form)
				compare(t, what, c, before, a, b, rows, cols, n, add, 2e-6, nil)
				copy(c, before)
				m.Mul(Product{C: mat.Floats{V: c, Stride: cols + 1}, A: a, B: b, Rows: rows, Cols: cols, N: n, Add: add, Rounded: true})
				compare(t, what+" rounded", c, before, a, b, rows, cols, n, add, 2e-6, func(v float32) float32 {
					return mat.FromBFloat16(mat.ToBFloat16(v))
				})
			}
		}
	})
}

// compare checks c, whose rows have one element more than cols, against float64.
func compare(t *testing.T, what string, c, before []float32, a, b Matrix, rows, cols, n int, add bool, tolerance float64, round func(float32) float32) {
	t.Helper()
	if round == nil {
		round = func(v float32) float32 { return v }
	}
	for i := range rows {
		for j := range cols + 1 {
			at := i*(cols+1) + j
			want, size := 0.0, 0.0
			if add || j == cols {
				want = float64(before[at])
			}
			for k := 0; k < n && j < cols; k++ {
				p := float64(round(a.at(i, k))) * float64(round(b.at(k, j)))
				want, size = want+p, size+math.Abs(p)
			}
			if d := math.Abs(float64(c[at]) - want); !(d <= tolerance*(size+1)) {
				t.Fatalf("%s: element %d %d is %g, want %g", what, i, j, c[at], want)
			}
		}
	}
}

func TestMulOfNothing(t *testing.T) {
	set, err := kernels.Select("")
	if err != nil {
		t.Fatal(err)
	}
	m, c := New(set, serial), []float32{1, 2, 3}
	m.Mul(Product{C: mat.Floats{V: c, Stride: 2}, A: Matrix{}, B: Matrix{}, Rows: 0, Cols: 2, N: 3, Add: false})
	m.Mul(Product{C: mat.Floats{V: c, Stride: 2}, A: Matrix{}, B: Matrix{}, Rows: 1, Cols: 2, N: 0, Add: true})
	if c[0] != 1 || c[1] != 2 {
		t.Errorf("an empty product changed the result: %v", c)
	}
	m.Mul(Product{C: mat.Floats{V: c, Stride: 2}, A: Matrix{}, B: Matrix{}, Rows: 1, Cols: 2, N: 0, Add: false})
	if c[0] != 0 || c[1] != 0 || c[2] != 3 {
		t.Errorf("an empty sum is %v, want zeros and 3", c)
	}
}

// TestThreadsAndRowsChangeNothing: every element has the bits it has alone.
func TestThreadsAndRowsChangeNothing(t *testing.T) {
	eachSet(t, func(t *testing.T, set *kernels.Set) {
		const rows, cols, n = 650, 300, 650
		r := rand.New(rand.NewPCG(1, 2))
		a, b := operands(r, rows, cols, n, false, true)
		products := map[string]func(m *Multiplier, c mat.Floats, a Matrix, rows int){
			"float32": func(m *Multiplier, c mat.Floats, a Matrix, rows int) {
				m.Mul(Product{C: c, A: a, B: b, Rows: rows, Cols: cols, N: n, Add: false})
			},
			"rounded": func(m *Multiplier, c mat.Floats, a Matrix, rows int) {
				m.Mul(Product{C: c, A: a, B: b, Rows: rows, Cols: cols, N: n, Add: false, Rounded: true})
			},
		}
		for name, mul := range products {
			want := make([]float32, rows*cols)
			mul(New(set, serial), mat.Floats{V: want, Stride: cols}, a, rows)
			got := make([]float32, rows*cols)
			tall := New(set, threads(3))
			tall.Threads = 1 // so few that units are as tall as they may be
			mul(tall, mat.Floats{V: got, Stride: cols}, a, rows)
			row := make([]float32, cols)
			mul(New(set, serial), mat.Floats{V: row, Stride: cols}, Rows(a.V[77*a.Stride:], a.Stride), 1)
			for i, v := range got {
				if v != want[i] {
					t.Fatalf("%s: element %d is %g with threads, %g alone", name, i, v, want[i])
				}
			}
			for j, v := range row {
				if v != want[77*cols+j] {
					t.Fatalf("%s: element %d of a row is %g alone, %g among others", name, j, v, want[77*cols+j])
				}
			}
		}
	})
}

// TestKeptPanels: products read a weight once until the next Keep, if there is memory for its panels and the variant has
// some.
func TestKeptPanels(t *testing.T) {
	eachSet(t, func(t *testing.T, set *kernels.Set) {
		const rows, cols, n = 33, 300, 650
		r := rand.New(rand.NewPCG(1, 2))
		a, b := operands(r, rows, cols, n, false, true)
		_, other := operands(r, rows, cols, n, false, true)
		half, turned := stored(b), stored(other)
		m := New(set, threads(2))
		mul := func() []float32 {
			c := make([]float32, rows*cols)
			m.Mul(Product{C: mat.Floats{V: c, Stride: cols}, A: a, B: half, Rows: rows, Cols: cols, N: n, Rounded: true})
			return c
		}
		want := mul()
		memory := make([]uint32, 1<<20)
		m.Keep(memory)
		if !slices.Equal(mul(), want) {
			t.Error("another product while panels are kept")
		}
		copy(half.Stored.Data, turned.Stored.Data)
		if kept := slices.Equal(mul(), want); kept != Keeps(set) {
			t.Errorf("the weight's panels were kept: %v, want %v", kept, Keeps(set))
		}
		m.Keep(memory)
		if changed := mul(); slices.Equal(changed, want) {
			t.Error("panels were kept over Keep")
		} else {
			want = changed
		}
		m.Keep(memory[:100])
		if !slices.Equal(mul(), want) {
			t.Error("another product without room for panels")
		}
	})
}

func BenchmarkMul(b *testing.B) {
	names := []string{"NT", "NN", "TN"}
	for _, s := range [][3]int{{2048, 288, 288}, {2048, 768, 288}, {2048, 768, 768}, {2048, 2048, 768}, {2048, 4096, 4096}} {
		for form, name := range names {
			set, err := kernels.Select("")
			if err != nil {
				b.Fatal(err)
			}
			rows, cols, n := s[0], s[1], s[2]
			x, y := make([]float32, rows*n), make([]float32, n*cols)
			left, right := Rows(x, n), Rows(y, cols)
			if form == 0 {
				right = Columns(y, n)
			}
			if form == 2 {
				left = Columns(x, rows)
			}
			c := mat.Floats{V: make([]float32, rows*cols), Stride: cols}
			for _, th := range []int{1, 2} {
				m := New(set, threads(th))
				m.Threads = th
				b.Run(fmt.Sprintf("%s/%dx%dx%d/threads=%d", name, rows, cols, n, th), func(b *testing.B) {
					for b.Loop() {
						m.Mul(Product{C: c, A: left, B: right, Rows: rows, Cols: cols, N: n, Add: false})
					}
					b.ReportMetric(2*float64(rows)*float64(cols)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
				})
			}
		}
	}
}

// BenchmarkPack packs both operands of a product of matrices of 2048 by 2048, on one thread.
func BenchmarkPack(b *testing.B) {
	const size = 2048
	set, err := kernels.Select("")
	if err != nil {
		b.Fatal(err)
	}
	m, x := New(set, serial), make([]float32, size*size)
	for i := range x {
		x[i] = float32(i)
	}
	for name, operand := range map[string]Matrix{"rows": Rows(x, size), "columns": Columns(x, size)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(2 * 4 * size * size)
			for b.Loop() {
				for k := 0; k < size; k += heldSum {
					n := min(heldSum, size-k)
					m.p = product{a: operand, b: operand, k: k, rows: size, cols: size, n: n}
					m.p.plan(size, 1)
					m.left = atLeast(m.left, (blockPanels(size, set.GEMM.PanelRows())+1)*n*set.GEMM.PanelLanes())
					m.right = atLeast(m.right, (blockPanels(size, set.GEMM.PanelLanes())+1)*n*set.GEMM.PanelLanes())
					serial(m.p.packed, m.pack)
				}
			}
		})
	}
}

// serial runs units one after another.
func serial(units int, f func(unit int)) {
	for i := range units {
		f(i)
	}
}
