package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// rawPart is the undecoded JSON of one part of the pipeline.
type rawPart = json.RawMessage

// parser builds a [Tokenizer] from the members of tokenizer.json.
type parser struct {
	model    model
	patterns int // parts that match patterns
}

// maxDepth bounds Sequences inside Sequences.
const maxDepth = 16

// part decodes the JSON of one part into spec; ok is false for null and on error.
// Every part is an object with a "type".
func (p *parser) part(raw rawPart, path string, depth int, spec any) (ok bool, err error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return false, nil
	}
	if depth > maxDepth {
		return false, fmt.Errorf("%s: nested more than %d deep", path, maxDepth)
	}
	if err := json.Unmarshal(raw, spec); err != nil {
		return false, decodeError(path, err)
	}
	return true, nil
}

// sequence builds the parts of a Sequence, the member of the part at path; those that are
// null are left out. T is an interface.
func sequence[T any](raws []rawPart, path, member string, depth int, build func(raw rawPart, path string, depth int) (T, error)) ([]T, error) {
	var list []T
	for i, raw := range raws {
		one, err := build(raw, index(path, member, i), depth+1)
		if err != nil {
			return nil, err
		}
		if any(one) != nil {
			list = append(list, one)
		}
	}
	return list, nil
}

// decodeError names the member that has the wrong type.
func decodeError(path string, err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("%s.%s: got a %s, want a %s", path, wrong.Field, wrong.Value, wrong.Type.Kind())
	}
	return fmt.Errorf("%s: %w", path, err)
}

func index(path, field string, i int) string {
	return path + "." + field + "[" + strconv.Itoa(i) + "]"
}

// unsupported returns the error for a part of a kind that is not known.
func unsupported(path, role, kind, known string) error {
	return fmt.Errorf("%s: the %s %q is not supported (supported: %s)", path, role, kind, known)
}

// either decodes a member that may be missing: its default is def.
func either[T any](v *T, def T) T {
	if v == nil {
		return def
	}
	return *v
}

// oneRune returns the only character of s.
func oneRune(s, path string) (rune, error) {
	r := []rune(s)
	if len(r) != 1 {
		return 0, fmt.Errorf("%s: got %q, want one character", path, s)
	}
	return r[0], nil
}
