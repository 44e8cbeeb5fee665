package loader

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

var _ meta.CheckpointHeader = (*Headers)(nil)

// head is a file with one float32 tensor of n elements, cut after its header.
func head(file, tensor string, n int) FileHead {
	text := `{"` + tensor + `":{"dtype":"F32","shape":[2,` + itoa(n/2) + `],"data_offsets":[0,` + itoa(4*n) + `]}}`
	b := append([]byte{byte(len(text)), 0, 0, 0, 0, 0, 0, 0}, text...)
	return FileHead{Name: file, Size: int64(len(b) + 4*n), Bytes: b}
}

func itoa(n int) string { return strings.TrimLeft(five(n), "0") }

func TestReadHeaders(t *testing.T) {
	h, err := ReadHeaders([]FileHead{head("1.safetensors", "a", 6), head("2.safetensors", "b", 10)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	shape, dtype, ok := h.Tensor("b")
	if !ok || dtype != meta.Float32 || !slices.Equal(shape, []int{2, 5}) || h.Len() != 2 || h.Bytes() != 64 {
		t.Errorf("b is %v %v %v of %d tensors, %d bytes", shape, dtype, ok, h.Len(), h.Bytes())
	}
	if _, _, ok := h.Tensor("c"); ok {
		t.Error("there is no c")
	}
	twice := []FileHead{head("1.safetensors", "a", 6), head("2.safetensors", "a", 10)}
	if _, err := ReadHeaders(twice, nil); err == nil {
		t.Error("a stands in two files and no index says which counts")
	}
	h, err = ReadHeaders(twice, []byte(`{"weight_map":{"a":"2.safetensors"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if shape, _, _ := h.Tensor("a"); !slices.Equal(shape, []int{2, 5}) {
		t.Errorf("a is %v", shape)
	}
}

func TestReadHeadersNamesTheFile(t *testing.T) {
	good := head("x.safetensors", "a", 6)
	for want, bad := range map[string]FileHead{
		"reading the header":      {good.Name, good.Size, good.Bytes[:20]},
		"the file is cut":         {good.Name, good.Size - 1, good.Bytes},
		"after the last tensor":   {good.Name, good.Size + 1, good.Bytes},
		"too few":                 {good.Name, 3, nil},
		"reading the header's le": {good.Name, good.Size, nil},
	} {
		_, err := ReadHeaders([]FileHead{bad}, nil)
		var e *Error
		if !errors.As(err, &e) || e.File != "x.safetensors" || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := ReadHeaders(nil, []byte(`{}`)); err == nil {
		t.Error("an index without shards is taken")
	}
}
