//go:build cuda

package cuda

import (
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestUseCountsMemoryAndCopies: allocations are counted until they are freed, and copies by their
// direction.
func TestUseCountsMemoryAndCopies(t *testing.T) {
	need(t)
	b := open(t, kernels.Names()[0])
	before := b.Use()
	const n = bounceBytes/4 + 3 // more than one part of a copy
	device, err := b.New(meta.Float32, 1, n)
	if err != nil {
		t.Fatal(err)
	}
	host := tensor.Floats(make([]float32, n), 1, n)
	if err := b.Copy(device, host); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.Copy(host, device); err != nil {
			t.Fatal(err)
		}
	}
	u := b.Use()
	if u.Bytes-before.Bytes != 4*n || u.ToDevice-before.ToDevice != 4*n || u.ToHost-before.ToHost != 8*n || u.CopySeconds <= before.CopySeconds {
		t.Errorf("after copies of %d bytes: %+v, before %+v", 4*n, u, before)
	}
	b.Free(device)
	if got := b.Use().Bytes; got != before.Bytes {
		t.Errorf("%d bytes are held after Free, %d before New", got, before.Bytes)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got := b.Use().Bytes; got != 0 {
		t.Errorf("%d bytes are held after Close", got)
	}
}
