package train

import (
	"context"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

// BenchmarkBackwardAverages is a synchronizing backward pass of a parameter of a million
// numbers on two ranks.
func BenchmarkBackwardAverages(b *testing.B) {
	const n = 1 << 20
	b.SetBytes(2 * 4 * n)
	err := Launch(b.Context(), 2, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w})
		if err != nil {
			return err
		}
		p := tensor.NewParameter(make([]float32, n))
		if err := a.Prepare(p); err != nil {
			return err
		}
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		for range b.N {
			if err := a.Backward(ctx, tape.Sum(tape.Use(p))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
