package optimizer_test

import (
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/optimizer"
)

// loops have the bits of the Go variant. Each gets five operands of one length and changes the
// first three.
var loops = kerneltest.Loops{
	"Adam": func(s *kernels.Set, a, b, c, d, _ []float32) {
		for i, v := range c {
			c[i] = v * v
		}
		s.Optimizer.Adam(a, b, c, d, optimizer.AdamStep{Shrink: 0.999, Decay: 0.1, Sign: -1, Near: 0.1, Keep: 0.9, Take: 0.1, Size: 0.01, Root: 0.3, Eps: 1e-8})
	},
	"Momentum": func(s *kernels.Set, a, b, c, _, _ []float32) {
		s.Optimizer.Momentum(a, b, c, optimizer.MomentumStep{LR: 0.1, Decay: 0.01, Sign: 1, Keep: 0.9, Take: 0.8})
	},
	"Nesterov": func(s *kernels.Set, a, b, c, _, _ []float32) {
		s.Optimizer.Momentum(a, b, c, optimizer.MomentumStep{LR: 0.1, Decay: 0.01, Sign: 1, Keep: 0.9, Take: 1, Nesterov: true})
	},
}

func TestOptimizerLoops(t *testing.T) { kerneltest.TestLoops(t, loops) }

func BenchmarkOptimizerLoops(b *testing.B) { kerneltest.BenchmarkLoops(b, loops) }
