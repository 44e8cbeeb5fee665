package loader

import (
	"io"

	"github.com/nlpodyssey/safetensors"
)

// A view passes a tensor to nlpodyssey/safetensors and reads its bytes when they are written. The
// package's views cannot fail, so the first error is recorded for the writer.
type view struct {
	NamedTensor
	dtype  safetensors.DType
	failed *error
}

var _ safetensors.View = view{}

func (v view) DType() safetensors.DType { return v.dtype }
func (v view) DataLen() uint64          { return uint64(v.Size()) }

func (v view) Shape() []uint64 {
	shape := make([]uint64, len(v.NamedTensor.Shape))
	for i, d := range v.NamedTensor.Shape {
		shape[i] = uint64(d)
	}
	return shape
}

func (v view) Data() []byte {
	if *v.failed != nil {
		return nil
	}
	b, err := v.elements()
	*v.failed = err
	return b
}

// libraryViews returns the tensors as views, or false if the package does not support one of
// their dtypes.
func libraryViews(tensors []NamedTensor) (map[string]view, bool) {
	views := make(map[string]view, len(tensors))
	failed := new(error)
	for _, t := range tensors {
		dtype, err := safetensors.ParseDType(t.DType.Safetensors())
		if err != nil {
			return nil, false
		}
		views[t.Name] = view{t, dtype, failed}
	}
	return views, true
}

// writeViews writes a safetensors file of the views.
func writeViews(w io.Writer, views map[string]view, metadata map[string]string) error {
	failed := new(error)
	for _, v := range views {
		failed = v.failed
		break
	}
	err := safetensors.SerializeToWriter(views, metadata, failingWriter{w, failed})
	if *failed != nil {
		return *failed
	}
	return err
}

// A failingWriter fails once a view has failed.
type failingWriter struct {
	io.Writer
	failed *error
}

func (w failingWriter) Write(p []byte) (int, error) {
	if *w.failed != nil {
		return 0, *w.failed
	}
	return w.Writer.Write(p)
}
