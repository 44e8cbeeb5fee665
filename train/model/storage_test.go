package model

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/tensor/tensortest"
)

// fresh returns a tiny model with weights that are the same in each call.
func fresh(t *testing.T, adapted bool) *Model {
	t.Helper()
	m, err := New(skeleton(t, `"model_type": "llama"`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	random := rng.New(3)
	for _, p := range m.Parameters() {
		random.Normal(p.Data(), 0, 0.1)
	}
	if adapted {
		if err := m.AddLoRA(LoRAConfig{R: 2}, rng.New(4)); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// learn trains m for three steps of two batches each, calls stepped after each step, and returns m's
// checkpoint.
func learn(ctx context.Context, w *train.World, m *Model, stepped func(*Model)) ([]byte, error) {
	acc, err := train.New(train.Config{World: w, GradientAccumulationSteps: 2})
	if err != nil {
		return nil, err
	}
	adam, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01})
	if err != nil {
		return nil, err
	}
	var opt optim.Optimizer = adam
	if err := acc.Prepare(m, &opt); err != nil {
		return nil, err
	}
	tp := tensor.NewTape(tensor.Options{})
	for i := range 6 {
		err := acc.Accumulate(ctx, func(ctx context.Context) error {
			loss, err := m.Loss(tp, someBatch(1, 2+i, 9+w.Rank(), 4), Options{Recompute: true})
			if err != nil {
				return err
			}
			if err := acc.Backward(ctx, loss); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			opt.ZeroGrad()
			return nil
		}, m)
		if err != nil {
			return nil, err
		}
		if acc.SyncGradients() {
			stepped(m)
		}
	}
	return saved(m)
}

// learned is learn in a world of one.
func learned(t *testing.T, m *Model, stepped func(*Model)) []byte {
	t.Helper()
	b, err := learn(t.Context(), nil, m, stepped)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func asIs(*Model) {}

// saved returns the bytes of m's checkpoint, with its adapter merged.
func saved(m *Model) ([]byte, error) {
	tensors, err := m.Checkpoint()
	if m.Adapted() {
		tensors, err = m.MergeAdapter()
	}
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for x := range tensors {
		b, err := x.Bytes()
		if err != nil {
			return nil, err
		}
		all.WriteString(x.Name)
		all.Write(b)
	}
	return all.Bytes(), nil
}

// A model whose parameters are not in memory between passes learns the same, bit for bit.
func TestModelTrainsParametersElsewhere(t *testing.T) {
	for _, adapted := range []bool{false, true} {
		m := fresh(t, adapted)
		var stores []*tensortest.Elsewhere
		for _, p := range m.Parameters() {
			store := tensortest.NewElsewhere(p.Data())
			p.Move(store)
			stores = append(stores, store)
		}
		if !bytes.Equal(learned(t, fresh(t, adapted), asIs), learned(t, m, asIs)) {
			t.Errorf("adapted %v: the weights differ", adapted)
		}
		for i, store := range stores {
			if store.InUse() || store.Acquired < 3 {
				t.Errorf("parameter %d: in use %v after %d times", i, store.InUse(), store.Acquired)
			}
		}
	}
}

// A model whose parameters are stored as bfloat16 learns the same as one in float32 whose weights are
// rounded after each step.
func TestModelTrainsNarrowParameters(t *testing.T) {
	round := func(m *Model) {
		for _, p := range m.Parameters() {
			for i, v := range p.Data() {
				p.Data()[i] = optim.BFloat16(v)
			}
		}
	}
	for _, adapted := range []bool{false, true} {
		rounded, narrow := fresh(t, adapted), fresh(t, adapted)
		round(rounded)
		for _, p := range narrow.Parameters() {
			p.Move(tensortest.NewNarrow(p.Data()))
		}
		if !bytes.Equal(learned(t, rounded, round), learned(t, narrow, asIs)) {
			t.Errorf("adapted %v: the weights differ", adapted)
		}
		for name, p := range narrow.Parameters() {
			if s := p.Storage().(*tensortest.Narrow); s.InUse() || p.DType() != meta.BFloat16 {
				t.Errorf("%s: in use %v, stored as %v", name, s.InUse(), p.DType())
			}
		}
	}
}

// Ranks that hold a shard of every parameter each learn the same as ranks that hold all values. Ranks
// once acquired parameters in random order, and waited for each other for ever.
func TestModelTrainsShardedParameters(t *testing.T) {
	const ranks = 2
	byRanks := func(models []*Model) [ranks][]byte {
		var all [ranks][]byte
		err := train.Launch(t.Context(), ranks, func(ctx context.Context, w *train.World) (err error) {
			all[w.Rank()], err = learn(ctx, w, models[w.Rank()], asIs)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, adapted := range []bool{false, true} {
		whole, split := []*Model{fresh(t, adapted), fresh(t, adapted)}, []*Model{fresh(t, adapted), fresh(t, adapted)}
		shards := map[string][]*tensortest.Shard{}
		for rank, m := range split {
			for name, p := range m.Parameters() {
				if rank == 0 {
					shards[name] = tensortest.NewShards(t.Context(), p.Data(), ranks)
				}
				p.Move(shards[name][rank])
			}
		}
		want, got := byRanks(whole), byRanks(split)
		for rank := range ranks {
			if !bytes.Equal(got[rank], want[rank]) {
				t.Errorf("adapted %v, rank %d: the weights differ", adapted, rank)
			}
		}
	}
}

// A parameter that cannot be read fails the pass, and nothing stays in use.
func TestModelReportsStorageErrors(t *testing.T) {
	m, err := New(skeleton(t, `"model_type": "llama"`))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var stores []*tensortest.Elsewhere
	for _, p := range m.Parameters() {
		store := tensortest.NewElsewhere(p.Data())
		p.Move(store)
		stores = append(stores, store)
	}
	broken := errors.New("the disk is gone")
	stores[2].Fails = broken
	if _, err := m.Loss(tensor.NewTape(tensor.Options{}), someBatch(1, 2, 3), Options{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	for i, store := range stores {
		if store.InUse() {
			t.Errorf("parameter %d is in use", i)
		}
	}
}
