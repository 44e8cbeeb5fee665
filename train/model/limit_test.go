package model

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// adapted returns the model of a folder with an adapter on frozen weights.
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
		t.Run(g.Name(), func(t *testing.T) {
			m := adapted(t, g.Dir())
			want := learnAdapter(t, m, ids, false)
			if !bytes.Equal(learnAdapter(t, adapted(t, g.Dir()), ids, true), want) {
				t.Fatal("recomputed blocks learn something else")
			}
			for _, limit := range []int64{baseBytes(m), baseBytes(m) / 3, 1} {
				m := adapted(t, g.Dir(), MaxMemory(limit))
				if !bytes.Equal(learnAdapter(t, m, ids, false), want) {
					t.Errorf("with a limit of %d bytes the adapter differs: %+v", limit, m.FrozenMemory())
				}
				if limit == 1 && m.FrozenMemory().Read > 0 {
					streamed++
				}
			}
			trained++
			all := adapted(t, g.Dir(), DeviceMap(devicemap.NewMap(devicemap.Entry{Path: "", Device: devicemap.Disk})))
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

// TestLogitsInGroupsOfRowsLearnTheSameAdapter: rows that the head computes apart leave the same bits. A head that trains
// sums its gradient over all rows, so the bound has no effect on it.
func TestLogitsInGroupsOfRowsLearnTheSameAdapter(t *testing.T) {
	var ids []int
	for i := range 60 {
		ids = append(ids, 3+i*i%13)
	}
	for _, name := range []string{"gemma2", "olmo2", "qwen3-moe", "gpt-neox"} {
		dir := ownModel(t, name)
		for _, length := range []int{60, 49, 33, 32} {
			want := learnAdapter(t, adapted(t, dir), ids[:length], true)
			m := adapted(t, dir, MaxMemory(1), LogitRows(1))
			if got := m.outputs(); got != 32 {
				t.Fatalf("%s: got %d rows at a time, want 32", name, got)
			}
			if !bytes.Equal(learnAdapter(t, m, ids[:length], true), want) {
				t.Errorf("%s: with groups of rows the adapter of %d tokens differs", name, length)
			}
		}
		whole, err := openFile(t, dir, dir, Freeze(func(path string) bool { return !strings.Contains(path, "norm") }), LogitRows(1))
		if err != nil {
			t.Fatal(err)
		}
		if got := whole.outputs(); got != whole.headRows() {
			t.Errorf("%s: a norm in front of the head trains: got %d rows at a time", name, got)
		}
		whole.Close()
	}
	rows := make([]int32, 1000)
	m := &Model{spec: &meta.CausalLMSpec{Vocab: headLogits / 400}}
	var got []int
	for group := range m.groups(rows, 64) {
		got = append(got, len(group))
	}
	if want := []int{58, 57, 57, 57, 57, 57, 57, 58, 57, 57, 57, 57, 57, 57, 50, 50, 50, 50}; !slices.Equal(got, want) {
		t.Errorf("got groups %v, want %v", got, want)
	}
}

// TestTheMinimumHoldsOneUnit: the head and two blocks were counted together, so that bases of three times the memory did not fit.
func TestTheMinimumHoldsOneUnit(t *testing.T) {
	const head, block, small = 62 << 20, 24 << 20, 1 << 10
	piece := func(path string, unit int, bytes int64) *placed {
		return &placed{path: path, bytes: bytes, units: []int{unit}}
	}
	var units [][]*placed
	var all []placed
	for i := range 16 {
		units = append(units, []*placed{piece(fmt.Sprint("block", i), i, block), piece(fmt.Sprint("norm", i), i, small)})
	}
	units = append(units, []*placed{piece("head", 16, head), piece("norm", 16, small)})
	for _, limit := range []int64{1, head + 16*small, head + block + small, head + 2*block, 3 * head} {
		best, least := choose(units, limit)
		if least > head+17*small {
			t.Fatalf("the minimum is %d bytes, want that of the head", least)
		}
		d := divide(units, best.most)
		d.fill(all, limit)
		window := d.window(limit)
		if window < d.largest || limit > head+small && d.resident+window > limit {
			t.Errorf("limit %d: %d bytes stay and %d stream through a window of %d", limit, d.resident, d.largest, window)
		}
		if limit >= head+2*block && (window < d.roomy() || d.read > 17*block+head) {
			t.Errorf("limit %d: units are not read ahead: a window of %d for %d", limit, window, d.largest)
		}
	}
}
