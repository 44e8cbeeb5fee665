package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/rng"
)

func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b, 4); err != nil {
		t.Fatal(err)
	}
	windows, literal, _ := strings.Cut(b.String(), "\n\n")
	if n := strings.Count(windows, "* loss"); n != 2 || !strings.Contains(windows, "only updated in the last iteration") {
		t.Errorf("%d iterations step:\n%s", n, windows)
	}
	if !strings.Contains(literal, "iteration 0*") || !strings.Contains(literal, "iteration 3*") {
		t.Errorf("the literal rule steps elsewhere:\n%s", literal)
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
