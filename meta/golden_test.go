package meta

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// skeletonFixture is one file of infer/devicemap/skeletons.
type skeletonFixture struct {
	Name              string
	Config            json.RawMessage
	Entries           [][]any
	CheckpointEntries [][]any `json:"checkpoint_entries"`
	NumParameters     int64   `json:"num_parameters"`
	Tied              [][]string
	NoSplit           []string `json:"no_split_modules"`
}

// build makes the model of a config.
func build(t *testing.T, config []byte) *Model {
	t.Helper()
	cfg, err := ReadConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestGoldenSkeletons(t *testing.T) {
	cases := 0
	for _, file := range golden.Glob(t, "infer/devicemap/skeletons/*.json") {
		var want skeletonFixture
		golden.JSON(t, file, &want)
		cases++
		t.Run(strings.TrimSuffix(path.Base(file), ".json"), func(t *testing.T) {
			m := build(t, want.Config)
			var entries, stored []string
			for _, e := range m.Root.Entries() {
				entries = append(entries, fmt.Sprintln(e.Name, e.Shape, e.DType, strings.Join(e.Classes, "/"), e.Kind))
			}
			for _, e := range m.Root.CheckpointEntries() {
				stored = append(stored, fmt.Sprintln(e.Name, e.Shape, e.DType))
			}
			var wantEntries, wantStored []string
			for _, e := range want.Entries {
				wantEntries = append(wantEntries, fmt.Sprintln(e...))
			}
			for _, e := range want.CheckpointEntries {
				wantStored = append(wantStored, fmt.Sprintln(e...))
			}
			sameLines(t, "entries", entries, wantEntries)
			sameLines(t, "checkpoint entries", stored, wantStored)
			if n := m.Root.NumParameters(); n != want.NumParameters {
				t.Errorf("%d parameters, want %d", n, want.NumParameters)
			}
			if got, want := fmt.Sprint(m.Root.Tied()), fmt.Sprint(want.Tied); got != want {
				t.Errorf("tied %s, want %s", got, want)
			}
			if !slices.Equal(m.NoSplitClasses, want.NoSplit) {
				t.Errorf("no-split classes %v, want %v", m.NoSplitClasses, want.NoSplit)
			}
		})
	}
	golden.Count(t, "infer/devicemap/skeletons", cases)
}

// TestGoldenTrees reads and writes all trees, and compares those of models, byte by
// byte, with New's.
func TestGoldenTrees(t *testing.T) {
	cases := 0
	for _, file := range golden.Glob(t, "infer/devicemap/cases_*.json") {
		var cs struct {
			Statics []struct {
				Name, Tree    string
				Config        json.RawMessage
				NoSplit       []string `json:"no_split"`
				NumParameters int64    `json:"num_parameters"`
				Tied          [][]string
			}
		}
		golden.JSON(t, file, &cs)
		for _, s := range cs.Statics {
			data, err := golden.Read(golden.Path(t, "infer", "devicemap", strings.TrimSuffix(s.Tree, ".gz")))
			if err != nil {
				t.Fatal(err)
			}
			cases++
			t.Run(s.Name, func(t *testing.T) {
				root, err := ReadTree(data)
				if err != nil {
					t.Fatal(err)
				}
				checkRoundTrip(t, root, data)
				if s.Config == nil {
					if got := root.Tied(); fmt.Sprint(got) != fmt.Sprint(s.Tied) {
						t.Errorf("tied %v, want %v", got, s.Tied)
					}
					return
				}
				if n := root.NumParameters(); n != s.NumParameters {
					t.Errorf("%d parameters, want %d", n, s.NumParameters)
				}
				m := build(t, s.Config)
				checkRoundTrip(t, m.Root, data)
				if !slices.Equal(m.NoSplitClasses, s.NoSplit) {
					t.Errorf("no-split classes %v, want %v", m.NoSplitClasses, s.NoSplit)
				}
				for path, node := range m.Root.Walk() {
					if node.NoSplit != slices.Contains(s.NoSplit, node.Class) {
						t.Errorf("%s: NoSplit is %v", path, node.NoSplit)
					}
				}
			})
		}
	}
	golden.Count(t, "infer/devicemap/trees", cases)
}

// checkRoundTrip writes root and compares with the fixture's bytes.
func checkRoundTrip(t *testing.T, root *Module, want []byte) {
	t.Helper()
	got, err := WriteTree(root)
	if err != nil {
		t.Fatal(err)
	}
	// One line a module: after the name of each child.
	split := func(b []byte) []string {
		return strings.SplitAfter(strings.TrimSpace(string(b)), `",{`)
	}
	sameLines(t, "tree", split(got), split(want))
}

// sameLines reports the first difference of two listings.
func sameLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s: row %d of %d (want %d):\n got  %s\n want %s", what, i, len(got), len(want), g, w)
			return
		}
	}
}

// TestGoldenModelConfigs reads the configs of the golden models, in both dialects.
func TestGoldenModelConfigs(t *testing.T) {
	cases := 0
	for want := range golden.Models(t) {
		cases++
		t.Run(want.Name(), func(t *testing.T) {
			cfg, err := ReadConfigFile(path.Join(want.Stored, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			m, err := New(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			if n := m.Root.NumParameters(); n != want.NumParameters {
				t.Errorf("%d parameters, want %d", n, want.NumParameters)
			}
			if c := m.Root.Spec.(*CausalLMSpec).Context; c < 64 {
				t.Errorf("context %d is shorter than the prompts with their answers", c)
			}
			g, err := ReadGenerationConfigFile(path.Join(want.Stored, "generation_config.json"))
			if err != nil {
				t.Fatal(err)
			}
			if g.BOS != cfg.BOS || !slices.Equal(g.EOS, cfg.EOS) {
				t.Errorf("config has bos %d and eos %v, generation_config %d and %v", cfg.BOS, cfg.EOS, g.BOS, g.EOS)
			}
		})
	}
	golden.Count(t, "infer/models (configs)", cases)
}
