package optim

import (
	"fmt"
	"math"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/optimizer"
)

// AdamOptions configures torch.optim.Adam and AdamW. Zero values of LR, Beta1, Beta2 and Eps mean
// torch's defaults (0.001, 0.9, 0.999, 1e-8). WeightDecay has no default: [DefaultAdamW] sets
// torch's 0.01.
type AdamOptions struct {
	LR           float64
	Beta1, Beta2 float64
	Eps          float64
	WeightDecay  float64
	AMSGrad      bool
	Maximize     bool
}

// DefaultAdamW returns torch's defaults for AdamW.
func DefaultAdamW() AdamOptions {
	return AdamOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}
}

// NewAdam returns Adam over params. It adds weight decay to the gradient.
func NewAdam(params []Param, o AdamOptions) (*Descent, error) { return newAdam("Adam", params, o) }

// NewAdamW returns Adam with decoupled weight decay: each step first multiplies weights by 1 -
// LR*WeightDecay.
func NewAdamW(params []Param, o AdamOptions) (*Descent, error) { return newAdam("AdamW", params, o) }

func newAdam(name string, params []Param, o AdamOptions) (*Descent, error) {
	for _, d := range []struct {
		to *float64
		v  float64
	}{{&o.LR, 1e-3}, {&o.Beta1, 0.9}, {&o.Beta2, 0.999}, {&o.Eps, 1e-8}} {
		if *d.to == 0 {
			*d.to = d.v
		}
	}
	if o.Beta1 >= 1 || o.Beta2 < 0 || o.Beta2 >= 1 || o.Eps < 0 {
		return nil, fmt.Errorf("optim: %s: betas %v and %v, eps %v", name, o.Beta1, o.Beta2, o.Eps)
	}
	set, err := kernels.Select("")
	if err != nil {
		return nil, fmt.Errorf("optim: %w", err)
	}
	return newDescent(adam{name, o, set}, Group{LR: o.LR, WeightDecay: o.WeightDecay, Momentum: o.Beta1}, params)
}

type adam struct {
	kind string
	o    AdamOptions
	set  *kernels.Set
}

func (a adam) name() string { return a.kind }

func (a adam) slots(*Group) []string {
	if a.o.AMSGrad {
		return []string{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
	}
	return []string{"exp_avg", "exp_avg_sq"}
}

func (a adam) update(g *Group, step int64) func(w, grad []float32, slots [][]float32) {
	beta1, beta2 := g.Momentum, a.o.Beta2
	size := float32(g.LR / (1 - math.Pow(beta1, float64(step))))
	root := float32(math.Sqrt(1 - math.Pow(beta2, float64(step))))
	near, eps := float32(1-beta1), float32(a.o.Eps)
	keep, take := float32(beta2), float32(1-beta2)
	shrink, decay := float32(1), float32(g.WeightDecay)
	if a.kind == "AdamW" {
		shrink, decay = float32(1-g.LR*g.WeightDecay), 0
	}
	sign := sign(a.o.Maximize)
	far := near >= 0.5 // torch then rounds the mean from its other end
	if !far && !a.o.AMSGrad {
		step := optimizer.AdamStep{Shrink: shrink, Decay: decay, Sign: sign, Near: near, Keep: keep, Take: take, Size: size, Root: root, Eps: eps}
		return func(w, grad []float32, slots [][]float32) { a.set.Optimizer.Adam(w, slots[0], slots[1], grad, step) }
	}
	return func(w, grad []float32, slots [][]float32) {
		m, v, grad := slots[0][:len(w)], slots[1][:len(w)], grad[:len(w)]
		var most []float32
		if a.o.AMSGrad {
			most = slots[2][:len(w)]
		}
		for i := range w {
			x := w[i] * shrink
			d := sign*grad[i] + decay*x
			mean := m[i] + near*(d-m[i])
			if far {
				mean = d - (1-near)*(d-m[i])
			}
			square := keep*v[i] + take*d*d
			m[i], v[i] = mean, square
			if most != nil {
				square = max(most[i], square)
				most[i] = square
			}
			w[i] = x - size*mean/(float32(math.Sqrt(float64(square)))/root+eps)
		}
	}
}
