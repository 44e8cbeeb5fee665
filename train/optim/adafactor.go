package optim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// AdafactorOptions configures transformers' Adafactor with a fixed learning rate, as its Trainer
// uses it (scale_parameter and relative_step are false). Zero values mean the defaults of LR
// (1e-3), Eps (1e-30), ScaleEps (1e-3), ClipThreshold (1) and DecayRate (-0.8).
type AdafactorOptions struct {
	LR            float64
	Eps           float64 // added to squares of gradients
	ClipThreshold float64 // maximum root mean square of an update
	DecayRate     float64 // the running mean's factor in step n is 1 - n^DecayRate
	Beta1         float64 // of a running mean of updates; 0 keeps none
	WeightDecay   float64
	// ScaleParameter multiplies the rate by the root mean square of a parameter, or by ScaleEps
	// if that is more.
	ScaleParameter bool
	ScaleEps       float64
}

// NewAdafactor returns Adafactor over params. For a matrix it stores means of rows and of columns
// instead of a value for each element; for a stack of matrices it stores them for each. The
// parameters must report their shape, as a *tensor.Parameter does; otherwise they are vectors. It
// steps whole parameters, so it does not work with plugins that split the optimizer's state
// between ranks.
func NewAdafactor(params []Param, o AdafactorOptions) (*Descent, error) {
	for _, d := range []struct {
		to *float64
		v  float64
	}{{&o.LR, 1e-3}, {&o.Eps, 1e-30}, {&o.ScaleEps, 1e-3}, {&o.ClipThreshold, 1}, {&o.DecayRate, -0.8}} {
		if *d.to == 0 {
			*d.to = d.v
		}
	}
	if !(o.Eps > 0 && o.ScaleEps > 0 && o.ClipThreshold > 0 && o.DecayRate < 0 && o.Beta1 >= 0 && o.Beta1 < 1) {
		return nil, fmt.Errorf("optim: Adafactor: eps %v and %v, clip threshold %v, decay rate %v, beta %v", o.Eps, o.ScaleEps, o.ClipThreshold, o.DecayRate, o.Beta1)
	}
	return newDescent(adafactor{o}, Group{LR: o.LR, WeightDecay: o.WeightDecay, Momentum: o.Beta1}, params)
}

// errWhole is the error of a rule that cannot step parts of parameters.
var errWhole = errors.New("this optimizer steps whole matrices, not parts of them: use a plugin that replicates its state (ddp)")

// A shaped rule steps whole parameters by their shape.
type shaped interface {
	// arrays returns the names and the lengths of the state of a parameter.
	arrays(g *Group, shape []int) (names []string, lengths []int)
	// stepWhole steps a parameter for the step-th time, from 1.
	stepWhole(g *Group, step int64, shape []int, w, grad []float32, slots [][]float32)
}

// shapeOf returns the shape of a parameter that reports it, or else that of a vector.
func shapeOf(p Param) []int {
	if s, ok := p.(interface{ Shape() []int }); ok {
		return s.Shape()
	}
	return []int{size(p)}
}

type adafactor struct{ o AdafactorOptions }

func (adafactor) name() string          { return "Adafactor" }
func (adafactor) slots(*Group) []string { return nil } // see arrays

func (adafactor) update(*Group, int64) func(w, grad []float32, slots [][]float32) {
	return nil // see stepWhole
}

// The state of Adafactor under transformers' names.
const (
	rowMeans    = "exp_avg_sq_row"
	columnMeans = "exp_avg_sq_col"
	meanSquares = "exp_avg_sq"
	meanUpdates = "exp_avg"
)

// matrices returns a shape as a stack of matrices. A vector has no columns. A shape without
// dimensions is a vector of length 1.
func matrices(shape []int) (stack, rows, cols int) {
	stack, rows, cols = 1, 1, 1
	for i, n := range shape {
		switch len(shape) - i {
		case 1:
			cols = n
		case 2:
			rows = n
		default:
			stack *= n
		}
	}
	if len(shape) < 2 {
		return 1, cols, 0
	}
	return stack, rows, cols
}

func (a adafactor) arrays(g *Group, shape []int) (names []string, lengths []int) {
	stack, rows, cols := matrices(shape)
	if cols == 0 {
		names, lengths = []string{meanSquares}, []int{rows}
	} else {
		names, lengths = []string{rowMeans, columnMeans}, []int{stack * rows, stack * cols}
	}
	if g.Momentum > 0 {
		names, lengths = append(names, meanUpdates), append(lengths, stack*rows*max(cols, 1))
	}
	return names, lengths
}

func (a adafactor) stepWhole(g *Group, step int64, shape []int, w, grad []float32, slots [][]float32) {
	keep := 1 - math.Pow(float64(step), a.o.DecayRate)
	update := make([]float32, len(w))
	if stack, rows, cols := matrices(shape); cols == 0 {
		a.vector(update, grad, slots[0], keep)
	} else {
		for i := range stack {
			n := rows * cols
			a.matrix(update[i*n:(i+1)*n], grad[i*n:(i+1)*n], slots[0][i*rows:(i+1)*rows], slots[1][i*cols:(i+1)*cols], keep)
		}
	}
	lr := g.LR
	if a.o.ScaleParameter {
		lr *= max(a.o.ScaleEps, meanRoot(w))
	}
	by := float32(lr / max(1, meanRoot(update)/a.o.ClipThreshold))
	decay := float32(1 - g.WeightDecay*lr)
	var mean []float32
	if g.Momentum > 0 {
		mean = slots[len(slots)-1]
	}
	near := float32(1 - g.Momentum)
	inParts(len(w), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			u := update[i] * by
			if mean != nil {
				mean[i] = float32(g.Momentum)*mean[i] + near*u
				u = mean[i]
			}
			w[i] = w[i]*decay - u
		}
	})
}

// vector computes the update of a vector.
func (a adafactor) vector(update, grad, squares []float32, keep float64) {
	for i, d := range grad {
		squares[i] = float32(keep)*squares[i] + float32(1-keep)*(d*d+float32(a.o.Eps))
		update[i] = d / float32(math.Sqrt(float64(squares[i])))
	}
}

// matrix computes the update of a matrix, and its means of rows and columns.
func (a adafactor) matrix(update, grad, rows, cols []float32, keep float64) {
	n := len(cols)
	sums := a.columnSums(grad, rows, n, keep)
	mean := 0.0
	for _, r := range rows {
		mean += float64(r)
	}
	mean /= float64(len(rows))
	roots := make([]float32, n) // inverse roots of the columns
	for j := range cols {
		cols[j] = float32(keep)*cols[j] + float32(1-keep)*float32(sums[j]/float64(len(rows)))
		roots[j] = float32(1 / math.Sqrt(float64(cols[j])))
	}
	inRows(len(rows), n, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			root := float32(1 / math.Sqrt(float64(float32(float64(rows[i])/mean))))
			d, u := grad[i*n:(i+1)*n], update[i*n:(i+1)*n]
			for j := range u {
				u[j] = d[j] * (root * roots[j])
			}
		}
	})
}

// columnSums updates the means of rows and returns the sums of the squares of columns.
func (a adafactor) columnSums(grad, rows []float32, n int, keep float64) []float64 {
	parts := make([][]float64, rowParts(len(rows), n))
	inRows(len(rows), n, func(part, lo, hi int) {
		sums := make([]float64, n)
		for i := lo; i < hi; i++ {
			row := 0.0
			for j, d := range grad[i*n : (i+1)*n] {
				square := float64(d*d + float32(a.o.Eps))
				row += square
				sums[j] += square
			}
			rows[i] = float32(keep)*rows[i] + float32(1-keep)*float32(row/float64(n))
		}
		parts[part] = sums
	})
	for _, more := range parts[1:] {
		for j, v := range more {
			parts[0][j] += v
		}
	}
	return parts[0]
}

// mostParts is the maximum number of parts of a matrix.
const mostParts = 64

// partRows returns the number of rows of a part. It depends only on the shape, so that sums do,
// too.
func partRows(rows, cols int) int { return max(1, (share+cols-1)/cols, (rows+mostParts-1)/mostParts) }

func rowParts(rows, cols int) int {
	each := partRows(rows, cols)
	return max(1, (rows+each-1)/each)
}

// inRows calls f with the parts of a matrix, some at a time.
func inRows(rows, cols int, f func(part, lo, hi int)) {
	each := partRows(rows, cols)
	var all sync.WaitGroup
	for part := range rowParts(rows, cols) {
		all.Go(func() { f(part, part*each, min(rows, (part+1)*each)) })
	}
	all.Wait()
}

// meanRoot returns the root mean square of x.
func meanRoot(x []float32) float64 {
	sums := make([]float64, max(1, (len(x)+share-1)/share))
	inRows(len(sums), share, func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			for _, v := range x[i*share : min(len(x), (i+1)*share)] {
				sums[i] += float64(v) * float64(v)
			}
		}
	})
	sum := 0.0
	for _, v := range sums {
		sum += v
	}
	return math.Sqrt(sum / float64(max(1, len(x))))
}

// slotLengths returns the lengths of r's state arrays for p by name, or nil if all have the
// length of p.
func slotLengths(r rule, g *Group, p Param) map[string]int {
	s, ok := r.(shaped)
	if !ok {
		return nil
	}
	names, lengths := s.arrays(g, slices.Clone(shapeOf(p)))
	out := map[string]int{}
	for i, name := range names {
		out[name] = lengths[i]
	}
	return out
}
