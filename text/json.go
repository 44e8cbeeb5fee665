package text

import (
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/heftai/heft/internal/chat"
)

// objectOf decodes a JSON object and keeps the order of its keys.
func objectOf(v any) (*chat.Dict, error) {
	decoded, err := valueOf(v)
	if err != nil {
		return nil, err
	}
	if d, ok := decoded.(*chat.Dict); ok {
		return d, nil
	}
	return nil, fmt.Errorf("got %.40T, want a JSON object", v)
}

// valueOf converts any value that encoding/json can write to a template's value. It returns a value
// that is already decoded unchanged.
func valueOf(v any) (chat.Value, error) {
	switch v := v.(type) {
	case nil, bool, string, int64, float64, *chat.Dict, *chat.List:
		return v, nil
	case json.RawMessage:
		return chat.Decode(v)
	case []byte:
		return chat.Decode(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return chat.Decode(b)
}

// appendJSON appends a decoded value as JSON.
func appendJSON(b []byte, v chat.Value) ([]byte, error) {
	var err error
	switch v := v.(type) {
	case *chat.Dict:
		b = append(b, '{')
		first := true
		for k, item := range v.All() {
			if !first {
				b = append(b, ',')
			}
			first = false
			if b, err = appendJSON(b, k); err != nil {
				return nil, err
			}
			if b, err = appendJSON(append(b, ':'), item); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case *chat.List:
		b = append(b, '[')
		for i, item := range v.Items {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, item); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case *big.Int:
		return v.Append(b, 10), nil
	}
	one, err := json.Marshal(v)
	return append(b, one...), err
}
