package adapter_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestAdaptersComeAndGo: adapters beyond the memory for them leave and come back; a token has the bits that it has with
// adapters that are always there, also in one batch with the base and others.
func TestAdaptersComeAndGo(t *testing.T) {
	final := dispatchtest.AdapterDir(t)
	zero := filepath.Join(filepath.Dir(final), "init")
	ids := [][]int32{{5, 6, 7, 8, 9, 10}, {11, 3, 2}}
	fixed := dispatchtest.LorasModel(t, dispatch.Options{Adapters: []dispatch.Adapter{{Name: "final", Dir: final}, {Name: "zero", Dir: zero}}})
	want := map[string][][]float32{}
	for _, name := range []string{"", "final", "zero"} {
		want[name] = dispatchtest.AdaptedLogits(t, fixed, ids, name)
	}
	budget := dispatchtest.AdapterMemory(t, final)*2 - 1 // two of them: activations count once
	m := dispatchtest.LorasModel(t, dispatch.Options{AdapterMemory: budget})
	of := map[string]string{"a": "final", "b": "zero", "c": "final", "d": "zero"}
	dirs := map[string]string{"final": final, "zero": zero}
	for name, which := range of {
		if err := m.AddAdapter(dispatch.Adapter{Name: name, Dir: dirs[which]}); err != nil {
			t.Fatal(err)
		}
	}
	dispatchtest.AdaptedLogits(t, m, ids, "") // takes what the base takes
	before := dispatchtest.Sum(m.Status().Held)
	for range 2 {
		for _, name := range []string{"a", "b", "", "c", "d"} {
			dispatchtest.SameLogits(t, name, dispatchtest.AdaptedLogits(t, m, ids, name), want[or(of[name], "")])
		}
	}
	if held := dispatchtest.Sum(m.Status().Held); held > before+budget {
		t.Errorf("adapters hold %d bytes, want at most %d", held-before, budget)
	}

	var rows []dispatch.BatchRow
	for _, name := range []string{"a", "", "b", "a"} {
		s, err := m.NewAdaptedSequence(name)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: ids[0], Logits: dispatch.LogitsLast})
	}
	if _, err := m.NewAdaptedSequence("c"); !errors.Is(err, dispatch.ErrAdaptersFull) {
		t.Errorf("a third adapter while two are in use: %v", err)
	}
	if err := m.RemoveAdapter("a"); err != nil { // its sequences go on
		t.Fatal(err)
	}
	logits, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"final", "", "zero", "final"} {
		_, v := logits.Row(i)
		w := want[name][0]
		dispatchtest.SameLogits(t, "in one batch", [][]float32{v}, [][]float32{w[len(w)-m.Vocab():]})
	}
	for _, r := range rows {
		r.Sequence.Free()
	}
	if _, err := m.NewAdaptedSequence("a"); !errors.Is(err, dispatch.ErrNoAdapter) {
		t.Errorf("a removed adapter: %v", err)
	}
	dispatchtest.SameLogits(t, "c", dispatchtest.AdaptedLogits(t, m, ids, "c"), want["final"])
}

// TestModelsShareTheMemoryForAdapters: adapters of one model leave for those of another that the ledger counts, unless
// sequences use them; all together keep within the memory for adapters.
func TestModelsShareTheMemoryForAdapters(t *testing.T) {
	final := dispatchtest.AdapterDir(t)
	ids := [][]int32{{5, 6, 7, 8, 9, 10}, {11, 3, 2}}
	one, ledger := dispatchtest.AdapterMemory(t, final), new(dispatch.Ledger)
	fixed := dispatchtest.LorasModel(t, dispatch.Options{Adapters: []dispatch.Adapter{{Name: "final", Dir: final}}})
	want := dispatchtest.AdaptedLogits(t, fixed, ids, "final")
	budget := 2*one + one/2
	var models [2]*dispatch.Model
	for i := range models {
		models[i] = dispatchtest.LorasModel(t, dispatch.Options{AdapterMemory: budget, Ledger: ledger})
		for _, name := range []string{"a", "b", "c"} {
			if err := models[i].AddAdapter(dispatch.Adapter{Name: name, Dir: final}); err != nil {
				t.Fatal(err)
			}
		}
		dispatchtest.AdaptedLogits(t, models[i], ids, "") // takes what the base takes
	}
	before := dispatchtest.Sum(ledger.Held())
	for range 2 {
		for _, name := range []string{"a", "b", "c"} {
			for i, m := range models {
				dispatchtest.SameLogits(t, name, dispatchtest.AdaptedLogits(t, m, ids, name), want)
				if held := dispatchtest.Sum(ledger.Held()); held > before+budget {
					t.Errorf("after %s of model %d adapters hold %d bytes, want at most %d", name, i, held-before, budget)
				}
			}
		}
	}
	var used []*dispatch.Sequence
	for _, name := range []string{"a", "b"} {
		s, err := models[0].NewAdaptedSequence(name)
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, s)
	}
	told := 0
	models[1].NotifyAdapters(func() { told++ })
	if _, err := models[1].NewAdaptedSequence("a"); !errors.Is(err, dispatch.ErrAdaptersFull) {
		t.Errorf("an adapter while those of another model are in use: %v", err)
	}
	dispatchtest.SameLogits(t, "the base meanwhile", dispatchtest.AdaptedLogits(t, models[1], ids, ""), dispatchtest.AdaptedLogits(t, fixed, ids, ""))
	if told != 0 {
		t.Error("told of room while there is none")
	}
	used[0].Free()
	if told != 1 {
		t.Errorf("told of room %d times, want once", told)
	}
	dispatchtest.SameLogits(t, "a", dispatchtest.AdaptedLogits(t, models[1], ids, "a"), want)
	used[1].Free()
	models[0].Close()
	models[1].Close()
	if held := ledger.Held()["activations"]; held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// TestAnAdapterOfTheSameNameSharesNoPages: cached keys and values of a removed adapter are not used for the next one
// of its name.
func TestAnAdapterOfTheSameNameSharesNoPages(t *testing.T) {
	final := dispatchtest.AdapterDir(t)
	zero := filepath.Join(filepath.Dir(final), "init")
	prompt := make([]int32, 64)
	for i := range prompt {
		prompt[i] = int32(i%20 + 3)
	}
	m := dispatchtest.LorasModel(t, dispatch.Options{AdapterMemory: 1 << 24})
	last := func(name string) []float32 {
		s, err := m.NewAdaptedSequence(name)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Free()
		at := s.Reuse(prompt)
		logits, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: prompt[at:], PromptLen: len(prompt), Logits: dispatch.LogitsLast}}})
		if err != nil {
			t.Fatal(err)
		}
		_, v := logits.Row(0)
		return slices.Clone(v)
	}
	plain := last("")
	for _, dir := range []string{final, zero} {
		if err := m.AddAdapter(dispatch.Adapter{Name: "a", Dir: dir}); err != nil {
			t.Fatal(err)
		}
		got := last("a")
		if same := slices.Equal(got, plain); same != (dir == zero) {
			t.Errorf("%s: the logits are the base's: %v", filepath.Base(dir), same)
		}
		if err := m.RemoveAdapter("a"); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range []dispatch.Adapter{{Name: "", Dir: final}, {Name: "x", Dir: t.TempDir()}, {Name: "x"}} {
		if err := m.AddAdapter(a); err == nil {
			t.Errorf("%+v is accepted", a)
		}
	}
	small := dispatchtest.LorasModel(t, dispatch.Options{AdapterMemory: 100})
	if err := small.AddAdapter(dispatch.Adapter{Name: "a", Dir: final}); err == nil {
		t.Error("an adapter larger than the memory for adapters is accepted")
	}
}

// TestSequencesOfARemovedAdapterBegin: a request that had not begun, or was preempted, failed when its adapter was
// removed, or ran with another adapter that had taken the name.
func TestSequencesOfARemovedAdapterBegin(t *testing.T) {
	final := dispatchtest.AdapterDir(t)
	prompt := []int32{5, 6, 7, 8}
	m := dispatchtest.LorasModel(t, dispatch.Options{AdapterMemory: 1 << 24})
	last := func(a *dispatch.Adapted) []float32 {
		t.Helper()
		s, err := a.NewSequence()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Free()
		logits, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: prompt, Logits: dispatch.LogitsLast}}})
		if err != nil {
			t.Fatal(err)
		}
		_, v := logits.Row(0)
		return slices.Clone(v)
	}
	named := func(name string) *dispatch.Adapted {
		t.Helper()
		a, err := m.Adapted(name)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	add := func(dir string) {
		t.Helper()
		if err := m.AddAdapter(dispatch.Adapter{Name: "a", Dir: dir}); err != nil {
			t.Fatal(err)
		}
	}
	plain := last(named(""))
	add(final)
	before, held := named("a"), dispatchtest.Sum(m.Status().Held)
	want := last(before)
	if slices.Equal(want, plain) {
		t.Fatal("the adapter changes nothing")
	}
	if err := m.RemoveAdapter("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Adapted("a"); !errors.Is(err, dispatch.ErrNoAdapter) {
		t.Errorf("a removed adapter: %v", err)
	}
	dispatchtest.SameLogits(t, "after removal", [][]float32{last(before)}, [][]float32{want})
	add(filepath.Join(filepath.Dir(final), "init"))
	dispatchtest.SameLogits(t, "another with the name", [][]float32{last(named("a"))}, [][]float32{plain})
	dispatchtest.SameLogits(t, "beside another with the name", [][]float32{last(before)}, [][]float32{want})
	if err := m.RemoveAdapter("a"); err != nil {
		t.Fatal(err)
	}
	if now := dispatchtest.Sum(m.Status().Held); now > held {
		t.Errorf("removed adapters hold %d bytes", now-held)
	}
}
