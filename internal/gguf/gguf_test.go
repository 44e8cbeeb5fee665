package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/gguf/gguftest"
)

func small() []byte {
	return gguftest.Write([]gguftest.Key{
		{Name: "general.architecture", Value: "llama"}, {Name: "n", Value: uint32(7)}, {Name: "x", Value: float32(1.5)}, {Name: "yes", Value: true},
		{Name: "words", Value: []string{"a", "", "bc"}}, {Name: "numbers", Value: []int32{-1, 2}}, {Name: "nested", Value: [][]string{{"a"}, {}}},
	}, []gguftest.Tensor{
		{Name: "first", Type: gguf.Q8_0, Shape: []int{2, 64}, Data: make([]byte, 2*2*34)},
		{Name: "second", Type: gguf.F32, Shape: []int{3}, Data: make([]byte, 12)},
	})
}

func read(b []byte) (*gguf.File, error) { return gguf.Read(bytes.NewReader(b), int64(len(b))) }

func TestRead(t *testing.T) {
	b := small()
	f, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || len(f.Tensors) != 2 || f.Header%gguftest.Alignment != 0 {
		t.Fatalf("got version %d, %d tensors, a header of %d bytes", f.Version, len(f.Tensors), f.Header)
	}
	if got := f.Tensors[0]; got.Name != "first" || got.Type != gguf.Q8_0 || !slices.Equal(got.Shape, []int{2, 64}) || got.Offset != f.Header || got.Size != 136 {
		t.Errorf("first tensor: %+v", got)
	}
	if got := f.Tensors[1]; got.Offset != f.Header+160 || got.Offset+got.Size != int64(len(b)) {
		t.Errorf("second tensor: %+v in %d bytes", got, len(b))
	}
	words, err1 := f.Meta.Texts("words")
	numbers, err2 := f.Meta.Ints("numbers")
	n, _, err3 := f.Meta.Int("n")
	x, _, err4 := f.Meta.Float("x")
	if errors.Join(err1, err2, err3, err4) != nil || !slices.Equal(words, []string{"a", "", "bc"}) || !slices.Equal(numbers, []int64{-1, 2}) || n != 7 || x != 1.5 {
		t.Errorf("metadata: %v", f.Meta)
	}
	if _, _, err := f.Meta.Int("words"); err == nil || !strings.Contains(err.Error(), "words") {
		t.Errorf("an array as a number: %v", err)
	}
}

// TestHostileHeaders: each fault is an error that names it, and none takes memory for what a count
// claims.
func TestHostileHeaders(t *testing.T) {
	le := binary.LittleEndian
	put32 := func(at int, v uint32) func([]byte) { return func(b []byte) { le.PutUint32(b[at:], v) } }
	put64 := func(at int, v uint64) func([]byte) { return func(b []byte) { le.PutUint64(b[at:], v) } }
	b := small()
	first := bytes.Index(b, []byte("first")) + 5 // dimensions, sizes, type, offset
	second := bytes.Index(b, []byte("second")) + 6
	words := bytes.Index(b, []byte("words")) + 5
	for name, c := range map[string]struct {
		change func([]byte)
		want   string
	}{
		"magic":             {func(b []byte) { b[0] = 'g' }, "no GGUF file"},
		"version 1":         {put32(4, 1), "version 1"},
		"version 4":         {put32(4, 4), "version 4"},
		"big-endian":        {func(b []byte) { binary.BigEndian.PutUint32(b[4:], 3) }, "big-endian"},
		"tensors":           {put64(8, 1<<40), "tensors"},
		"keys":              {put64(16, 1<<60), "metadata keys"},
		"length of a key":   {put64(24, 1<<63), "a metadata key has"},
		"type of a value":   {put32(words, 99), "type 99"},
		"type of elements":  {put32(words+4, 13), "type 13"},
		"length of array":   {put64(words+8, 1<<61), "array"},
		"length of string":  {put64(words+16, 1<<40), "string has"},
		"no dimensions":     {put32(first, 0), "0 dimensions"},
		"five dimensions":   {put32(first, 5), "5 dimensions"},
		"dimension 0":       {put64(first+4, 0), "dimension of 0"},
		"huge dimension":    {put64(first+12, 1<<40), "dimension of"},
		"rows of no blocks": {put64(first+4, 48), "multiple of 32"},
		"too large":         {put64(first+12, 1<<31-1), "cut"},
		"type":              {put32(first+20, 4), "type 4"},
		"unaligned":         {put64(first+24, 16), "multiple of 32"},
		"offset beyond":     {put64(first+24, 1<<50), "offset"},
		"cut":               {put64(second+16, 1<<10), "offset"},
		"overlap":           {put64(second+16, 128), "inside"},
	} {
		bad := bytes.Clone(b)
		c.change(bad)
		_, err := read(bad)
		var own *gguf.Error
		if !errors.As(err, &own) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
	for n := range len(b) - 1 {
		if _, err := read(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were read", n, len(b))
		}
	}
}

func TestTensorsAndKeysAreUnique(t *testing.T) {
	tensor := gguftest.Tensor{Name: "a", Type: gguf.F32, Shape: []int{8}, Data: make([]byte, 32)}
	if _, err := read(gguftest.Write(nil, []gguftest.Tensor{tensor, tensor})); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two tensors of one name: %v", err)
	}
	key := gguftest.Key{Name: "k", Value: true}
	if _, err := read(gguftest.Write([]gguftest.Key{key, key}, nil)); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("two keys of one name: %v", err)
	}
}

func TestNestingIsBounded(t *testing.T) {
	b := gguftest.Write([]gguftest.Key{{Name: "k", Value: uint32(0)}}, nil)
	b = b[:len(b)-8]
	b = binary.LittleEndian.AppendUint32(b, 9)
	for range 1 << 12 {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, 9), 1)
	}
	if _, err := read(b); err == nil || !strings.Contains(err.Error(), "nested") {
		t.Errorf("arrays in arrays: %v", err)
	}
}

// FuzzRead: no input makes Read panic, and accepted tensors are inside the file, aligned and disjoint.
func FuzzRead(f *testing.F) {
	f.Add(small())
	f.Add(gguftest.Write([]gguftest.Key{{Name: "general.alignment", Value: uint32(64)}}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := read(b)
		if err != nil {
			return
		}
		end := h.Header
		for _, tensor := range h.Tensors {
			if tensor.Offset < end || tensor.Size < 0 || tensor.Offset+tensor.Size > int64(len(b)) {
				t.Fatalf("tensor %+v behind byte %d of %d", tensor, end, len(b))
			}
			end = tensor.Offset + tensor.Size
		}
	})
}
