package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
)

// Encode writes v as JSON and a newline. It does not escape HTML.
func Encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// WriteJSON writes v as the response. It ignores errors, which mean that the client has
// disconnected.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = Encode(w, v) // the client has disconnected
}

// TypeName returns the name of a JSON value's type, with an article, for error messages.
func TypeName(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch c := raw[0]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case bytes.ContainsAny(raw, ".eE"):
		return "a number"
	default:
		return "an integer"
	}
}

// IsNull reports whether raw is null.
func IsNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }
