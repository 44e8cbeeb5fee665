package train

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/tensor"
)

// Ranks whose passes reach different modules average both: the missing gradients count as zeros, and
// a module that no rank reaches keeps its gradients.
func TestRanksReachDifferentModules(t *testing.T) {
	for _, bucket := range []int{4, 1 << 20} {
		world(t, 2, func(ctx context.Context, a *Accelerator) error {
			a.rank.Group.BucketBytes = bucket
			modules := []*tensor.Parameter{tensor.NewParameter([]float32{1, 1}), tensor.NewParameter([]float32{1, 1}), tensor.NewParameter([]float32{1, 1})}
			if err := a.Prepare(modules[0], modules[1], modules[2]); err != nil {
				return err
			}
			modules[2].SetGrad([]float32{float32(a.ProcessIndex()), 7})
			tape := tensor.NewTape(tensor.Options{Threads: 1})
			mine := modules[a.ProcessIndex()]
			loss := tape.Sum(tape.Mul(tape.Use(mine), tape.Input([]float32{2, 4})))
			if err := a.Backward(ctx, loss); err != nil {
				return err
			}
			for i, want := range [][]float32{{1, 2}, {1, 2}, {float32(a.ProcessIndex()), 7}} {
				if !slices.Equal(modules[i].Grad(), want) {
					return fmt.Errorf("bucket of %d: module %d has the gradient %v, want %v", bucket, i, modules[i].Grad(), want)
				}
			}
			return nil
		})
	}
}

// chain is a module of several parameters that are used one after the other.
type chain struct{ params []*tensor.Parameter }

func (c *chain) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for i, p := range c.params {
			if !yield(fmt.Sprint(i), p) {
				return
			}
		}
	}
}

func newChain(n int) *chain {
	c := new(chain)
	for i := range n {
		c.params = append(c.params, tensor.NewParameter([]float32{1 + float32(i)/8, 2}))
	}
	return c
}

func (c *chain) loss(tape *tensor.Tape, x ...float32) *tensor.Tensor {
	out := tape.Input(x)
	for _, p := range c.params {
		out = tape.Mul(out, tape.Use(p))
	}
	return tape.Sum(out)
}

// The buckets' sizes change no bit, whatever is ready when.
func TestBucketsChangeNoBit(t *testing.T) {
	var want [][]float32
	for _, bucket := range []int{1 << 20, 16, 1} {
		world(t, 3, func(ctx context.Context, a *Accelerator) error {
			a.rank.Group.BucketBytes = bucket
			m := newChain(7)
			if err := a.Prepare(m); err != nil {
				return err
			}
			tape := tensor.NewTape(tensor.Options{Threads: 1})
			for pass := range 3 {
				if err := a.Backward(ctx, m.loss(tape, float32(a.ProcessIndex())*0.3+float32(pass), -0.7)); err != nil {
					return err
				}
			}
			if a.ProcessIndex() > 0 {
				return nil
			}
			var got [][]float32
			for _, p := range m.params {
				got = append(got, p.Grad())
			}
			if want == nil {
				want = got
			} else if !slices.EqualFunc(want, got, slices.Equal) {
				return fmt.Errorf("buckets of %d bytes: %v, want %v", bucket, got, want)
			}
			return nil
		})
	}
}

// Two optimizers with windows of their own share an accelerator: the short window of one rescales its
// own gradients only.
func TestAShortWindowRescalesItsOwnGradientsOnly(t *testing.T) {
	a, err := New(Config{GradientAccumulationSteps: 4, Corrections: Corrected()})
	if err != nil {
		t.Fatal(err)
	}
	short, long := tensor.NewParameter([]float32{1}), tensor.NewParameter([]float32{1})
	l, err := data.NewLoader(data.Slice[int]{0, 1, 2}, data.Samples[int], data.Options{BatchSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prepare(short, long, l); err != nil {
		t.Fatal(err)
	}
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	for _, err := range l.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if err := tensor.Backward(tape.Sum(tape.Use(long)), 0.125); err != nil { // a window of eight batches
			t.Fatal(err)
		}
		err = a.Accumulate(t.Context(), func(ctx context.Context) error {
			return a.Backward(ctx, tape.Sum(tape.Use(short)))
		}, short)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := long.Grad()[0]; got != 3*0.125 {
		t.Errorf("the gradient of the long window is %v, want %v", got, 3*0.125)
	}
	if got := short.Grad()[0]; got < 0.999999 || got > 1.000001 {
		t.Errorf("the gradient of the short window is %v, want 1", got)
	}
}
