package residency

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// savedTensors is a checkpoint of tensors of so many bytes, side by side in this order.
func savedTensors(t *testing.T, sizes ...int) (*loader.Checkpoint, []*loader.Tensor) {
	t.Helper()
	var tensors []loader.NamedTensor
	for i, n := range sizes {
		tensors = append(tensors, loader.NamedTensor{Name: string(rune('a' + i)), DType: meta.Uint8, Shape: []int{n},
			Bytes: func() ([]byte, error) { return bytes.Repeat([]byte{byte(i + 1)}, n), nil }})
	}
	dir := t.TempDir()
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	out := slices.SortedFunc(c.Tensors(), func(a, b *loader.Tensor) int { return compare(a.Offset, b.Offset) })
	return c, out
}

// TestPopulateReportsATruncatedFile: a truncated shard is an error, whether the system populates the mapping or Heft touches
// its pages.
func TestPopulateReportsATruncatedFile(t *testing.T) {
	_, all := savedTensors(t, 1<<20, 1<<20)
	var s Store
	g := &segment{pieces: []stored.Piece{{Ranges: []stored.Range{{Tensor: all[0], Size: all[0].Size}, {Tensor: all[1], Size: all[1].Size}}}}}
	if err := s.populate(t.Context(), g); err != nil {
		t.Fatalf("a whole file: %v", err)
	}
	if err := os.Truncate(filepath.Join(all[0].File.Path), all[1].Offset+4096); err != nil {
		t.Fatal(err)
	}
	if err := s.populate(t.Context(), g); err == nil {
		t.Error("a cut file gave no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.populate(ctx, g); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}
