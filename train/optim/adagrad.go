package optim

import (
	"fmt"
	"math"
)

// AdagradOptions configures torch.optim.Adagrad. Zero values of LR and Eps mean its defaults (0.01,
// 1e-10).
type AdagradOptions struct {
	LR          float64
	LRDecay     float64
	WeightDecay float64
	Initial     float64 // initial value of the sums of squares
	Eps         float64
	Maximize    bool
}

// NewAdagrad returns Adagrad over params.
func NewAdagrad(params []Param, o AdagradOptions) (*Descent, error) {
	if o.LR == 0 {
		o.LR = 0.01
	}
	if o.Eps == 0 {
		o.Eps = 1e-10
	}
	if o.LRDecay < 0 || o.Initial < 0 || o.Eps < 0 {
		return nil, fmt.Errorf("optim: Adagrad: invalid rate decay %v, initial sum %v or eps %v", o.LRDecay, o.Initial, o.Eps)
	}
	return newDescent(adagrad{o}, Group{LR: o.LR, WeightDecay: o.WeightDecay}, params)
}

type adagrad struct{ o AdagradOptions }

func (adagrad) name() string          { return "Adagrad" }
func (adagrad) slots(*Group) []string { return []string{"sum"} }
func (a adagrad) start() float32      { return float32(a.o.Initial) }

func (a adagrad) update(g *Group, step int64) func(w, grad []float32, slots [][]float32) {
	lr := float32(g.LR / (1 + float64(step-1)*a.o.LRDecay))
	eps, decay, sign := float32(a.o.Eps), float32(g.WeightDecay), sign(a.o.Maximize)
	return func(w, grad []float32, slots [][]float32) {
		sum, grad := slots[0][:len(w)], grad[:len(w)]
		for i := range w {
			d := sign*grad[i] + decay*w[i]
			sum[i] += d * d
			w[i] -= lr * d / (float32(math.Sqrt(float64(sum[i]))) + eps)
		}
	}
}

// RMSpropOptions configures torch.optim.RMSprop. Zero values of LR, Alpha and Eps mean its defaults
// (0.01, 0.99, 1e-8).
type RMSpropOptions struct {
	LR          float64
	Alpha       float64
	Eps         float64
	WeightDecay float64
	Momentum    float64
	Centered    bool
	Maximize    bool
}

// NewRMSprop returns RMSprop over params.
func NewRMSprop(params []Param, o RMSpropOptions) (*Descent, error) {
	if o.LR == 0 {
		o.LR = 0.01
	}
	if o.Alpha == 0 {
		o.Alpha = 0.99
	}
	if o.Eps == 0 {
		o.Eps = 1e-8
	}
	if o.Alpha < 0 || o.Eps < 0 {
		return nil, fmt.Errorf("optim: RMSprop: invalid alpha %v or eps %v", o.Alpha, o.Eps)
	}
	return newDescent(rmsprop{o}, Group{LR: o.LR, WeightDecay: o.WeightDecay, Momentum: o.Momentum}, params)
}

type rmsprop struct{ o RMSpropOptions }

func (rmsprop) name() string { return "RMSprop" }

func (r rmsprop) slots(g *Group) []string {
	names := []string{"square_avg"}
	if r.o.Centered {
		names = append(names, "grad_avg")
	}
	if g.Momentum > 0 {
		names = append(names, "momentum_buffer") // must be last: update reads it there
	}
	return names
}

func (r rmsprop) update(g *Group, _ int64) func(w, grad []float32, slots [][]float32) {
	keep, take := float32(r.o.Alpha), float32(1-r.o.Alpha)
	lr, eps, decay, push, sign := float32(g.LR), float32(r.o.Eps), float32(g.WeightDecay), float32(g.Momentum), sign(r.o.Maximize)
	return func(w, grad []float32, slots [][]float32) {
		square, grad := slots[0][:len(w)], grad[:len(w)]
		for i := range w {
			d := sign*grad[i] + decay*w[i]
			square[i] = keep*square[i] + take*d*d
			v := square[i]
			if r.o.Centered {
				mean := slots[1]
				mean[i] += take * (d - mean[i])
				v -= mean[i] * mean[i]
			}
			d /= float32(math.Sqrt(float64(v))) + eps
			if push > 0 {
				buf := slots[len(slots)-1]
				buf[i] = push*buf[i] + d
				d = buf[i]
			}
			w[i] -= lr * d
		}
	}
}
