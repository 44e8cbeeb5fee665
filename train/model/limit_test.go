package model

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// adapted returns the model of a folder with an adapter beside frozen weights.
func adapted(t *testing.T, dir string, options ...Option) *Model {
	t.Helper()
	m, err := openFile(t, dir, dir, append([]Option{Freeze(func(string) bool { return true })}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := m.AddLoRA(LoRAConfig{R: 2}, rng.New(5)); err != nil {
		t.Fatal(err)
	}
	return m
}

// learnAdapter trains the adapter of m for some steps of two batches, with an evaluation between, and returns
// the losses and the pairs.
func learnAdapter(t *testing.T, m *Model, ids []int, recompute bool) []byte {
	t.Helper()
	var params []optim.Param
	for _, p := range m.Parameters() {
		if p.Trainable {
			params = append(params, p)
		}
	}
	opt, err := optim.NewAdamW(params, optim.AdamOptions{LR: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	tp := tensor.NewTape(tensor.Options{})
	loss := func(b Batch, train bool) {
		l, err := m.Loss(tp, b, Options{Recompute: recompute})
		if err == nil {
			fmt.Fprintf(&out, "%x ", l.Item())
		}
		if err == nil && train {
			err = tp.Backward(l, 0.5)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for step := range 2 {
		loss(Batch{IDs: ids, Length: len(ids)}, true)
		loss(Batch{IDs: ids[:len(ids)/2*2], Length: len(ids) / 2}, true)
		if err := opt.Step(); err != nil {
			t.Fatal(err)
		}
		opt.ZeroGrad()
		if step == 0 {
			tp.NoGrad(func() { loss(Batch{IDs: ids, Length: len(ids)}, false) })
			if err := tp.Reset(); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := maps.Collect(m.Parameters())
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "%s %x\n", name, all[name].Data())
	}
	return out.Bytes()
}

// baseBytes returns the memory that the frozen parameters of m would take.
func baseBytes(m *Model) int64 {
	f := m.FrozenMemory()
	return f.Resident + f.Streamed
}

// TestABaseBeyondTheLimitTrainsTheSameAdapter trains adapters on bases of every format that checkpoints have,
// in the mapping, in a third of the base's memory and in the minimum. What streams then may be experts that the texts
// do not reach, but not in all models.
func TestABaseBeyondTheLimitTrainsTheSameAdapter(t *testing.T) {
	seen, trained, streamed := 0, 0, 0
	for g := range golden.Models(t) {
		var ids []int
		for i := range 12 {
			ids = append(ids, 3+i*i%29)
		}
		t.Run(filepath.Base(g.Dir), func(t *testing.T) {
			if reasonOf(t, g.Dir) != nil {
				return // TestGoldenServedModels holds that they are refused
			}
			m := adapted(t, g.Dir)
			want := learnAdapter(t, m, ids, false)
			if !bytes.Equal(learnAdapter(t, adapted(t, g.Dir), ids, true), want) {
				t.Fatal("recomputed blocks learn something else")
			}
			for _, limit := range []int64{baseBytes(m), baseBytes(m) / 3, 1} {
				m := adapted(t, g.Dir, MaxMemory(limit))
				if !bytes.Equal(learnAdapter(t, m, ids, false), want) {
					t.Errorf("with a limit of %d bytes the adapter differs: %+v", limit, m.FrozenMemory())
				}
				if limit == 1 && m.FrozenMemory().Read > 0 {
					streamed++
				}
			}
			trained++
			all := adapted(t, g.Dir, DeviceMap(devicemap.NewMap(devicemap.Entry{Path: "", Device: devicemap.Disk})))
			if !bytes.Equal(learnAdapter(t, all, ids, false), want) {
				t.Error("with all weights on the disk the adapter differs")
			}
		})
		seen++
	}
	golden.Count(t, "infer/models (training)", seen)
	if 10*streamed < 9*trained {
		t.Errorf("weights of %d of %d models were streamed in the least memory, want nine of ten", streamed, trained)
	}
}
