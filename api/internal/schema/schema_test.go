package schema_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/heftai/heft/api/internal/schema"
)

type base struct {
	ID string `json:"id"`
}

type example struct {
	base
	Count  int               `json:"count,omitzero"`
	Inner  *base             `json:"inner"`
	List   []float32         `json:"list"`
	Of     map[string]bool   `json:"of,omitempty"`
	At     time.Time         `json:"at"`
	Self   []example         `json:"self,omitzero"`
	Hidden int               `json:"-"`
	Forms  forms             `json:"forms"`
	Any    any               `json:"any"`
	Raw    json.RawMessage   `json:"raw"`
	Names  map[string]string `json:"names"`
	Kind   string            `json:"kind" enum:"a,b"`
}

type forms struct{ text bool }

func (f forms) MarshalJSON() ([]byte, error) {
	if f.text {
		return []byte(`{"text": "a"}`), nil
	}
	return []byte(`[1, true]`), nil
}

func (f forms) Samples() []any { return []any{forms{text: true}, forms{}} }

func TestOf(t *testing.T) {
	const want = `{"type":"object","properties":{"any":{},"at":{"type":"string","format":"date-time"},"count":{"type":"integer"},` +
		`"forms":{"anyOf":[{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]},{"type":"array","items":{"type":"number"}}]},` +
		`"id":{"type":"string"},"inner":{"type":["object","null"],"properties":{"id":{"type":"string"}},"required":["id"]},` +
		`"kind":{"type":"string","enum":["a","b"]},"list":{"type":["array","null"],"items":{"type":"number"}},"names":{"type":["object","null"],"additionalProperties":{"type":"string"}},` +
		`"of":{"type":["object","null"],"additionalProperties":{"type":"boolean"}},"raw":{},` +
		`"self":{"type":["array","null"],"items":{}}},"required":["id","inner","list","at","forms","any","raw","names","kind"]}`
	got, err := json.Marshal(schema.Of(example{}))
	if err != nil || string(got) != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
}
