package train

import (
	"context"
	"fmt"
	"testing"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// vectorLen is the size of a model of one vector, whose gradient is most of what ranks exchange.
const vectorLen = 1 << 15

// sentBy returns the bytes that this rank sends for 16 batches under accumulation.
func sentBy(ctx context.Context, w *World, accumulation int) (int64, error) {
	a, err := New(Config{World: w, GradientAccumulationSteps: accumulation})
	if err != nil {
		return 0, err
	}
	m := &chain{params: []*tensor.Parameter{tensor.NewParameter(make([]float32, vectorLen))}}
	var opt optim.Optimizer
	if opt, err = optim.NewSGD(Params(m), optim.SGDOptions{LR: 0.1}); err == nil {
		err = a.Prepare(m, &opt)
	}
	if err != nil {
		return 0, err
	}
	before, _ := w.Traffic()
	tape, x := tensor.NewTape(tensor.Options{Threads: 1}), make([]float32, vectorLen)
	for range 16 {
		err := a.Accumulate(ctx, func(ctx context.Context) error {
			if err := a.Backward(ctx, m.loss(tape, x...)); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			opt.ZeroGrad()
			return nil
		}, m)
		if err != nil {
			return 0, err
		}
	}
	after, _ := w.Traffic()
	return after - before, nil
}

// Under accumulation of 8 a rank sends at most 1/8 + 1 % of the bytes of no accumulation: windows
// exchange gradients at their end only.
func TestAccumulationSendsAnEighth(t *testing.T) {
	for n := 2; n <= 4; n++ {
		err := Launch(t.Context(), n, func(ctx context.Context, w *World) error {
			each, err := sentBy(ctx, w, 1)
			if err != nil {
				return err
			}
			if each < 16*4*vectorLen { // an all-reduce of n ranks sends 2(n-1)/n gradients
				return fmt.Errorf("16 exchanges sent %d bytes, want at least %d", each, 16*4*vectorLen)
			}
			eighth, err := sentBy(ctx, w, 8)
			if err == nil && (eighth == 0 || float64(eighth) > (1./8+0.01)*float64(each)) {
				err = fmt.Errorf("accumulation of 8 sent %d bytes, %d without", eighth, each)
			}
			if err == nil && w.Rank() == 0 {
				t.Logf("%d ranks: %d and %d bytes, a share of %.4f", n, eighth, each, float64(eighth)/float64(each))
			}
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
