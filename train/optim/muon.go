package optim

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/matmul"
)

// MuonOptions configures torch.optim.Muon for matrices, and AdamW for other parameters. Zero values of LR,
// Momentum, Steps and Eps mean torch's defaults (0.001, 0.95, 5, 1e-7), and those of Beta1, Beta2 and
// AdamEps AdamW's.
type MuonOptions struct {
	LR          float64
	Momentum    float64
	WeightDecay float64
	Steps       int     // iterations of Newton-Schulz
	Eps         float64 // minimum norm by which an update is divided
	// MatchRMS multiplies the rate of a matrix by 0.2·√max(rows, columns), so that updates are as
	// large as AdamW's (torch's match_rms_adamw). The default factor is √max(1, rows/columns).
	MatchRMS              bool
	Beta1, Beta2, AdamEps float64 // of AdamW
}

// NewMuon returns Muon over params. It steps a matrix along its Nesterov momentum, orthogonalised
// by Newton-Schulz iteration, in float32 where torch uses bfloat16. Each matrix of a stack is
// stepped by itself. Vectors, and groups with Adam set, are stepped by AdamW. The parameters must
// report their shape, as a *tensor.Parameter does. It steps whole parameters, so it does not work
// with plugins that split the optimizer's state between ranks.
func NewMuon(params []Param, o MuonOptions) (*Descent, error) {
	o.LR, o.Momentum, o.Eps, o.Steps = cmp.Or(o.LR, 1e-3), cmp.Or(o.Momentum, 0.95), cmp.Or(o.Eps, 1e-7), cmp.Or(o.Steps, 5)
	o.Beta1, o.Beta2, o.AdamEps = cmp.Or(o.Beta1, 0.9), cmp.Or(o.Beta2, 0.999), cmp.Or(o.AdamEps, 1e-8)
	if !(o.Momentum < 1 && o.Eps > 0 && o.Beta1 > 0 && o.Beta1 < 1 && o.Beta2 > 0 && o.Beta2 < 1 && o.AdamEps > 0) || o.Steps < 1 || o.Steps >= 100 {
		return nil, fmt.Errorf("optim: Muon: momentum %v, eps %v, %d steps, betas %v and %v, AdamW's eps %v", o.Momentum, o.Eps, o.Steps, o.Beta1, o.Beta2, o.AdamEps)
	}
	set, err := kernels.Select("")
	if err != nil {
		return nil, fmt.Errorf("optim: %w", err)
	}
	others := adam{"AdamW", AdamOptions{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.AdamEps}, set}
	return newDescent(muon{o, others, set}, Group{LR: o.LR, WeightDecay: o.WeightDecay, Momentum: o.Momentum}, params)
}

type muon struct {
	o      MuonOptions
	others adam
	set    *kernels.Set
}

func (muon) name() string          { return "Muon" }
func (muon) slots(*Group) []string { return nil } // see arrays

func (muon) update(*Group, int64) func(w, grad []float32, slots [][]float32) {
	return nil // see stepWhole
}

func (m muon) arrays(g *Group, shape []int) (names []string, lengths []int) {
	stack, rows, cols := matrices(shape)
	if cols == 0 || g.Adam {
		n := stack * rows * max(cols, 1)
		return []string{"exp_avg", "exp_avg_sq"}, []int{n, n}
	}
	return []string{"momentum_buffer"}, []int{stack * rows * cols}
}

func (m muon) stepWhole(g *Group, step int64, shape []int, w, grad []float32, slots [][]float32) {
	stack, rows, cols := matrices(shape)
	if cols == 0 || g.Adam {
		own := *g
		own.Momentum = m.o.Beta1
		stepAll(m.others.update(&own, step), w, grad, slots)
		return
	}
	near := float32(1 - g.Momentum)
	buf, update := slots[0], make([]float32, len(w))
	inParts(len(w), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			buf[i] += near * (grad[i] - buf[i])
			update[i] = buf[i] - near*(buf[i]-grad[i])
		}
	})
	rate := g.LR * math.Sqrt(max(1, float64(rows)/float64(cols)))
	if m.o.MatchRMS {
		rate = g.LR * 0.2 * math.Sqrt(float64(max(rows, cols)))
	}
	shrink, by := float32(1-g.LR*g.WeightDecay), float32(rate)
	n := rows * cols
	for i := range stack {
		x := m.orthogonal(update[i*n:(i+1)*n], rows, cols)
		some := w[i*n : (i+1)*n]
		inParts(n, func(lo, hi int) {
			for j := lo; j < hi; j++ {
				some[j] = some[j]*shrink - by*x[j]
			}
		})
	}
}

// orthogonal returns a matrix with the singular vectors of x and singular values near 1. It
// overwrites x. The coefficients are Keller Jordan's.
func (m muon) orthogonal(x []float32, rows, cols int) []float32 {
	const a, b, c = 3.4445, -4.7750, 2.0315
	square := 0.0
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	by := float32(1 / max(math.Sqrt(square), m.o.Eps))
	for i := range x {
		x[i] *= by
	}
	product := matmul.New(m.set, onThreads)
	short, long := min(rows, cols), max(rows, cols)
	gram, update, next := make([]float32, short*short), make([]float32, short*short), make([]float32, len(x))
	wide, narrow := matmul.Rows(x, cols), matmul.Columns(x, cols) // x with fewer rows than columns, and its transpose
	if rows > cols {
		wide, narrow = narrow, wide
	}
	for range m.o.Steps {
		product.Mul(matmul.Product{C: floatsOf(gram, short), A: wide, B: narrow, Rows: short, Cols: short, N: long})
		product.Mul(matmul.Product{C: floatsOf(update, short), A: matmul.Rows(gram, short), B: matmul.Rows(gram, short), Rows: short, Cols: short, N: short})
		for i, v := range gram {
			update[i] = b*v + c*update[i]
		}
		if rows > cols { // the update is symmetric
			product.Mul(matmul.Product{C: floatsOf(next, cols), A: matmul.Rows(x, cols), B: matmul.Rows(update, short), Rows: rows, Cols: cols, N: short})
		} else {
			product.Mul(matmul.Product{C: floatsOf(next, cols), A: matmul.Rows(update, short), B: matmul.Rows(x, cols), Rows: rows, Cols: cols, N: short})
		}
		for i, v := range next {
			x[i] = a*x[i] + v
		}
	}
	return x
}

func floatsOf(v []float32, stride int) mat.Floats { return mat.Floats{V: v, Stride: stride} }

// onThreads runs units of a product on all threads. The result does not depend on their number.
func onThreads(units int, f func(unit int)) {
	var wg sync.WaitGroup
	parts := min(units, runtime.GOMAXPROCS(0))
	for i := range parts {
		wg.Go(func() {
			for u := i * units / parts; u < (i+1)*units/parts; u++ {
				f(u)
			}
		})
	}
	wg.Wait()
}
