package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/rng"
)

// With every plugin one rank trains to the same bits, and prints the same.
func TestExample(t *testing.T) {
	outputs := map[string]string{}
	for _, plugin := range []string{"ddp", "zero1", "zero2", "gemini"} {
		var b bytes.Buffer
		if err := run(t.Context(), &b, plugin, 0, 4); err != nil {
			t.Fatal(err)
		}
		windows, literal, _ := strings.Cut(b.String(), "\n\n")
		if n := strings.Count(windows, "* loss"); n != 2 || !strings.Contains(windows, "only updated in the last iteration") {
			t.Errorf("%d iterations step:\n%s", n, windows)
		}
		if !strings.Contains(literal, "iteration 0*") || !strings.Contains(literal, "iteration 3*") {
			t.Errorf("the literal rule steps elsewhere:\n%s", literal)
		}
		if outputs[plugin] = b.String(); outputs[plugin] != outputs["ddp"] {
			t.Errorf("%s printed\n%s\nwant\n%s", plugin, outputs[plugin], outputs["ddp"])
		}
	}
	if err := run(t.Context(), io.Discard, "other", 0, 4); err == nil || !strings.Contains(err.Error(), "want ddp") {
		t.Errorf("an unknown plugin: %v", err)
	}
}

// TestUnderMemoryLimit: within a third of the memory of weights, gradients and momentum, Gemini trains to the bits of
// plain training.
func TestUnderMemoryLimit(t *testing.T) {
	const width = 16
	fit := func(plugin string, memory int64) ([]row, train.Plugin) {
		s, err := newSetup(nil, plugin, memory)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := s.fit(t.Context(), width, 2*accumulation, func(idx int) bool { return (idx+1)%accumulation == 0 })
		if err != nil {
			t.Fatal(err)
		}
		return rows, s.plugin
	}
	state := int64(0)
	for _, p := range newResNet18(width, classes, rng.New(0)).Parameters() {
		state += 3 * 4 * int64(len(p.Data()))
	}
	want, _ := fit("ddp", 0)
	got, plugin := fit("gemini", state/3)
	defer plugin.(*train.GeminiPlugin).Close()
	for i, r := range got {
		if r.loss != want[i].loss || !slices.Equal(r.first, want[i].first) || !slices.Equal(r.moments, want[i].moments) {
			t.Errorf("iteration %d: %+v, want %+v", i, r, want[i])
		}
	}
	if s := plugin.(*train.GeminiPlugin).Stats(); s.Peak > state/3 || s.Size < state || s.Written == 0 || s.Read == 0 {
		t.Errorf("%+v, want chunks of %d bytes of which at most %d are in memory", s, state, state/3)
	}
	if _, err := newSetup(nil, "ddp", 1); err == nil || !strings.Contains(err.Error(), "-memory needs -plugin gemini") {
		t.Errorf("ddp with a limit: %v", err)
	}
}

// Two ranks take the same steps, and print the same parameters.
func TestTwoRanks(t *testing.T) {
	printed := make([][]row, 2)
	err := train.Launch(t.Context(), 2, func(ctx context.Context, w *train.World) error {
		s, err := newSetup(w, "zero1", 0)
		if err == nil {
			printed[w.Rank()], err = s.fit(ctx, 2, 2*accumulation, func(idx int) bool { return (idx+1)%accumulation == 0 })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * accumulation {
		if a, b := printed[0][i], printed[1][i]; !slices.Equal(a.first, b.first) || a.loss == b.loss {
			t.Errorf("iteration %d: parameters %v and %v, losses %v and %v of different batches", i, a.first, b.first, a.loss, b.loss)
		}
	}
}

// TestFullModel: at width 64 the model has torchvision's names and shapes.
func TestFullModel(t *testing.T) {
	var want struct {
		Parameters float64
		StateDict  []struct {
			Name      string
			Shape     []int
			Trainable bool
		} `json:"state_dict"`
	}
	m, n := newResNet18(64, classes, rng.New(0)), 0
	for _, p := range m.Parameters() {
		n += len(p.Data())
	}
	if n != 11_181_642 {
		t.Errorf("%d parameters, want 11181642", n)
	}
	golden.JSON(t, golden.Path(t, "train/resnet/resnet18_shapes.json"), &want)
	var names []string
	for _, s := range want.StateDict {
		if !s.Trainable {
			continue
		}
		names = append(names, s.Name)
		if p := m.params[s.Name]; p == nil || len(p.Shape()) != len(s.Shape) || p.Shape()[0] != s.Shape[0] {
			t.Errorf("%s is %v, want %v", s.Name, p, s.Shape)
		}
	}
	if len(names) > 0 && len(names) != len(m.names) {
		t.Errorf("%d parameters, want %d", len(m.names), len(names))
	}
}
