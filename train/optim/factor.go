package optim

import (
	"errors"
	"fmt"
	"math"
)

// Factor returns the multiplier of the initial rate after the given number of steps, from 0. The
// formulas are those of transformers' optimization module.
type Factor func(step int) float64

// Constant returns the factor 1 at every step.
func Constant() Factor { return func(int) float64 { return 1 } }

// warmup rises from 0 to 1 in n steps and then follows rest.
func warmup(n int, rest Factor) Factor {
	return func(step int) float64 {
		if step < n {
			return float64(step) / float64(max(1, n))
		}
		return rest(step)
	}
}

// ConstantWithWarmup rises for warm steps and then stays at 1.
func ConstantWithWarmup(warm int) Factor { return warmup(warm, Constant()) }

// Linear rises for warm steps and falls to 0 at total, where it stays.
func Linear(warm, total int) Factor {
	return warmup(warm, func(step int) float64 {
		return max(0, float64(total-step)/float64(max(1, total-warm)))
	})
}

// progress returns the completed fraction of total-warm.
func progress(step, warm, total int) float64 {
	return float64(step-warm) / float64(max(1, total-warm))
}

func wave(cycles, progress float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*cycles*2*progress)) }

// Cosine rises for warm steps and then follows the given number of cosine cycles. With 0.5 it
// falls once to 0 at total and rises again after it.
func Cosine(warm, total int, cycles float64) Factor {
	return warmup(warm, func(step int) float64 { return max(0, wave(cycles, progress(step, warm, total))) })
}

// CosineWithRestarts falls cycles times from 1. It is 0 from total on.
func CosineWithRestarts(warm, total int, cycles float64) Factor {
	return warmup(warm, func(step int) float64 {
		p := progress(step, warm, total)
		if p >= 1 {
			return 0
		}
		return max(0, 0.5*(1+math.Cos(math.Pi*math.Mod(cycles*p, 1))))
	})
}

// CosineWithMinLR is Cosine that falls to the fraction least of the rate.
func CosineWithMinLR(warm, total int, cycles, least float64) Factor {
	return warmup(warm, func(step int) float64 {
		return max(0, wave(cycles, progress(step, warm, total))*(1-least)+least)
	})
}

// CosineWarmupWithMinLR is CosineWithMinLR shifted by one step. Its warm-up starts at the fraction
// first of the rate, or one step in if first is nil.
func CosineWarmupWithMinLR(warm, total int, cycles, least float64, first *float64) Factor {
	return func(step int) float64 {
		switch {
		case step < warm && first == nil:
			return float64(step+1) / float64(max(1, warm))
		case step < warm:
			return *first + (1-*first)*float64(step)/float64(max(1, warm-1))
		}
		p := float64(step-warm+1) / float64(max(1, total-warm))
		return max(0, wave(cycles, p)*(1-least)+least)
	}
}

// Polynomial rises for warm steps and falls to end/lr at total by a power. lr is the optimizer's
// rate. Equal warm and total are an error.
func Polynomial(warm, total int, lr, end, power float64) (Factor, error) {
	if !(lr > end) {
		return nil, fmt.Errorf("optim: polynomial: lr_end (%v) must be smaller than the initial rate (%v)", end, lr)
	}
	if total == warm {
		return nil, errors.New("optim: polynomial: warm-up steps equal total steps: want more total steps than warm-up steps")
	}
	return warmup(warm, func(step int) float64 {
		if step > total {
			return end / lr
		}
		left := 1 - float64(step-warm)/float64(total-warm)
		return ((lr-end)*math.Pow(left, power) + end) / lr
	}), nil
}

// InverseSqrt rises for warm steps and then falls like 1/sqrt(step/timescale). A timescale of 0
// means warm, or 10000 without a warm-up.
func InverseSqrt(warm, timescale int) Factor {
	if timescale == 0 {
		timescale = warm
	}
	if timescale == 0 {
		timescale = 10000
	}
	return warmup(warm, func(step int) float64 {
		return 1 / math.Sqrt(float64(step+timescale-warm)/float64(timescale))
	})
}

// DecayShape is the curve by which [WarmupStableDecay] rises and falls.
type DecayShape string

const (
	ShapeLinear    DecayShape = "linear"
	ShapeCosine    DecayShape = "cosine"
	ShapeOneMinusS DecayShape = "1-sqrt"
)

// WSDOptions holds the phases of [WarmupStableDecay].
type WSDOptions struct {
	Warmup, Stable, Decay int
	Rise, Fall            DecayShape // "" means linear and cosine
	Least                 float64    // fraction of the rate before and after
	Cycles                float64    // of a cosine fall; 0 means 0.5
}

// WarmupStableDecay returns a factor that rises, stays constant and falls.
func WarmupStableDecay(w WSDOptions) (Factor, error) {
	if w.Rise == "" {
		w.Rise = ShapeLinear
	}
	if w.Fall == "" {
		w.Fall = ShapeCosine
	}
	if w.Cycles == 0 {
		w.Cycles = 0.5
	}
	for _, s := range []DecayShape{w.Rise, w.Fall} {
		if s != ShapeLinear && s != ShapeCosine && s != ShapeOneMinusS {
			return nil, fmt.Errorf("optim: warmup_stable_decay: unknown shape %q (linear, cosine or 1-sqrt)", s)
		}
	}
	lift := func(f float64) float64 { return max(0, f*(1-w.Least)+w.Least) }
	return func(step int) float64 {
		switch {
		case step < w.Warmup:
			return lift(w.rise(float64(step) / float64(max(1, w.Warmup))))
		case step < w.Warmup+w.Stable:
			return 1
		case step < w.Warmup+w.Stable+w.Decay:
			return lift(w.fall(float64(step-w.Warmup-w.Stable) / float64(max(1, w.Decay))))
		}
		return w.Least
	}, nil
}

func (w WSDOptions) rise(p float64) float64 {
	switch w.Rise {
	case ShapeCosine:
		return 0.5 * (1 - math.Cos(math.Pi*p))
	case ShapeOneMinusS:
		return 1 - math.Sqrt(1-p)
	}
	return p
}

func (w WSDOptions) fall(p float64) float64 {
	switch w.Fall {
	case ShapeCosine:
		return wave(w.Cycles, p)
	case ShapeOneMinusS:
		return 1 - math.Sqrt(p)
	}
	return 1 - p
}
