package model_test

import (
	"errors"
	"runtime/debug"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader/demo"
)

// TestAClosedModelFailsAndDoesNotPanic: Forward said that the tree had no attention, and Generate, Status and
// others panicked, such as a program's metrics that outlive its model.
func TestAClosedModelFailsAndDoesNotPanic(t *testing.T) {
	m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSequence()
	one := func() *dispatch.Batch {
		return &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{1}}}}
	}
	if _, err := m.Forward(t.Context(), one()); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m.Close()
	ctx := t.Context()
	fails := map[string]func() error{
		"Forward": func() error { _, err := m.Forward(ctx, one()); return err },
		"Apply":   func() error { _, err := m.Apply(ctx, []float32{1}, 1); return err },
		"AlignModuleDevice": func() error {
			return m.AlignModuleDevice("model.norm", func([]dispatch.ModuleParam) error { return nil })
		},
		"AddAdapter":           func() error { return m.AddAdapter(dispatch.Adapter{Name: "a", Dir: "a"}) },
		"NewAdaptedSequence":   func() error { _, err := m.NewAdaptedSequence(""); return err },
		"Reserve":              func() error { return s.Reserve(1) },
		"Reserve of a new one": func() error { return m.NewSequence().Reserve(1) },
		"Generate": func() (err error) {
			for _, err = range m.Generate(ctx, []int32{1}, dispatch.GenerateOptions{MaxTokens: 1}) {
			}
			return err
		},
	}
	for name, call := range fails {
		t.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, dispatch.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		})
	}
	for name, call := range outliving(t, m, s) {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v %s", p, debug.Stack())
				}
			}()
			call()
		})
	}
}

// outliving are calls that a program may still make of a model that is closed.
func outliving(t *testing.T, m *dispatch.Model, s *dispatch.Sequence) map[string]func() {
	ctx := t.Context()
	return map[string]func(){
		"Activity":       func() { m.Activity() },
		"BatchLimits":    func() { m.BatchLimits() },
		"Copied":         func() { dispatchtest.Copied(m) },
		"DeviceUse":      func() { m.DeviceUse() },
		"FollowLimits":   func() { m.FollowLimits(ctx, nil) },
		"Expect":         func() { m.NewSequence().Expect(1); _ = m.NewSequence().Together(2) },
		"Free":           func() { s.Free() },
		"KV":             func() { m.KV() },
		"Plan":           func() { m.Plan(); m.Measured(); m.Blocks(); m.Units() },
		"PassReads":      func() { dispatchtest.PassReads(m) },
		"Promote":        func() { m.Promote(ctx) },
		"RecordRouting":  func() { _ = m.RecordRouting(); _, _ = m.Routing() },
		"RemoveAdapter":  func() { _ = m.RemoveAdapter("a") },
		"Reuse":          func() { m.NewSequence().Reuse([]int32{1, 2}) },
		"SetMemoryLimit": func() { m.SetMemoryLimit(1 << 30) },
		"Status":         func() { m.Status() },
		"TuneReads":      func() { <-m.TuneReads(ctx, "") },
		"Warm":           func() { m.Warm(ctx) },
	}
}
