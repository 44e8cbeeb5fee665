package dispatch_test

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/testenv"
)

// TestAdaptersOfStationsComeAndGo runs them on two backends of the CPU in place of GPUs.
func TestAdaptersOfStationsComeAndGo(t *testing.T) { adaptersComeAndGo(t, withTwoGPUs) }

// adaptersComeAndGo holds law 4 for adapters that leave GPUs for others and come back, also while another goroutine removes
// some, and for long prompts that stream. Each GPU has at most the memory for adapters of them.
func adaptersComeAndGo(t *testing.T, gpus func(dispatch.Options) dispatch.Options) {
	final := adapterDir(t)
	dirs := map[string]string{"a": final, "b": filepath.Join(filepath.Dir(final), "init"), "c": final, "d": final}
	ids := [][]int32{{5, 6, 7, 8, 9, 10}, {11, 3, 2}}
	skeleton, checkpoint := base(t, ownBase(t))
	model := func(devices devicemap.Map, o dispatch.Options) *dispatch.Model {
		o.Threads, o.Variant, o.KVTokens, o.Precision = 1, testenv.Variant(), 4096, dispatch.PrecisionHigh
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
	host := model(maps(skeleton)["cpu"], dispatch.Options{Adapters: fixed})
	want := map[string][][]float32{"": adapted(t, host, ids, "")}
	for name := range dirs {
		want[name] = adapted(t, host, ids, name)
	}
	budget := adapterMemory(t, final)*2 - 1 // two of them: activations count once
	for _, name := range []string{"all on a GPU", "between two GPUs", "disk between"} {
		m := model(stationMaps(skeleton)[name], gpus(dispatch.Options{AdapterMemory: budget, StreamPrompts: 4}))
		known := func(name string) {
			if err := m.AddAdapter(dispatch.Adapter{Name: name, Dir: dirs[name]}); err != nil {
				t.Fatal(err)
			}
		}
		for name := range dirs {
			known(name)
		}
		sameLogits(t, name, adapted(t, m, ids, ""), want[""]) // takes what the base takes
		before := m.DeviceUse()
		for range 2 {
			for _, adapter := range []string{"a", "b", "", "c"} {
				sameLogits(t, name+" with "+adapter, adapted(t, m, ids, adapter), want[adapter])
				withinBudget(t, m, before, budget)
			}
			whileLeaves(t, m, ids, want["a"])
			known("d")
		}
		for name := range dirs {
			if err := m.RemoveAdapter(name); err != nil {
				t.Fatal(err)
			}
		}
		sameLogits(t, name+" without adapters", adapted(t, m, ids, ""), want[""])
		if m.StreamsPrompts() != (name == "disk between") {
			t.Errorf("%s: prompts stream: %v", name, m.StreamsPrompts())
		}
	}
}

// whileLeaves compares results of adapter a while another goroutine removes d, which is in memory.
func whileLeaves(t *testing.T, m *dispatch.Model, ids [][]int32, want [][]float32) {
	t.Helper()
	adapted(t, m, ids, "d")
	var group sync.WaitGroup
	group.Go(func() {
		if err := m.RemoveAdapter("d"); err != nil {
			t.Error(err)
		}
	})
	sameLogits(t, "while d leaves", adapted(t, m, ids, "a"), want)
	group.Wait()
}

// withinBudget: adapters take at most so many bytes of each GPU beside what was in use before.
func withinBudget(t *testing.T, m *dispatch.Model, before []dispatch.DeviceUse, budget int64) {
	t.Helper()
	for i, use := range m.DeviceUse() {
		if use.Device != devicemap.CPU && use.Bytes > before[i].Bytes+budget {
			t.Errorf("adapters take %d bytes of GPU %s, want at most %d", use.Bytes-before[i].Bytes, use.Device, budget)
		}
	}
}
