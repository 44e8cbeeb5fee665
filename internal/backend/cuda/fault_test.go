//go:build cuda

package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

func init() { testenv.ShowGPUs() }

// underFaults runs the calling test again in a process whose simulated driver has the given
// settings. It reports whether this is that process.
func underFaults(t *testing.T, settings ...string) bool {
	t.Helper()
	if !testenv.IsProcess(t) {
		need(t)
	}
	return testenv.UnderDriver(t, settings...)
}

func wantReason(t *testing.T, want string) {
	t.Helper()
	devices, reason := List()
	if len(devices) > 0 {
		reason = devices[0].Reason
	}
	if !strings.Contains(reason, want) {
		t.Errorf("got %+v and the reason %q, want %q", devices, reason, want)
	}
	if _, err := New(0, Options{Lanes: 16}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New: %v, want %q", err, want)
	}
}

func TestADriverThatCannotStartSaysWhy(t *testing.T) {
	if underFaults(t, "CUDASIM_INIT=100") {
		wantReason(t, "the driver cannot start: CUDA_ERROR_NO_DEVICE (CUDA error 100)")
	}
}

// TestTheDriverStartsWhenGPUsAreLookedFor: the driver used to start with the program, before tests
// could hide GPUs from it.
func TestTheDriverStartsWhenGPUsAreLookedFor(t *testing.T) {
	if underFaults(t) {
		t.Setenv("CUDASIM_INIT", "100")
		wantReason(t, "the driver cannot start: CUDA_ERROR_NO_DEVICE")
	}
}

func TestADriverWithoutDevicesSaysSo(t *testing.T) {
	if underFaults(t, "CUDASIM_DEVICES=0") {
		wantReason(t, "driver 12.9 found no device")
	}
}

func TestAnOldDeviceIsNotUsed(t *testing.T) {
	if underFaults(t, "CUDASIM_CAPABILITY=75") {
		wantReason(t, "compute capability 7.5, kernels need 8.0")
	}
}

// TestADeviceWithoutFreeMemoryIsNotUsed: another process uses all memory, so that no context can be
// created.
func TestADeviceWithoutFreeMemoryIsNotUsed(t *testing.T) {
	if underFaults(t, "CUDASIM_MEMORY=0") {
		wantReason(t, "OutOfMemory")
	}
}

// TestOutOfMemoryLosesNothing: an allocation that does not fit is an error with its size, and the
// backend stays usable.
func TestOutOfMemoryLosesNothing(t *testing.T) {
	if !underFaults(t, "CUDASIM_MEMORY=20000000") {
		return
	}
	b := open(t, kernels.Names()[0])
	defer func() { _ = b.Close() }()
	if _, err := b.New(meta.Float32, 1<<20, 16); err == nil || !strings.Contains(err.Error(), "allocate 67108864 bytes") {
		t.Errorf("error %v", err)
	}
	x, err := b.New(meta.Float32, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	b.Add(x, x, 1)
	if err := errors.Join(b.Sync(), b.Lost()); err != nil {
		t.Error(err)
	}
}

// TestALostDeviceEndsWithItsReason: all later operations fail, and Lost returns the cause.
func TestALostDeviceEndsWithItsReason(t *testing.T) {
	if !underFaults(t, "CUDASIM_FAIL=launch:1") {
		return
	}
	b := open(t, kernels.Names()[0])
	x, err := b.New(meta.Float32, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	b.Add(x, x, 1)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	b.Add(x, x, 1)
	for range 2 {
		if err := b.Sync(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_LAUNCH_FAILED") {
			t.Errorf("error %v", err)
		}
	}
	if err := b.Lost(); err == nil || !strings.Contains(err.Error(), "the GPU was lost") {
		t.Errorf("lost: %v", err)
	}
	if b.Close() == nil {
		t.Error("the loss is not an error of Close")
	}
}

// TestOperandsOutsideTheirMemoryAreRefused: no kernel receives an operand that is not within one
// allocation.
func TestOperandsOutsideTheirMemoryAreRefused(t *testing.T) {
	need(t)
	b := open(t, kernels.Names()[0])
	defer func() { _ = b.Close() }()
	x, err := b.New(meta.Float32, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	longer, freed, host := x, x, tensor.Floats(make([]float32, 32), 4, 8)
	longer.Dims[0] = 5
	freed.Address += 1 << 30
	for name, bad := range map[string]tensor.Tensor{"too long": longer, "freed": freed, "of the host": host} {
		b.Add(bad, bad, 1)
		if b.Sync() == nil {
			t.Errorf("an operand %s was taken", name)
		}
		b.Linear(x, x, backend.Matrix{Tensor: bad}, tensor.Tensor{})
		if b.Sync() == nil {
			t.Errorf("a weight %s was taken", name)
		}
	}
}

// TestALaunchAllocatesNothing: law 5.
func TestALaunchAllocatesNothing(t *testing.T) {
	need(t)
	b := open(t, kernels.Names()[0])
	defer func() { _ = b.Close() }()
	x, err := b.New(meta.Float32, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.New(meta.BFloat16, 8, 8)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.New(meta.Float32, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	rows := []int32{1, 2, 2, 3}
	if n := testing.AllocsPerRun(20, func() {
		b.Norm(x, x, tensor.Tensor{}, tensor.Tensor{}, meta.NormSpec{Dim: 8})
		b.Linear(y, x, backend.Matrix{Tensor: w}, tensor.Tensor{})
		b.Gather(x, y, rows)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
