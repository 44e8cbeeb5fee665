package tensor

import (
	"errors"
	"testing"
)

// TestErrorsOfFunctionsHaveOnePrefix: an error that says where it comes from is not told twice.
func TestErrorsOfFunctionsHaveOnePrefix(t *testing.T) {
	for text, want := range map[string]string{"model: layers.0: out of memory": "model: layers.0: out of memory", "out of memory": "tensor: model: out of memory"} {
		tp := NewTape(Options{})
		cause := errors.New(text)
		y := tp.Function(Function{Name: "model", Data: []float32{1}, Trains: true, Backward: func([]float32) error { return cause }})
		if err := tp.Backward(y, 1); !errors.Is(err, cause) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
