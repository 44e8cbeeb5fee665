package train

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// squares is a module of square matrices with their biases.
type squares struct{ w, b []*tensor.Parameter }

func newSquares(layers, width int) *squares {
	m := new(squares)
	for l := range layers {
		w := make([]float32, width*width)
		for i := range w {
			w[i] = float32(math.Sin(float64(i*(l+3)))) / float32(width)
		}
		m.w = append(m.w, tensor.NewParameter(w, width, width))
		m.b = append(m.b, tensor.NewParameter(make([]float32, width)))
	}
	return m
}

func (m *squares) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for i := range m.w {
			if !yield(fmt.Sprintf("%d.weight", i), m.w[i]) || !yield(fmt.Sprintf("%d.bias", i), m.b[i]) {
				return
			}
		}
	}
}

// loss is that of rows that depend on at.
func (m *squares) loss(tape *tensor.Tape, at, rows int) *tensor.Tensor {
	width := m.w[0].Shape()[0]
	x := make([]float32, rows*width)
	for i := range x {
		x[i] = float32(math.Cos(float64(i + at*len(x))))
	}
	out := tape.Input(x, rows, width)
	for i := range m.w {
		out = tape.Tanh(tape.Linear(out, tape.Use(m.w[i]), tape.Use(m.b[i])))
	}
	return tape.Mean(tape.Mul(out, out))
}

// descents are optimizers of every kind of state.
var descents = map[string]func([]optim.Param) (*optim.Descent, error){
	"adamw": func(p []optim.Param) (*optim.Descent, error) {
		return optim.NewAdamW(p, optim.AdamOptions{LR: 0.01, WeightDecay: 0.1})
	},
	"adamw8bit": func(p []optim.Param) (*optim.Descent, error) {
		return optim.NewAdamW8bit(p, optim.AdamOptions{LR: 0.01})
	},
	"sgd": func(p []optim.Param) (*optim.Descent, error) {
		return optim.NewSGD(p, optim.SGDOptions{LR: 0.1, Momentum: 0.9})
	},
	"adafactor": func(p []optim.Param) (*optim.Descent, error) {
		return optim.NewAdafactor(p, optim.AdafactorOptions{LR: 0.01})
	},
	"muon": func(p []optim.Param) (*optim.Descent, error) { return optim.NewMuon(p, optim.MuonOptions{LR: 0.01}) },
}

// loopOf trains m on a rank, clips, and returns the norms before that.
// between, if not nil, is called between passes forwards and backwards.
func loopOf(ctx context.Context, a *Accelerator, m *squares, opt optim.Optimizer, from, to, window, rows int, each bool, between func(step int) error) (norms []float64, err error) {
	tape := a.NewTape(tensor.Options{Threads: 1})
	for step := from; step < to; step++ {
		pass := func() error {
			loss := m.loss(tape, step*a.NumProcesses()+a.ProcessIndex(), rows)
			if between != nil {
				if err := between(step); err != nil {
					return err
				}
			}
			return a.Backward(ctx, loss)
		}
		if (step+1)%window != 0 && each {
			err = pass()
		} else if (step+1)%window != 0 {
			err = a.NoSync(m, pass)
		} else if err = pass(); err == nil {
			var n float64
			if n, err = a.ClipGradNorm(Params(m), 0.01, 2); err == nil {
				norms = append(norms, n)
				err = opt.Step()
			}
			opt.ZeroGrad()
		}
		if err != nil {
			return nil, err
		}
	}
	return norms, nil
}

// sharedRun trains on two ranks, with a checkpoint halfway, which a second world continues. It returns the
// files of both worlds' last checkpoints and rank 1's norms.
func sharedRun(t *testing.T, of func([]optim.Param) (*optim.Descent, error), window int, share bool) (files map[string][]byte, norms []float64) {
	dir := t.TempDir()
	run := func(from, to int, resume, save string) {
		err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
			a, err := New(Config{World: w, Plugin: &TorchDDPPlugin{World: w, ShareMemory: share}})
			if err != nil {
				return err
			}
			m := newSquares(3, 6)
			if w.Rank() == 1 {
				m.w[0].Data()[0] = 7 // rank 0's counts
			}
			descent, err := of(Params(m))
			if err != nil {
				return err
			}
			var opt optim.Optimizer = descent
			if err := a.Prepare(m, &opt); err != nil {
				return err
			}
			if resume != "" {
				if err := a.LoadState(ctx, resume); err != nil {
					return err
				}
			}
			n, err := loopOf(ctx, a, m, opt, from, to, window, 2, false, nil)
			if err != nil {
				return err
			}
			if w.Rank() == 1 {
				norms = append(norms, n...)
			}
			_, err = a.SaveState(ctx, save)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	run(0, 3*window, "", first)
	run(3*window, 5*window, first, second)
	files = map[string][]byte{}
	for _, name := range []string{"first/model.safetensors", "first/optimizer.safetensors", "second/model.safetensors", "second/optimizer.safetensors"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	return files, norms
}

// Ranks that share memory have the weights, the optimizer state and the norms of those that do not.
func TestRanksThatShareMemoryTrainAsReplicas(t *testing.T) {
	for name, of := range descents {
		for _, window := range []int{1, 3} {
			want, norms := sharedRun(t, of, window, false)
			got, own := sharedRun(t, of, window, true)
			for file := range want {
				if !bytes.Equal(got[file], want[file]) {
					t.Errorf("%s, %d batches in a window: %s is not the one of ranks that share nothing", name, window, file)
				}
			}
			if !slices.Equal(own, norms) {
				t.Errorf("%s, %d batches in a window: got norms %v, want %v", name, window, own, norms)
			}
		}
	}
}

// heapOf returns the bytes that a training of n ranks, on batches of 512 rows together, holds between the
// passes forwards and backwards of the last batch of its second window. With each, gradients are averaged after
// every batch.
func heapOf(t *testing.T, n, window int, share, each bool) int64 {
	var before, after runtime.MemStats
	for range 3 { // also what pools and cleanups have
		runtime.GC()
	}
	runtime.ReadMemStats(&before)
	err := Launch(t.Context(), n, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w, Plugin: &TorchDDPPlugin{World: w, ShareMemory: share}})
		if err != nil {
			return err
		}
		m := newSquares(8, 512)
		a.rank.Group.BucketBytes = 1 << 20
		var opt optim.Optimizer
		if opt, err = optim.NewAdamW(Params(m), optim.AdamOptions{LR: 1e-3}); err != nil {
			return err
		}
		if err := a.Prepare(m, &opt); err != nil {
			return err
		}
		_, err = loopOf(ctx, a, m, opt, 0, 2*window, window, 512/n, each, func(step int) error {
			if step < 2*window-1 {
				return nil
			}
			if err := a.WaitForEveryone(ctx); err != nil {
				return err
			}
			if w.Rank() == 0 {
				for range 3 {
					runtime.GC()
				}
				runtime.ReadMemStats(&after)
			}
			return a.WaitForEveryone(ctx)
		})
		runtime.KeepAlive(opt)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

// Two ranks of a full fine-tune took twice the memory of one. The bytes are those of weights, gradients,
// optimizer state, activations and what tapes keep.
func TestRanksThatShareMemoryTakeThatOfOne(t *testing.T) {
	for _, window := range []int{1, 2} {
		one, two, apart := heapOf(t, 1, window, true, false), heapOf(t, 2, window, true, false), heapOf(t, 2, window, false, false)
		t.Logf("%d batches in a window: one rank %d bytes, two %.3f times that, two that share nothing %.3f times",
			window, one, float64(two)/float64(one), float64(apart)/float64(one))
		if float64(two) > 1.25*float64(one) {
			t.Errorf("%d batches in a window: got %d bytes with two ranks, want at most 1.25 times the %d of one", window, two, one)
		}
		if window == 1 {
			continue
		}
		each := heapOf(t, 2, window, true, true)
		t.Logf("averaged after each batch: %.3f times that of one", float64(each)/float64(one))
		if float64(each) > 1.08*float64(one) {
			t.Errorf("averaged after each of %d batches: got %d bytes with two ranks, want about the %d of one", window, each, one)
		}
	}
}

// What would make shared weights differ is an error instead.
func TestRanksThatShareMemoryStayTogether(t *testing.T) {
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w, Plugin: &TorchDDPPlugin{World: w, ShareMemory: true}})
		if err != nil {
			return err
		}
		m := newSquares(1, 4)
		if err := a.Prepare(m); err != nil {
			return err
		}
		for name, err := range map[string]error{
			"join":      a.JoinUnevenInputs(ctx, func(context.Context) error { return nil }),
			"local SGD": a.LocalSGD(ctx, m, 2, func(func() error) error { return nil }),
		} {
			if err == nil {
				t.Errorf("%s: got no error", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ClipGradValue left averaged gradients as they were where each rank has a part of them.
func TestClipGradValueClipsAveragedGradients(t *testing.T) {
	for name, plugin := range plugins {
		err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
			a, err := New(Config{World: w, Plugin: plugin(w)})
			if err != nil {
				return err
			}
			p := tensor.NewParameter([]float32{1, 1, 1, 1})
			sgd, err := optim.NewSGD(Params(p), optim.SGDOptions{LR: 1})
			if err != nil {
				return err
			}
			var opt optim.Optimizer = sgd
			params := Params(p)
			if err := a.Prepare(p, &opt); err != nil {
				return err
			}
			tape := a.NewTape(tensor.Options{Threads: 1})
			if err := a.Backward(ctx, tape.Sum(tape.Mul(tape.Use(p), tape.Input([]float32{3, -3, 0.25, 3})))); err != nil {
				return err
			}
			if err := a.ClipGradValue(params, 0.5); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			return p.Access(false, func(values []float32) error {
				if want := []float32{0.5, 1.5, 0.75, 0.5}; !slices.Equal(values, want) {
					return fmt.Errorf("weights %v, want %v", values, want)
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
