package model

import (
	"math"
	"strings"
	"testing"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// TestOptionsOfAModelThatMeanNothingWereTaken: unknown formats and negative temperatures had no effect, and nil arguments
// panicked.
func TestOptionsOfAModelThatMeanNothingWereTaken(t *testing.T) {
	skeleton, checkpoint, err := loader.OpenModelFS("demo", demo.Files())
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(skeleton, binding)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tape := tensor.NewTape(tensor.Options{})
	batch := Batch{IDs: []int{1, 2}, Length: 2}
	loss := func(tape *tensor.Tape, o Options) error { _, err := m.Loss(tape, batch, o); return err }
	all := func(string) bool { return true }
	for want, call := range map[string]func() error{
		"model: Quantize: got none (255)":              func() error { _, err := Load(skeleton, binding, Freeze(all), Quantize(math.MaxUint8)); return err },
		"converts frozen weights, and none are frozen": func() error { _, err := Load(skeleton, binding, Quantize(meta.QuantQ8)); return err },
		"model: got a nil option":                      func() error { _, err := Load(skeleton, binding, nil); return err },
		"model: load: got a nil binding":               func() error { _, err := Load(skeleton, nil); return err },
		"model: got a nil skeleton":                    func() error { _, err := New(nil); return err },
		"model: got a nil tape":                        func() error { return loss(nil, Options{}) },
		"model: Options.Temperature: got -1":           func() error { return loss(tape, Options{Temperature: -1}) },
		"model: Options.Noise: got no Uniform":         func() error { return loss(tape, Options{Noise: &Noise{Alpha: 1}}) },
	} {
		t.Run(want, func(t *testing.T) {
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
}
