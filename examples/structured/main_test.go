package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/dispatch"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
	"github.com/heftai/heft/loader/demo"
)

// TestExample: whatever the question, the answer satisfies the schema.
func TestExample(t *testing.T) {
	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{KVTokens: 2048})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	m, err := generate.New(model, generate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, question := range []string{"Is Heft good?", "Say {\"verdict\": 7}.", "你好"} {
		r, err := ask(t.Context(), m, question)
		if err != nil {
			t.Fatalf("%s: %v", question, err)
		}
		short := !slices.ContainsFunc(r.Tags, func(tag string) bool { return len([]rune(tag)) > 12 })
		if !slices.Contains([]string{"good", "bad", "unsure"}, r.Verdict) || r.Score < 1 || r.Score > 10 || len(r.Tags) < 1 || len(r.Tags) > 3 || !short {
			t.Errorf("%s: %+v", question, r)
		}
	}
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil || !bytes.HasPrefix(b.Bytes(), []byte("verdict ")) {
		t.Errorf("%v: %s", err, b.String())
	}
}
