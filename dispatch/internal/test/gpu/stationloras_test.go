package gpu_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// TestAdaptersOfStationsComeAndGo loads and evicts adapters on two backends of the CPU in place of GPUs.
func TestAdaptersOfStationsComeAndGo(t *testing.T) { adaptersComeAndGo(t, withTwoGPUs) }

// adaptersComeAndGo holds law 4 for adapters that leave GPUs for others and come back, also while another goroutine removes
// some, and for long prompts that stream. Each GPU has at most the memory for adapters of them.
func adaptersComeAndGo(t *testing.T, gpus func(dispatch.Options) dispatch.Options) {
	final := dispatchtest.AdapterDir(t)
	dirs := map[string]string{"a": final, "b": filepath.Join(filepath.Dir(final), "init"), "c": final, "d": final}
	ids := [][]int32{{5, 6, 7, 8, 9, 10}, {11, 3, 2}}
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	// GPUs are opened for these options, so gpus gets all of them.
	exact := dispatch.Options{Threads: 1, Variant: testenv.Variant(), KVTokens: 4096, Precision: dispatch.PrecisionHigh}
	model := func(devices devicemap.Map, o dispatch.Options) *dispatch.Model {
		m, err := dispatch.New(skeleton, checkpoint, devices, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	var fixed []dispatch.Adapter
	for name, dir := range dirs {
		fixed = append(fixed, dispatch.Adapter{Name: name, Dir: dir})
	}
	o := exact
	o.Adapters = fixed
	host := model(dispatchtest.FiveMaps(skeleton)["cpu"], o)
	want := map[string][][]float32{"": dispatchtest.AdaptedLogits(t, host, ids, "")}
	for name := range dirs {
		want[name] = dispatchtest.AdaptedLogits(t, host, ids, name)
	}
	budget := dispatchtest.AdapterMemory(t, final)*2 - 1 // two of them: activations count once
	o = exact
	o.AdapterMemory, o.StreamPrompts = budget, 4
	for _, name := range []string{"all on a GPU", "between two GPUs", "disk between"} {
		m := model(stationMaps(skeleton)[name], gpus(o))
		known := func(name string) {
			if err := m.AddAdapter(dispatch.Adapter{Name: name, Dir: dirs[name]}); err != nil {
				t.Fatal(err)
			}
		}
		for name := range dirs {
			known(name)
		}
		dispatchtest.SameLogits(t, name, dispatchtest.AdaptedLogits(t, m, ids, ""), want[""]) // takes what the base takes
		before := m.DeviceUse()
		for range 2 {
			for _, adapter := range []string{"a", "b", "", "c"} {
				dispatchtest.SameLogits(t, name+" with "+adapter, dispatchtest.AdaptedLogits(t, m, ids, adapter), want[adapter])
				withinBudget(t, m, before, budget)
			}
			whileAnotherIsRemoved(t, m, ids, want["a"])
			known("d")
		}
		for name := range dirs {
			if err := m.RemoveAdapter(name); err != nil {
				t.Fatal(err)
			}
		}
		dispatchtest.SameLogits(t, name+" without adapters", dispatchtest.AdaptedLogits(t, m, ids, ""), want[""])
		if dispatchtest.StreamsPrompts(m) != (name == "disk between") {
			t.Errorf("%s: prompts stream: %v", name, dispatchtest.StreamsPrompts(m))
		}
	}
}

// whileAnotherIsRemoved compares results of adapter a while another goroutine removes d, which is in memory.
func whileAnotherIsRemoved(t *testing.T, m *dispatch.Model, ids [][]int32, want [][]float32) {
	t.Helper()
	dispatchtest.AdaptedLogits(t, m, ids, "d")
	var group sync.WaitGroup
	group.Go(func() {
		if err := m.RemoveAdapter("d"); err != nil {
			t.Error(err)
		}
	})
	dispatchtest.SameLogits(t, "while d leaves", dispatchtest.AdaptedLogits(t, m, ids, "a"), want)
	group.Wait()
}

// withinBudget: adapters take at most so many bytes of each GPU in addition to those in use before.
func withinBudget(t *testing.T, m *dispatch.Model, before []dispatch.DeviceUse, budget int64) {
	t.Helper()
	for i, use := range m.DeviceUse() {
		if use.Device != devicemap.CPU && use.Bytes > before[i].Bytes+budget {
			t.Errorf("adapters take %d bytes of GPU %s, want at most %d", use.Bytes-before[i].Bytes, use.Device, budget)
		}
	}
}

// full is a device whose memory is in use by another process while it is set.
type full struct {
	*cpu.Backend
	full bool
}

func (f *full) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	if f.full {
		return tensor.Tensor{}, dispatchtest.ErrGPUFull
	}
	return f.Backend.New(dtype, dims...)
}

// TestAGPUWithoutRoomForAnAdapter: the error names the GPU, nothing stays of the adapter, and it comes when there is room.
func TestAGPUWithoutRoomForAnAdapter(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	device, ids := new(full), [][]int32{{5, 6, 7}}
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1, AdapterMemory: dispatchtest.AdapterMemory(t, dispatchtest.AdapterDir(t))}, 1, func(int, backend.Backend) (b backend.Backend, err error) {
		device.Backend, err = cpu.New(cpu.Options{Threads: 1})
		return device, err
	}, nil)
	m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["all on a GPU"], o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.AddAdapter(dispatch.Adapter{Name: "a", Dir: dispatchtest.AdapterDir(t)}); err != nil {
		t.Fatal(err)
	}
	plain, held := dispatchtest.AdaptedLogits(t, m, ids, ""), dispatchtest.Sum(m.Status().Held)
	device.full = true
	for range 2 {
		var failed *dispatch.DeviceError
		if _, err := m.NewAdaptedSequence("a"); !errors.As(err, &failed) || failed.Lost || !strings.Contains(err.Error(), "--max-memory 0=SIZE") {
			t.Errorf("error %v, want one of GPU 0", err)
		}
	}
	if n := dispatchtest.Sum(m.Status().Held); n != held {
		t.Errorf("the host holds %d bytes more", n-held)
	}
	dispatchtest.SameLogits(t, "the base meanwhile", dispatchtest.AdaptedLogits(t, m, ids, ""), plain)
	device.full = false
	if slices.Equal(dispatchtest.AdaptedLogits(t, m, ids, "a")[0], plain[0]) {
		t.Error("the adapter adds nothing")
	}
}
