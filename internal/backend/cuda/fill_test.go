//go:build cuda

package cuda

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestFillsNeverOverwriteWhatIsRead: operations read each of many values that pass through two
// slots of GPU memory and one host buffer, whichever queue is late.
func TestFillsNeverOverwriteWhatIsRead(t *testing.T) {
	need(t)
	if os.Getenv("HEFT_CUDA_CHILD") == "" && os.Getenv("CUDASIM_KERNELS") != "" {
		for _, late := range []string{"", "1", "kernels"} {
			underFaults(t, "CUDASIM_LATE="+late)
		}
		return
	}
	b := open(t, kernels.Names()[0])
	defer func() { _ = b.Close() }()
	const n, rounds = 3<<20 + 5, 12 // of floats, which are several chunks of the pinned ring
	memory := func(d meta.DType, dims ...int) tensor.Tensor {
		m, err := b.New(d, dims...)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	sum, ring := memory(meta.Float32, rounds, n/1000), memory(meta.Uint8, 2*4*n)
	var fences [2]backend.Fence
	host := make([]float32, n)
	for round := range rounds {
		for i := range host {
			host[i] = float32(round*n + i)
		}
		slot := round % 2
		bytes := unsafe.Slice((*byte)(unsafe.Pointer(&host[0])), 4*n)
		if err := b.Fill(ring.Slice(slot*4*n, (slot+1)*4*n), bytes, fences[slot]); err != nil {
			t.Fatal(err)
		}
		x := tensor.Tensor{DType: meta.Float32, Rank: 2, Address: ring.Address + uintptr(slot*4*n)}
		x.Dims[0], x.Dims[1] = 1000, n/1000
		b.Gather(sum.Slice(round, round+1), x, []int32{999})
		fences[slot] = b.Fence()
	}
	got := make([]float32, rounds*(n/1000))
	if err := errors.Join(b.Sync(), b.Copy(tensor.Floats(got, rounds, n/1000), sum)); err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		round, col := i/(n/1000), i%(n/1000)
		if want := float32(round*n + 999*(n/1000) + col); v != want {
			t.Fatalf("round %d, column %d: %v, want %v", round, col, v, want)
		}
	}
}

// TestAFillAndAFenceAllocateNothing: law 5, for streamed weights.
func TestAFillAndAFenceAllocateNothing(t *testing.T) {
	need(t)
	b := open(t, kernels.Names()[0])
	defer func() { _ = b.Close() }()
	x, err := b.New(meta.Uint8, 100)
	if err != nil {
		t.Fatal(err)
	}
	host := make([]byte, 100)
	var fence backend.Fence
	if n := testing.AllocsPerRun(3*marks, func() {
		if err := b.Fill(x, host, fence); err != nil {
			t.Fatal(err)
		}
		fence = b.Fence()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := b.Fill(x.Slice(1, 50), host, fence); err == nil {
		t.Error("a fill of 49 bytes with 100 is no error")
	}
}
