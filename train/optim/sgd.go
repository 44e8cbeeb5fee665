package optim

import (
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/optimizer"
)

// SGDOptions configures torch.optim.SGD. LR has no default: with 0 a step changes nothing.
type SGDOptions struct {
	LR          float64
	Momentum    float64
	Dampening   float64
	WeightDecay float64 // added to the gradient
	Nesterov    bool    // requires Momentum, and no Dampening
	Maximize    bool
}

// NewSGD returns stochastic gradient descent over params.
func NewSGD(params []Param, o SGDOptions) (*Descent, error) {
	if o.Nesterov && (o.Momentum <= 0 || o.Dampening != 0) {
		return nil, errors.New("optim: SGD: nesterov requires positive momentum and zero dampening")
	}
	set, err := kernels.Select("")
	if err != nil {
		return nil, fmt.Errorf("optim: %w", err)
	}
	return newDescent(sgd{o, set}, Group{LR: o.LR, WeightDecay: o.WeightDecay, Momentum: o.Momentum}, params)
}

type sgd struct {
	o   SGDOptions
	set *kernels.Set
}

func (sgd) name() string { return "SGD" }

func (sgd) slots(g *Group) []string {
	if g.Momentum == 0 {
		return nil
	}
	return []string{"momentum_buffer"}
}

func (s sgd) update(g *Group, step int64) func(w, grad []float32, slots [][]float32) {
	lr, decay, sign := float32(g.LR), float32(g.WeightDecay), sign(s.o.Maximize)
	if g.Momentum == 0 {
		return func(w, grad []float32, _ [][]float32) {
			grad = grad[:len(w)]
			for i := range w {
				w[i] -= lr * (sign*grad[i] + decay*w[i])
			}
		}
	}
	keep, take := float32(g.Momentum), float32(1-s.o.Dampening)
	if step > 1 {
		how := optimizer.MomentumStep{LR: lr, Decay: decay, Sign: sign, Keep: keep, Take: take, Nesterov: s.o.Nesterov}
		return func(w, grad []float32, slots [][]float32) { s.set.Optimizer.Momentum(w, slots[0], grad, how) }
	}
	return func(w, grad []float32, slots [][]float32) {
		buf := slots[0][:len(w)]
		grad = grad[:len(w)]
		for i := range w {
			d := sign*grad[i] + decay*w[i]
			b := d // the first buffer is the gradient itself
			buf[i] = b
			if s.o.Nesterov {
				b = d + keep*b
			}
			w[i] -= lr * b
		}
	}
}

func sign(maximize bool) float32 {
	if maximize {
		return -1
	}
	return 1
}
