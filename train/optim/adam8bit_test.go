package optim

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/rng"
)

// adam8bitFixture is what bitsandbytes computed.
type adam8bitFixture struct {
	Seed  uint64
	Sizes []int
	Every int
	Maps  [2][]float32
	Cases []struct {
		Options struct {
			WeightDecay float64 `json:"weight_decay"`
			Betas       []float64
		}
		Steps [][][]float32
	}
}

func readAdam8bit(t *testing.T) (want adam8bitFixture) {
	t.Helper()
	b, err := golden.Read(filepath.Join("testdata", "adam8bit.json"))
	if err == nil {
		err = json.Unmarshal(b, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// TestAdamW8bitIsBitsandbytes compares maps and steps with bitsandbytes' (scripts/make-adam8bit-fixtures.py),
// with the state saved and restored in between.
func TestAdamW8bitIsBitsandbytes(t *testing.T) {
	want := readAdam8bit(t)
	for i, m := range want.Maps {
		checkValues(t, fmt.Sprintf("map %d", i), dynamicMap(i == 0), m, 1, 0)
	}
	for c, w := range want.Cases {
		random := rng.New(want.Seed)
		values := make([]*VectorParam, len(want.Sizes))
		for i, n := range want.Sizes {
			values[i] = &VectorParam{Value: make([]float32, n)}
			random.Normal(values[i].Value, 0, 1)
		}
		made := func() *Descent {
			betas := append(w.Options.Betas, 0, 0)
			o := AdamOptions{LR: 0.01, WeightDecay: w.Options.WeightDecay, Beta1: betas[0], Beta2: betas[1]}
			opt, err := NewAdamW8bit([]Param{values[0], values[1]}, o)
			if err != nil {
				t.Fatal(err)
			}
			return opt
		}
		opt := made()
		for n, step := range w.Steps {
			if n == 3 { // another process goes on
				next := made()
				if err := next.LoadState(opt.State()); err != nil {
					t.Fatal(err)
				}
				opt = next
			}
			for _, p := range values {
				p.Gradient = make([]float32, len(p.Value))
				random.Normal(p.Gradient, 0, 0.3)
			}
			if err := opt.Step(); err != nil {
				t.Fatal(err)
			}
			for i, some := range step {
				checkValues(t, fmt.Sprintf("case %d, step %d: parameter %d", c, n+1, i), values[i].Value, some, want.Every, 1e-5)
			}
		}
		if s := opt.State().Params; len(s[0].Slots["state1"]) != 1250 || len(s[0].Slots["absmax2"]) != 20 || len(s[1].Slots["exp_avg"]) != 100 {
			t.Errorf("got a state of other sizes: %d, %d, %d", len(s[0].Slots["state1"]), len(s[0].Slots["absmax2"]), len(s[1].Slots["exp_avg"]))
		}
	}
}

// checkValues compares every so many values with those wanted.
func checkValues(t *testing.T, of string, got, want []float32, every int, within float64) {
	t.Helper()
	for k, v := range want {
		if x := got[k*every]; !(math.Abs(float64(x-v)) <= within) { // NaN too
			t.Errorf("%s: element %d is %v, want %v", of, k*every, x, v)
			return
		}
	}
}

// TestAdamW8bitKeepsEveryCode: packed codes may be NaNs as float32, whose bits must stay, and a block of
// zeros stays zero.
func TestAdamW8bitKeepsEveryCode(t *testing.T) {
	numbers := dynamicMap(true)
	words := make([]float32, codeBlock/4)
	if scale := encode(words, numbers, numbers); scale != 1 {
		t.Errorf("got scale %v, want 1", scale)
	}
	got := make([]float32, codeBlock)
	decode(got, slices.Clone(words), 1, numbers)
	if !slices.Equal(got, numbers) {
		t.Errorf("got %v, want %v", got, numbers)
	}
	if scale := encode(words, make([]float32, codeBlock), numbers); scale != 0 {
		t.Errorf("got scale %v of zeros", scale)
	}
	opt, err := NewAdamW8bit([]Param{&VectorParam{Value: make([]float32, 4)}}, AdamOptions{})
	if err == nil {
		err = opt.Replace(func(p Param) (Param, error) { return p, nil })
	}
	if err == nil || !strings.Contains(err.Error(), "plugin that replicates its state") {
		t.Errorf("got %v where parameters are split, want an error", err)
	}
}
