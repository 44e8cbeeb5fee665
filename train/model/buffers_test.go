package model

import (
	"bytes"
	"testing"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestBuffersOfIntegersAreExportedAsTheyAreStored: the factors of hashes do not fit float32, in which buffers were kept.
func TestBuffersOfIntegersAreExportedAsTheyAreStored(t *testing.T) {
	dir := ownModel(t, "qwen4-exp")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ck, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	tensors, err := m.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	integers := 0
	for n := range tensors {
		if n.DType != meta.Int64 {
			continue
		}
		integers++
		got, err := n.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		stored, ok := ck.Lookup(n.Name)
		if !ok {
			t.Fatalf("%s is not stored", n.Name)
		}
		want, err := stored.Bytes()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %v, want %v (%v)", n.Name, got, want, err)
		}
	}
	if integers != 3 {
		t.Errorf("%d buffers of integers, want 3", integers)
	}
	for path := range m.Buffers() {
		t.Errorf("Buffers yields %s as floats", path)
	}
}
