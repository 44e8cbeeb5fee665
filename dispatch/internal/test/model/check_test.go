package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/text"
)

// fails reports a call that has another error than one with want in its text, or none.
func fails(t *testing.T, name, want string, call func() error) {
	t.Run(name, func(t *testing.T) {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("panic: %v", p)
			}
		}()
		if err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	})
}

// TestOptionsOutOfRangeWereDefaults: negative numbers and unknown choices counted as the default, an unknown dtype of
// the KV cache divided by zero, and one without kernels failed in the first pass.
func TestOptionsOutOfRangeWereDefaults(t *testing.T) {
	for name, o := range map[string]dispatch.Options{
		"Threads": {Threads: -1}, "MaxBatchTokens": {MaxBatchTokens: -1}, "MaxSequences": {MaxSequences: -1}, "Context": {Context: -1},
		"KVTokens": {KVTokens: -1}, "KVBytes": {KVBytes: -1}, "StagingBytes": {StagingBytes: -1}, "MaxModelLen": {MaxModelLen: -1},
		"RequestBytes": {RequestBytes: -1}, "AdapterMemory": {AdapterMemory: -1}, "StreamPrompts": {StreamPrompts: dispatch.StreamChosen - 1},
		"Precision": {Precision: math.MaxUint8}, "Compress": {Compress: math.MaxUint8}, "GPUKernels": {GPUKernels: math.MaxUint8},
		"Quantize": {Quantize: meta.QuantGPTQ}, "KVDType": {KVDType: meta.Float8E4M3},
	} {
		want := "dispatch: Options." + name + ": got "
		fails(t, name+" of Open", want, func() error { _, err := dispatch.OpenFS("demo", demo.Files(), o); return err })
		fails(t, name+" of New", want, func() error { return newWith(o) })
		fails(t, name+" of EstimateMemory", want, func() error { return estimateWith(o) })
	}
	fails(t, "unknown Quantize", "Options.Quantize", func() error { return newWith(dispatch.Options{Quantize: math.MaxUint8}) })
	fails(t, "unknown KVDType", "Options.KVDType", func() error { return newWith(dispatch.Options{KVDType: math.MaxUint8}) })
}

func estimateWith(o dispatch.Options) error {
	skeleton, checkpoint, err := loader.OpenModelFS("demo", demo.Files())
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	_, err = dispatch.EstimateMemory(skeleton, o, "")
	return err
}

func newWith(o dispatch.Options) error {
	skeleton, checkpoint, err := loader.OpenModelFS("demo", demo.Files())
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), o)
	if err == nil {
		m.Close()
	}
	return err
}

// TestABatchWithASequenceTwiceWasComputed: so was one with the sequence of another model or a mode that does not exist, and
// a row without a sequence panicked.
func TestABatchWithASequenceTwiceWasComputed(t *testing.T) {
	m, other := demoModel(t), demoModel(t)
	s := m.NewSequence()
	row := dispatch.BatchRow{Sequence: s, Tokens: []int32{1}, Logits: dispatch.LogitsLast}
	changed := func(change func(*dispatch.BatchRow)) *dispatch.Batch {
		r := row
		change(&r)
		return &dispatch.Batch{Rows: []dispatch.BatchRow{r}}
	}
	for want, b := range map[string]*dispatch.Batch{
		"got no batch": nil,
		"row 1: got the sequence of an earlier row": {Rows: []dispatch.BatchRow{row, row}},
		"row 0: got a sequence of another model":    changed(func(r *dispatch.BatchRow) { r.Sequence = other.NewSequence() }),
		"row 0: got no sequence":                    changed(func(r *dispatch.BatchRow) { r.Sequence = nil }),
		"row 0: got no tokens":                      changed(func(r *dispatch.BatchRow) { r.Tokens = nil }),
		"row 0: got a prompt of -1 tokens":          changed(func(r *dispatch.BatchRow) { r.PromptLen = -1 }),
		"row 0: got the logits mode 9":              changed(func(r *dispatch.BatchRow) { r.Logits = 9 }),
		"row 0: got the hidden mode 9":              changed(func(r *dispatch.BatchRow) { r.Hidden = 9 }),
	} {
		fails(t, want, "dispatch: ", func() error { _, err := m.Forward(t.Context(), b); return err })
		fails(t, want, want, func() error { _, err := m.Forward(t.Context(), b); return err })
	}
	if s.Len() != 0 {
		t.Errorf("batches that fail left %d tokens in a sequence", s.Len())
	}
	for range 2 { // a sequence may be in batch after batch
		if _, err := m.Forward(t.Context(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}}); err != nil {
			t.Fatal(err)
		}
	}
	fails(t, "a sequence of no model", "want one of Model.NewSequence", func() error { return new(dispatch.Sequence).Reserve(1) })
}

func demoModel(t *testing.T) *dispatch.Model {
	m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestNilArgumentsPanicked: those of functions that open, bind and plan.
func TestNilArgumentsPanicked(t *testing.T) {
	m := demoModel(t)
	for name, call := range map[string]func() error{
		"dispatch.OpenFS":         func() error { _, err := dispatch.OpenFS("m", nil, dispatch.Options{}); return err },
		"dispatch.New":            func() error { _, err := dispatch.New(nil, nil, devicemap.Map{}, dispatch.Options{}); return err },
		"dispatch.Plan":           func() error { _, _, err := dispatch.Plan(nil, dispatch.Options{}); return err },
		"dispatch.EstimateMemory": func() error { _, err := dispatch.EstimateMemory(nil, dispatch.Options{}, ""); return err },
		"loader.Unbind":           func() error { _, err := loader.Unbind(nil, nil); return err },
		"loader.Save":             func() error { return loader.Save(t.TempDir(), nil, loader.SaveOptions{}) },
		"dispatch.NewSelfDraft":   func() error { _, err := m.NewSelfDraft(nil); return err },
		"loader.OpenModelFS":      func() error { _, _, err := loader.OpenModelFS("m", nil); return err },
		"loader.Bind":             func() error { _, err := loader.Bind(nil, nil); return err },
		"meta.New":                func() error { _, err := meta.New(nil, nil); return err },
		"meta.ReadConfigFS":       func() error { _, err := meta.ReadConfigFS(nil); return err },
		"text.OpenFS":             func() error { _, _, err := text.OpenFS("m", nil); return err },
	} {
		fails(t, name, "got a ", call)
	}
}
