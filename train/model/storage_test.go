package model

import (
	"bytes"
	"errors"
	"testing"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/tensor/tensortest"
)

// learned trains a tiny model, with or without an adapter, and returns its checkpoint's bytes.
func learned(t *testing.T, elsewhere, adapted bool) []byte {
	t.Helper()
	m, err := New(skeleton(t, `"model_type": "llama"`))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	random := rng.New(3)
	for _, p := range m.Parameters() {
		random.Normal(p.Data(), 0, 0.1)
	}
	if adapted {
		if err := m.AddLoRA(LoRAConfig{R: 2}, rng.New(4)); err != nil {
			t.Fatal(err)
		}
	}
	var stores []*tensortest.Elsewhere
	if elsewhere {
		for _, p := range m.Parameters() {
			store := tensortest.NewElsewhere(p.Data())
			p.Move(store)
			stores = append(stores, store)
		}
	}
	opt, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	tp := tensor.NewTape(tensor.Options{})
	for range 3 {
		loss, err := m.Loss(tp, someBatch(1, 2, 3), Options{Recompute: true})
		if err == nil {
			err = tp.Backward(loss, 1)
		}
		if err == nil {
			err = opt.Step()
		}
		if err != nil {
			t.Fatal(err)
		}
		opt.ZeroGrad()
	}
	for i, store := range stores {
		if store.InUse() || store.Acquired < 3 {
			t.Errorf("parameter %d: in use %v after %d times", i, store.InUse(), store.Acquired)
		}
	}
	return saved(t, m)
}

// saved returns the bytes of m's checkpoint, with its adapter merged.
func saved(t *testing.T, m *Model) []byte {
	t.Helper()
	tensors, err := m.Checkpoint()
	if m.Adapted() {
		tensors, err = m.MergeAdapter()
	}
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for x := range tensors {
		b, err := x.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(x.Name)
		all.Write(b)
	}
	return all.Bytes()
}

// A model whose parameters are not in memory between passes learns the same, bit for bit.
func TestModelTrainsParametersElsewhere(t *testing.T) {
	for _, adapted := range []bool{false, true} {
		if !bytes.Equal(learned(t, false, adapted), learned(t, true, adapted)) {
			t.Errorf("adapted %v: the weights differ", adapted)
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
