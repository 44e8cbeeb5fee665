package runstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Stateful is an object that defines its state in checkpoints: train.Stateful.
type Stateful interface {
	StateDict() (any, error)
	LoadStateDict(state []byte) error
}

// Register adds objects to checkpoints, in order. Each must be a [Stateful] or a pointer to a
// value with a JSON encoding. If any is not, Register adds none and returns an error that names
// all of those.
func (s *Store) Register(objects ...any) error {
	var all []Stateful
	var wrong []string
	for i, x := range objects {
		object, err := stateful(x)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("object %d, a %T: %v", i+1, x, err))
		}
		all = append(all, object)
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	s.registered = append(s.registered, all...)
	return nil
}

// Registered returns the number of registered objects.
func (s *Store) Registered() int { return len(s.registered) }

func stateful(x any) (Stateful, error) {
	v := reflect.ValueOf(x)
	pointer := v.Kind() == reflect.Pointer
	if s, ok := x.(Stateful); ok && !(pointer && v.IsNil()) {
		return s, nil
	}
	if !pointer || v.IsNil() {
		return nil, errors.New("has no StateDict and LoadStateDict and is not a pointer")
	}
	if _, err := json.Marshal(x); err != nil {
		return nil, fmt.Errorf("has no StateDict and LoadStateDict and no JSON form: %w", err)
	}
	return pointee{x}, nil
}

// pointee saves the value that a pointer points to.
type pointee struct{ to any }

func (p pointee) StateDict() (any, error)      { return p.to, nil }
func (p pointee) LoadStateDict(b []byte) error { return json.Unmarshal(b, p.to) }
