package jsonschema_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/jsontext"
)

// TestEverydayPatternsWereTooLarge: patterns with several parts of which one is a large class, such as
// ^https?://\S{1,2000}$, were a 400. scripts/make-pattern-fixtures.py judges the texts with Python's re.
func TestEverydayPatternsWereTooLarge(t *testing.T) {
	var table []struct {
		Pattern string          `json:"pattern"`
		Texts   map[string]bool `json:"texts"`
	}
	data, err := os.ReadFile("testdata/patterns.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table) < 60 {
		t.Errorf("%d patterns, want at least 60", len(table))
	}
	for _, c := range table {
		schema, _ := json.Marshal(map[string]any{"type": "string", "pattern": c.Pattern}) //nolint:errchkjson // strings
		g, err := jsonschema.Compile(lib, schema)
		if err != nil {
			t.Error(err)
			continue
		}
		var yes, no []string
		for text, matches := range c.Texts {
			if matches {
				yes = append(yes, jsontext.Quote(text))
			} else {
				no = append(no, jsontext.Quote(text))
			}
		}
		grammartest.Match(t, c.Pattern, g, yes, no)
	}
}
