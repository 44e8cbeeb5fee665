package model

import (
	"runtime/debug"
	"slices"
	"testing"

	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// sessionsOf counts a model's sessions.
func sessionsOf(m *Model) int {
	m.sessions.mu.Lock()
	defer m.sessions.mu.Unlock()
	return len(m.sessions.lent) + len(m.sessions.free)
}

// TestDroppedPassesTakeTwoSessions: passes without Backward returned their sessions only when they were
// collected, so that the next pass called the garbage collector. Here it is off.
func TestDroppedPassesTakeTwoSessions(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	dir := ownModel(t, "gemma2")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := someBatch(3, 9, 4, 8, 30)
	want := gradients(t, m, b, false)
	tp := tensor.NewTape(tensor.Options{})
	for range 10 {
		if _, err := m.Loss(tp, b, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := sessionsOf(m); n > tapeSessions {
		t.Errorf("ten dropped losses of a tape take %d sessions, want at most %d", n, tapeSessions)
	}
	for range 20 {
		if _, err := m.HiddenStates(tensor.NewTape(tensor.Options{}), b, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := sessionsOf(m); n > allSessions {
		t.Errorf("dropped passes of many tapes take %d sessions, want at most %d", n, allSessions)
	}
	for name, g := range gradients(t, m, b, false) {
		if !slices.Equal(g, want[name]) {
			t.Errorf("%s has another gradient after losses that were dropped", name)
		}
	}
}

// TestManyPassesAreReversed: the gradients of a sum of more passes than there are sessions are those of
// passes that are reversed at once, dropout, noise and routers included.
func TestManyPassesAreReversed(t *testing.T) {
	for _, name := range []string{"qwen3-moe", "deepseek-v3"} {
		dir := ownModel(t, name)
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		if name == "qwen3-moe" {
			m.SetAuxiliary(0.3)
			if err := m.AddLoRA(LoRAConfig{R: 2, Alpha: 4, Dropout: 0.4, Targets: []string{"q_proj", "v_proj"}}, rng.New(5)); err != nil {
				t.Fatal(err)
			}
			for _, p := range m.Parameters() {
				if p.Data() != nil && slices.Max(p.Data()) == 0 { // B of pairs
					for i := range p.Data() {
						p.Data()[i] = float32(i%5) / 10
					}
				}
			}
		}
		var first map[string][]float32
		for _, together := range []bool{false, true} {
			for _, p := range m.Parameters() {
				p.ZeroGrad()
			}
			if err := runPasses(m, together); err != nil {
				t.Fatal(err)
			}
			got := map[string][]float32{}
			for path, p := range m.Parameters() {
				got[path] = slices.Clone(p.Grad())
			}
			if first == nil {
				first = got
			}
			for path, g := range got {
				if !slices.Equal(g, first[path]) {
					t.Errorf("%s: %s differs where passes run again", name, path)
				}
			}
		}
		if n := sessionsOf(m); n > tapeSessions {
			t.Errorf("%s: got %d sessions, want at most %d", name, n, tapeSessions)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// runPasses reverses five passes of every kind, from the last to the first: each at once, or together.
func runPasses(m *Model, together bool) error {
	tp := tensor.NewTape(tensor.Options{})
	if !together {
		for i := range 5 {
			loss, err := onePass(m, tp, 4-i)
			if err == nil {
				err = tp.Backward(loss, 0.5)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	sum, err := onePass(m, tp, 0)
	for i := 1; i < 5 && err == nil; i++ {
		var loss *tensor.Tensor
		if loss, err = onePass(m, tp, i); err == nil {
			sum = tp.Add(sum, loss)
		}
	}
	if err != nil {
		return err
	}
	return tp.Backward(sum, 0.5)
}

// onePass makes a loss of a batch: one of five.
func onePass(m *Model, tp *tensor.Tape, i int) (*tensor.Tensor, error) {
	b := Batch{IDs: []int{3 + i, 9, 4, 8, 30, 12}, Length: 3, Mask: []bool{true, true, true, false, true, true}}
	noise := &Noise{Alpha: 3, Uniform: rng.New(uint64(40 + i)).Uniform}
	o := Options{Dropout: rng.New(uint64(20 + i)), Noise: noise, Recompute: i%2 == 1}
	switch i {
	case 0:
		o.Reduction = tensor.None
		losses, err := m.Loss(tp, b, o)
		if err != nil {
			return nil, err
		}
		return tp.Sum(tp.Mul(losses, losses)), nil
	case 1:
		states, err := m.AllHiddenStates(tp, b, o)
		if err != nil {
			return nil, err
		}
		return tp.Add(tp.Sum(tp.Mul(states[1], states[1])), tp.Sum(states[len(states)-1])), nil
	case 2:
		logits, err := m.Logits(tp, b)
		if err != nil {
			return nil, err
		}
		return tp.Mean(tp.Mul(logits, logits)), nil
	}
	return m.Loss(tp, b, o)
}
