package meta

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesForMultiTokenPrediction: the module of a published checkpoint, planned from its config, has the bytes that the
// model leaves unread, one block with a KV cache of its own, and as inputs what it joins.
func TestModulesForMultiTokenPrediction(t *testing.T) {
	const folder = "../testdata/known"
	n := 0
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file.IsDir() || filepath.Ext(file.Name()) != ".json" {
			continue
		}
		var known struct {
			Config json.RawMessage `json:"config"`
		}
		text, err := os.ReadFile(filepath.Join(folder, file.Name()))
		if err == nil {
			err = json.Unmarshal(text, &known)
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := ReadConfig(known.Config)
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		next, err := NewNext(cfg, nil)
		if m.UnreadBytes == 0 {
			var bad *ConfigError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), "multi-token prediction") {
				t.Errorf("%s: %v; want a ConfigError", file.Name(), err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", file.Name(), err)
			continue
		}
		n++
		bytes := int64(0)
		for _, p := range next.Root.AllParams() {
			bytes += p.Bytes()
		}
		if bytes != m.UnreadBytes {
			t.Errorf("%s: %d bytes, and the model leaves %d unread", file.Name(), bytes, m.UnreadBytes)
		}
		spec := next.Root.Spec.(*CausalLMSpec)
		layers := next.Root.Find(spec.Layers).Children
		if spec.Join == nil || len(layers) != 1 || layers[0].Find("self_attn").Spec.(*AttentionSpec).Layer != 0 {
			t.Errorf("%s: joins %v, %d layers", file.Name(), spec.Join, len(layers))
		}
	}
	if n < 3 {
		t.Errorf("%d models with a module, want 3 at least", n)
	}
}
