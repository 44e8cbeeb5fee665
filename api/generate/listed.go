package generate

import (
	"bytes"
	"encoding/json"

	"github.com/heftai/heft/text"
)

// listedOnly reports whether arguments can only have the names that the tool's schema lists,
// because a parser would not find others.
func listedOnly(a *text.CallArguments) bool {
	return a != nil && (a.Named() || a.Plain.Key != "")
}

// parameterNames returns the properties that the schema of a tool's parameters lists, in their
// order, or nil if it lists none.
func parameterNames(schema []byte) (names []string) {
	var root struct{ Properties json.RawMessage }
	if json.Unmarshal(schema, &root) != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(root.Properties))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		names = append(names, name.(string))
	}
	return names
}

// anyOf returns a schema of objects with the given names and any values.
func anyOf(names []string) []byte {
	schema := []byte(`{"type":"object","properties":{`)
	for i, name := range names {
		if i > 0 {
			schema = append(schema, ',')
		}
		quoted, _ := json.Marshal(name) // strings always marshal
		schema = append(append(schema, quoted...), ":{}"...)
	}
	return append(schema, "}}"...)
}
