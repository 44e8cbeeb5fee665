package gpu_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// failsAt is a device of which one allocation fails, and with a loss all later ones.
type failsAt struct {
	backend.Backend
	at        int // how many succeed before
	err, lost error
}

func (f *failsAt) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	if f.at--; f.at == -1 || f.at < 0 && f.lost != nil {
		return tensor.Tensor{}, f.err
	}
	return f.Backend.New(dtype, dims...)
}

func (f *failsAt) Lost() error {
	if f.at < 0 {
		return f.lost
	}
	return nil
}

// TestALostGPUWasCalledTooLittleMemory: whichever allocation fails while a model is opened, the error names the GPU, and
// the limit to lower only if the GPU has too little memory.
func TestALostGPUWasCalledTooLittleMemory(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	lost := errors.New("the GPU was lost")
	seen := map[string]bool{}
	opened := func(device *failsAt) (told int, err error) {
		o := dispatch.Options{Threads: 1, StreamPrompts: 1, DeviceLost: func(*dispatch.DeviceError) { told++ }}
		m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["disk between"], dispatchtest.OnGPUs(o, 1, func(int, backend.Backend) (b backend.Backend, err error) {
			device.Backend, err = cpu.New(cpu.Options{Threads: 1})
			return device, err
		}, nil))
		if err == nil {
			m.Close()
		}
		return told, err
	}
	for n := 0; ; n++ {
		_, err := opened(&failsAt{at: n, err: dispatchtest.ErrGPUFull})
		if err == nil {
			break
		}
		text := err.Error()
		if !errors.Is(err, dispatchtest.ErrGPUFull) || !strings.HasPrefix(text, "dispatch: GPU 0 has too little memory for ") || !strings.Contains(text, "1.00 GiB of 1.00 GiB are free now") || !strings.Contains(text, "lower its limit with --max-memory 0=672MiB, place fewer blocks on it") {
			t.Errorf("allocation %d: error %v", n, err)
		}
		for _, what := range []string{"weights", "KV cache", "activations", "blocks that stream"} {
			seen[what] = seen[what] || strings.Contains(text[:strings.Index(text, "(")], what)
		}
		told, err := opened(&failsAt{at: n, err: errors.New("cannot allocate"), lost: lost})
		var failed *dispatch.DeviceError
		if !errors.As(err, &failed) || !failed.Lost || failed.Device != "0" || told != 1 || strings.Contains(err.Error(), "--max-memory") || !strings.HasPrefix(err.Error(), "dispatch: GPU 0: memory for ") {
			t.Errorf("allocation %d: error %v of a lost GPU, told %d times", n, err, told)
		}
	}
	if len(seen) != 4 || !seen["weights"] || !seen["KV cache"] || !seen["activations"] || !seen["blocks that stream"] {
		t.Errorf("allocations of %v failed", seen)
	}
}

// TestAnAdapterOfALostGPUWasCalledTooLittleMemory: only a GPU that is full is an error with a limit to lower.
func TestAnAdapterOfALostGPUWasCalledTooLittleMemory(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	device := &failsAt{at: 1 << 30, err: errors.New("cannot allocate"), lost: errors.New("the GPU was lost")}
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1, AdapterMemory: dispatchtest.AdapterMemory(t, dispatchtest.AdapterDir(t))}, 1, func(int, backend.Backend) (b backend.Backend, err error) {
		device.Backend, err = cpu.New(cpu.Options{Threads: 1})
		return device, err
	}, nil)
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: "0"}), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.AddAdapter(dispatch.Adapter{Name: "a", Dir: dispatchtest.AdapterDir(t)}); err != nil {
		t.Fatal(err)
	}
	device.at = 0
	var failed *dispatch.DeviceError
	if _, err := m.NewAdaptedSequence("a"); !errors.As(err, &failed) || !failed.Lost || strings.Contains(err.Error(), "--max-memory") {
		t.Errorf("error %v", err)
	}
}

// TestAPlanSaidNothingOfAFullGPU: a GPU that cannot be used, or has nothing free, vanished from plans; a map by hand named
// its limit of 0 bytes alone.
func TestAPlanSaidNothingOfAFullGPU(t *testing.T) {
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1, MaxMemory: hostMemory(1 << 30)}, 1, nil, nil)
	onGPU := dispatchtest.WithUnusedGPU(o, "OutOfMemory")
	plan, _, err := dispatch.Plan(skeleton, onGPU)
	if want := "GPU 0 is not used: OutOfMemory"; err != nil || !slices.Contains(plan.Warnings, want) {
		t.Errorf("the plan warns %q, want %q: %v", plan.Warnings, want, err)
	}
	byHand := devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: "0"})}
	onGPU.DeviceMap = byHand
	if _, _, err = dispatch.Plan(skeleton, onGPU); err == nil || !strings.HasSuffix(err.Error(), "; GPU 0 is not used: OutOfMemory") {
		t.Errorf("error %v", err)
	}
	full := dispatchtest.WithGPUMemory(o, 100<<20)
	full.DeviceMap = byHand
	want := "; 100 MiB of GPU 0's 1.00 GiB are free now, of which plans leave 5 % and 300 MiB to the driver: set a limit with --max-memory 0=SIZE, or place fewer blocks there"
	if _, _, err = dispatch.Plan(skeleton, full); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	full.MaxMemory = append(hostMemory(1<<30), devicemap.DeviceMemory{Device: "0", Bytes: 1 << 10})
	if _, _, err = dispatch.Plan(skeleton, full); err == nil || strings.Contains(err.Error(), "free now") {
		t.Errorf("error %v of a limit that the user set", err)
	}
}
