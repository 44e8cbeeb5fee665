package adapter_test

import (
	"errors"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// sharingModels are two models with room for one adapter, "a" of both. told counts how often each was told of room.
func sharingModels(t *testing.T) (models [2]*dispatch.Model, ledger *dispatch.Ledger, told *[2]int) {
	t.Helper()
	dir := dispatchtest.AdapterDir(t)
	ledger, told = new(dispatch.Ledger), new([2]int)
	for i := range models {
		models[i] = dispatchtest.LorasModel(t, dispatch.Options{AdapterMemory: dispatchtest.AdapterMemory(t, dir), Ledger: ledger})
		if err := models[i].AddAdapter(dispatch.Adapter{Name: "a", Dir: dir}); err != nil {
			t.Fatal(err)
		}
		models[i].NotifyAdapters(func() { told[i]++ })
	}
	return models, ledger, told
}

// begins makes a sequence with the adapter of a model, or fails the test if it has room or none against expectation.
func begins(t *testing.T, what string, m *dispatch.Model, want error) *dispatch.Sequence {
	t.Helper()
	s, err := m.NewAdaptedSequence("a")
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
	return s
}

// TestAnAdapterInConstantUseTakesTurnsWithAnothers: an adapter that always had a sequence kept that of another model
// out for ever. After a while it begins no further sequences, leaves with the last one, and comes back after the
// other one.
func TestAnAdapterInConstantUseTakesTurnsWithAnothers(t *testing.T) {
	models, ledger, told := sharingModels(t)
	first := begins(t, "the first use", models[0], nil)
	begins(t, "another model's adapter", models[1], dispatch.ErrAdaptersFull)
	second := begins(t, "a use that overlaps", models[0], nil)
	dispatchtest.AgeAdapterWaits(ledger)
	first.Free()
	begins(t, "a use after the other one's patience", models[0], dispatch.ErrAdaptersFull)
	if s, err := models[0].NewAdaptedSequence(""); err != nil {
		t.Errorf("a sequence without an adapter: %v", err)
	} else {
		s.Free()
	}
	if told[1] != 0 {
		t.Error("told of room while the adapter is in use")
	}
	second.Free()
	if told[0] != 1 || told[1] != 1 {
		t.Errorf("the models were told of room %v times, want once each", *told)
	}
	begins(t, "out of turn", models[0], dispatch.ErrAdaptersFull)
	other := begins(t, "the other one's turn", models[1], nil)
	if told[0] != 2 {
		t.Errorf("the model that was held back was told %d times, want 2: the turn is over", told[0])
	}
	begins(t, "while the other one is in use", models[0], dispatch.ErrAdaptersFull)
	dispatchtest.AgeAdapterWaits(ledger)
	begins(t, "the other one's next use", models[1], dispatch.ErrAdaptersFull)
	other.Free()
	begins(t, "the first one's turn", models[0], nil).Free()
	begins(t, "afterwards", models[1], nil).Free()
}

// TestATurnThatNothingTakesEnds: a request that has left, or a caller that does not try again, holds up no adapter.
func TestATurnThatNothingTakesEnds(t *testing.T) {
	for what, end := range map[string]func(m *dispatch.Model, l *dispatch.Ledger){
		"stopped":   func(m *dispatch.Model, _ *dispatch.Ledger) { m.StopWaiting("a") },
		"abandoned": func(_ *dispatch.Model, l *dispatch.Ledger) { dispatchtest.AbandonAdapterTurn(l) },
		"removed":   func(m *dispatch.Model, _ *dispatch.Ledger) { _ = m.RemoveAdapter("a") },
		"closed":    func(m *dispatch.Model, _ *dispatch.Ledger) { m.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			models, ledger, told := sharingModels(t)
			s := begins(t, "the first use", models[0], nil)
			begins(t, "another model's adapter", models[1], dispatch.ErrAdaptersFull)
			dispatchtest.AgeAdapterWaits(ledger)
			begins(t, "held back", models[0], dispatch.ErrAdaptersFull)
			if what == "abandoned" { // not while a sequence still keeps the other one waiting
				dispatchtest.AbandonAdapterTurn(ledger)
				begins(t, "still held back", models[0], dispatch.ErrAdaptersFull)
			}
			s.Free()
			begins(t, "out of turn", models[0], dispatch.ErrAdaptersFull)
			before := told[0]
			end(models[1], ledger)
			if told[0] == before {
				t.Error("the model that was held back was not told")
			}
			begins(t, "after the turn", models[0], nil).Free()
		})
	}
}
