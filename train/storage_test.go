package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/tensor/tensortest"
)

// move puts the values of n's parameters into other storages.
func (n *net) move(to func(i int, values []float32) tensor.Storage) {
	for i, p := range []*tensor.Parameter{n.first, n.second, n.frozen} {
		p.Move(to(i, p.Data()))
	}
}

// weights returns copies of the values of n's parameters. All ranks must call it.
func (n *net) weights() ([][]float32, error) {
	var all [][]float32
	for _, p := range []*tensor.Parameter{n.first, n.second, n.frozen} {
		err := p.Access(false, func(values []float32) error {
			all = append(all, slices.Clone(values))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// outcome is the result of a run on one rank.
type outcome struct {
	losses  []float32
	weights [][]float32
}

func (o outcome) equal(p outcome) bool {
	return slices.Equal(o.losses, p.losses) && slices.EqualFunc(o.weights, p.weights, slices.Equal)
}

// trainStored trains two epochs on each of n ranks, in windows of three batches, with the net that
// build makes. It loads load first, if that is not empty, and saves a checkpoint after ten batches
// and a model at the end into dir.
func trainStored(t *testing.T, n int, load, dir string, each func(*net), build func(context.Context, *World) *net) []outcome {
	t.Helper()
	c := exact(t)
	all := make([]outcome, n)
	err := Launch(t.Context(), n, func(ctx context.Context, w *World) error {
		r, err := newRunOf(build(ctx, w), w, c)
		if err != nil {
			return err
		}
		if load != "" {
			if err := r.acc.LoadState(ctx, load); err != nil {
				return err
			}
		}
		err = r.train(ctx, 2, func() error {
			each(r.net)
			if r.seen.Batches != 10 || load != "" {
				return nil
			}
			_, err := r.acc.SaveState(ctx, filepath.Join(dir, "state"))
			return err
		})
		if err != nil {
			return err
		}
		o := &all[w.Rank()]
		o.losses = r.losses
		if o.weights, err = r.net.weights(); err != nil {
			return err
		}
		return SaveModel(ctx, r.acc, r.net, filepath.Join(dir, "model"), SaveModelOptions{})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func unchanged(*net) {}

// inMemory builds the net that newRun has.
func inMemory(context.Context, *World) *net { return newNet(0.1) }

// splitModel returns a function that builds nets whose values are split between n ranks.
func splitModel(t *testing.T, n int) func(context.Context, *World) *net {
	var shards [][]*tensortest.Shard
	newNet(0.1).move(func(_ int, values []float32) tensor.Storage {
		s := tensortest.NewShards(t.Context(), values, n)
		shards = append(shards, s)
		return s[0]
	})
	t.Cleanup(func() {
		for i, all := range shards {
			for rank, s := range all {
				if s.InUse() || s.Acquired == 0 {
					t.Errorf("parameter %d, rank %d: in use %v after %d times", i, rank, s.InUse(), s.Acquired)
				}
			}
		}
	})
	return func(_ context.Context, w *World) *net {
		made := newNet(0.1)
		made.move(func(i int, _ []float32) tensor.Storage { return shards[i][w.Rank()] })
		return made
	}
}

// sameFiles compares two files byte for byte.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	y, e := os.ReadFile(b)
	if err = errors.Join(err, e); err != nil || !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ (%v)", a, b, err)
	}
}

// Ranks that hold a shard of every parameter each train, save and load the same bits as ranks that
// hold all values.
func TestShardedParametersTrainTheSame(t *testing.T) {
	const ranks = 2
	plain, split := t.TempDir(), t.TempDir()
	want := trainStored(t, ranks, "", plain, unchanged, inMemory)
	got := trainStored(t, ranks, "", split, unchanged, splitModel(t, ranks))
	if !slices.EqualFunc(got, want, outcome.equal) {
		t.Errorf("got %v, want %v", got, want)
	}
	sameFiles(t, filepath.Join(plain, "state", "model.safetensors"), filepath.Join(split, "state", "model.safetensors"))
	sameFiles(t, filepath.Join(plain, "model", "model.safetensors"), filepath.Join(split, "model", "model.safetensors"))

	// Either kind continues from the other's checkpoint.
	want = trainStored(t, ranks, filepath.Join(split, "state"), t.TempDir(), unchanged, inMemory)
	got = trainStored(t, ranks, filepath.Join(plain, "state"), t.TempDir(), unchanged, splitModel(t, ranks))
	if !slices.EqualFunc(got, want, outcome.equal) {
		t.Errorf("after loading: got %v, want %v", got, want)
	}
}

// A rank that cannot write its files does not leave the others waiting for its shards.
func TestSavingShardsFailsOnAllRanks(t *testing.T) {
	broken := errors.New("the disk is full")
	build, c, dir := splitModel(t, 2), exact(t), t.TempDir()
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		r, err := newRunOf(build(ctx, w), w, c)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			r.acc.RegisterSaveStatePreHook(func(string) error { return broken })
		}
		if _, err := r.acc.SaveState(ctx, filepath.Join(dir, "state")); err == nil {
			t.Errorf("rank %d: the checkpoint was saved", w.Rank())
		}
		_, err = r.net.weights() // the ranks still synchronise
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Parameters stored as bfloat16 train the same bits as float32 ones that are rounded after each
// step.
func TestNarrowParametersTrainLikeRoundedOnes(t *testing.T) {
	round := func(n *net) {
		for _, p := range []*tensor.Parameter{n.first, n.second, n.frozen} {
			for i, v := range p.Data() {
				p.Data()[i] = floats.RoundBFloat16(v)
			}
		}
	}
	rounded := func(context.Context, *World) *net {
		n := newNet(0.1)
		round(n)
		return n
	}
	narrow := func(context.Context, *World) *net {
		n := newNet(0.1)
		n.move(func(_ int, values []float32) tensor.Storage { return tensortest.NewNarrow(values) })
		return n
	}
	for _, ranks := range []int{1, 2} {
		wide, short := t.TempDir(), t.TempDir()
		want := trainStored(t, ranks, "", wide, round, rounded)
		got := trainStored(t, ranks, "", short, unchanged, narrow)
		if !slices.EqualFunc(got, want, outcome.equal) {
			t.Errorf("%d ranks: got %v, want %v", ranks, got, want)
		}
		sameFiles(t, filepath.Join(wide, "state", "model.safetensors"), filepath.Join(short, "state", "model.safetensors"))
		want = trainStored(t, ranks, filepath.Join(short, "state"), t.TempDir(), round, rounded)
		got = trainStored(t, ranks, filepath.Join(wide, "state"), t.TempDir(), unchanged, narrow)
		if !slices.EqualFunc(got, want, outcome.equal) {
			t.Errorf("%d ranks, after loading: got %v, want %v", ranks, got, want)
		}
	}
}
