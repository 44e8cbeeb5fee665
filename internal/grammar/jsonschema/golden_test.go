package jsonschema_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/grammartest"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
)

var lib = grammar.NewLibrary(vocab.New(grammartest.Bytes{}, 256))

// TestGoldenSchemas: a grammar accepts all valid documents of its schema and no invalid one.
func TestGoldenSchemas(t *testing.T) {
	var file struct {
		Schemas []struct {
			Name, Tier            string
			Schema                json.RawMessage
			Valid, Invalid        []string
			MayAcceptReordered    []string `json:"may_accept_reordered"`
			MayAcceptWhitespace   []string `json:"may_accept_whitespace"`
			MayAcceptASCIIEscapes []string `json:"may_accept_ascii_escapes"`
		}
	}
	cases := 0
	for _, path := range golden.Glob(t, "text/schemas/cases.json") {
		golden.JSON(t, path, &file)
	}
	for _, s := range file.Schemas {
		t.Run(s.Name, func(t *testing.T) {
			cases++
			g, err := jsonschema.Compile(lib, s.Schema)
			var own *jsonschema.Error
			if s.Tier == "optional" && errors.As(err, &own) {
				t.Logf("rejected: %v", err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, doc := range s.Valid {
				if !g.Match(doc) {
					t.Errorf("valid, but not matched: %s", doc)
				}
			}
			for _, doc := range s.Invalid {
				if g.Match(doc) {
					t.Errorf("invalid, but matched: %q", doc)
				}
			}
		})
	}
	golden.Count(t, "text/schemas", cases)
}
