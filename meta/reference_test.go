package meta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// referenceCase is one line of testdata/trees.json (scripts/make-tree-fixtures.py).
type referenceCase struct {
	Config, Tree json.RawMessage
	Values       map[string]map[string]*float64
	NoSplit      []string `json:"no_split"`
	Rope         *struct {
		Inv   map[string][]float64
		Scale map[string]float64
	}
}

// TestReferenceTrees compares small configs of every architecture, some fields left
// out, with what transformers makes of them: the tree, epsilons, scales, windows and
// frequencies.
func TestReferenceTrees(t *testing.T) {
	data, err := golden.Read("testdata/trees.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var c referenceCase
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		m := build(t, c.Config)
		seen[m.Config.ModelType] = true
		tree, err := WriteTree(m.Root)
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal(tree, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(c.Tree, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got  %s\n want %s", c.Config, tree, c.Tree)
			continue
		}
		noSplit := c.NoSplit
		switch m.Config.ModelType { // the reference names no class, and device_map="auto" is an error in it
		case "biogpt":
			noSplit = []string{"BioGptDecoderLayer"}
		case "ctrl":
			noSplit = []string{"EncoderLayer"}
		case "openai-gpt":
			noSplit = []string{"Block"}
		}
		if !slices.Equal(m.NoSplitClasses, noSplit) {
			t.Errorf("%s: no-split classes %v, want %v", c.Config, m.NoSplitClasses, noSplit)
		}
		for path, values := range c.Values {
			checkValues(t, c.Config, path, m.Root.Find(path), values)
		}
		for path, node := range m.Root.Walk() {
			if a, ok := node.Spec.(*AttentionSpec); ok && c.Rope != nil && a.Rope != nil {
				checkRope(t, c, path, a)
			}
		}
	}
	for _, name := range Architectures() {
		switch name {
		case "kimi_k2", "vlm", "qwen2_5_omni", "qwen3_omni_moe", "ernie4_5_moe_vl", "NemotronH_Nano_Omni_Reasoning_V3": // TestPublishedTypesHaveTheTreesOfTransformers and TestTextOfOmniIsItsThinkers compare them
			continue
		}
		if !seen[name] {
			t.Errorf("no case of %s", name)
		}
	}
}

// checkValues compares a module's spec with the attributes of the reference's.
func checkValues(t *testing.T, config []byte, path string, node *Module, values map[string]*float64) {
	t.Helper()
	number := func(name string) float64 {
		if v := values[name]; v != nil {
			return *v
		}
		return 0
	}
	switch s := node.Spec.(type) {
	case *NormSpec:
		if want := float32(number("variance_epsilon") + number("eps")); s.Eps != want {
			t.Errorf("%s: %s: epsilon %v, want %v", config, path, s.Eps, want)
		}
	case *AttentionSpec:
		c := struct { // of falcon_h1, which multiplies the keys instead
			Keys float32 `json:"key_multiplier"`
			Text struct {
				Factor float32 `json:"qk_scale_factor"`
			} `json:"text_config"`
		}{Keys: 1}
		if err := json.Unmarshal(config, &c); err != nil {
			t.Fatal(err)
		}
		if c.Text.Factor != 0 {
			c.Keys = c.Text.Factor
		}
		if want := float32(number("scaling")) * c.Keys; s.Scale != want {
			t.Errorf("%s: %s: scale %v, want %v", config, path, s.Scale, want)
		}
		if _, ok := values["sliding_window"]; ok && float64(s.Window) != number("sliding_window") {
			t.Errorf("%s: %s: window %d, want %v", config, path, s.Window, number("sliding_window"))
		}
	}
}

// checkRope compares the frequencies of one attention. Gemma 3 has them by layer type, granite_swa by layer.
func checkRope(t *testing.T, c referenceCase, path string, a *AttentionSpec) {
	t.Helper()
	kind := ""
	if c.Rope.Inv["inv_freq"] == nil {
		if kind = "full_attention_"; a.Window > 0 {
			kind = "sliding_attention_"
		}
		if a.Window == 0 && c.Rope.Inv["indexed_attention_inv_freq"] != nil {
			kind = "indexed_attention_"
		}
		if c.Rope.Inv["hybrid_inv_freq"] != nil || c.Rope.Inv["hybrid_sliding_inv_freq"] != nil {
			kind = strings.NewReplacer("full_attention", "hybrid", "sliding_attention", "hybrid_sliding").Replace(kind)
		}
		if own := fmt.Sprintf("layer_%d_", a.Layer); c.Rope.Inv[own+"inv_freq"] != nil {
			kind = own
		}
		if a.Compressed != nil {
			if kind = "main_"; a.Compressed.Pool != nil {
				kind = "compress_"
			}
		}
	}
	want := c.Rope.Inv[kind+"inv_freq"]
	inv, scale := a.Rope.Frequencies(1)
	if len(inv) != len(want) {
		t.Errorf("%s: %s: %d frequencies, want %d", c.Config, path, len(inv), len(want))
		return
	}
	for i := range inv {
		if !(math.Abs(float64(inv[i])-want[i]) <= 2.4e-7*want[i]) {
			t.Errorf("%s: %s: frequency %d is %v, want %v", c.Config, path, i, inv[i], want[i])
		}
	}
	if a.Rope.ShortScale != 0 {
		return // the model replaces the factor
	}
	if s := c.Rope.Scale[kind+"attention_scaling"]; !(math.Abs(scale-s) <= 1e-12) {
		t.Errorf("%s: %s: scale %v, want %v", c.Config, path, scale, s)
	}
}

// TestReferenceSizes compares the number of parameters that each class has by its defaults with
// transformers' (scripts/make-tree-fixtures.py).
func TestReferenceSizes(t *testing.T) {
	data, err := golden.Read("testdata/sizes.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]int64
	if err := json.Unmarshal(data, &want); err != nil || len(want) < len(Architectures())*3/4 {
		t.Fatalf("%d sizes, error %v", len(want), err)
	}
	for name, n := range want {
		if name == "glm4_moe" || name == "qwen3_omni_moe_thinker" { // rope cannot rotate the heads that they have by default
			continue
		}
		if got := build(t, []byte(`{"model_type": "`+name+`"}`)).Root.NumParameters(); got != n {
			t.Errorf("%s: %d parameters, want %d", name, got, n)
		}
	}
}
