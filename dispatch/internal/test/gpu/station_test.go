package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// withTwoGPUs is o for a machine whose GPUs 0 and 1 are CPU backends with separate memory.
func withTwoGPUs(o dispatch.Options) dispatch.Options {
	return dispatchtest.OnGPUs(o, 2, func(int, backend.Backend) (backend.Backend, error) {
		return cpu.New(cpu.Options{Threads: 1, Variant: o.Variant})
	}, nil)
}

// stationMaps are placements over two GPUs, the CPU and the disk, by a description.
func stationMaps(skeleton *meta.Model) map[string]devicemap.Map {
	spec := skeleton.Root.Spec.(*meta.CausalLMSpec)
	by := func(rest devicemap.Device, blocks ...devicemap.Device) devicemap.Map {
		m := devicemap.NewMap(devicemap.Entry{Device: rest})
		for i, layer := range skeleton.Root.Find(spec.Layers).Children {
			m.Set(spec.Layers+"."+layer.Name, blocks[i%len(blocks)])
		}
		return m
	}
	return map[string]devicemap.Map{
		"all on a GPU":     devicemap.NewMap(devicemap.Entry{Device: "0"}),
		"GPUs, CPU, disk":  by("cpu", "0", "cpu", "1", "disk"),
		"disk between":     by("disk", "disk", "0"),
		"head on a GPU":    by("1", "cpu", "disk"),
		"between two GPUs": by("0", "1", "0"),
	}
}

// triedMaps are those of stationMaps that a test tries as they are; short tests try one.
func triedMaps(all map[string]devicemap.Map) map[string]devicemap.Map {
	if name := "GPUs, CPU, disk"; testing.Short() {
		return map[string]devicemap.Map{name: all[name]}
	}
	return maps.Clone(all)
}

// TestStationsReadNumbersOfModels: activations with parameters and the scales of experts are read from a device's memory,
// where what belongs to them is followed by other weights.
func TestStationsReadNumbersOfModels(t *testing.T) {
	for _, name := range []string{"family-apertus-2", "family-gemma4-experts-1"} {
		t.Run(name, func(t *testing.T) { stationsKeepBits(t, golden.OwnModel(t, name), withTwoGPUs) })
	}
}

// TestStationsNeverChangeTheAnswer holds law 4 for golden models over maps of two devices, the CPU and the
// disk: whole, in chunks, drafted and in a batch, the logits are those of the CPU, bit by bit.
func TestStationsNeverChangeTheAnswer(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) { stationsKeepBits(t, g, withTwoGPUs) })
		cases++
	}
	golden.Count(t, "infer/models (stations)", cases)
}

// stationsKeepBits compares the logits of a golden model over maps with GPUs, which gpus adds to options,
// with those of the CPU. Short tests try one map as it is and one streamed.
func stationsKeepBits(t *testing.T, g *golden.Model, gpus func(dispatch.Options) dispatch.Options) {
	a := answerOfHost(t, g, meta.QuantNone)
	o := gpus(a.o)
	all := stationMaps(a.skeleton)
	streamed := map[string]int{"GPUs, CPU, disk": 1, "disk between": a.prompt}
	if testing.Short() {
		delete(streamed, "GPUs, CPU, disk")
	}
	for name, devices := range triedMaps(all) {
		a.isKept(t, name, devices, o)
	}
	// Blocks of the CPU and the disk stream to GPUs for long prompts.
	for name, from := range streamed {
		o.StreamPrompts = from
		a.isKept(t, name+", streamed", all[name], o)
	}
}

// TestABlockWithoutKernelsLeavesOthersToTheGPU: blocks that no GPU can run stay on the CPU, and the plan says so; one of
// them kept the whole model there.
func TestABlockWithoutKernelsLeavesOthersToTheGPU(t *testing.T) {
	g := golden.OwnModel(t, "family-jamba-1")
	skeleton, _ := dispatchtest.OpenCheckpoint(t, g.Dir())
	gpus := func(o dispatch.Options) dispatch.Options {
		return dispatchtest.Refusing(withTwoGPUs(o), map[string]string{"model.layers.0": "selective scans", "model.layers.2": "selective scans"})
	}
	plan, _, err := dispatch.Plan(skeleton, gpus(dispatch.Options{Threads: 1, Context: 128, MaxMemory: hostMemory(1 << 30)}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]devicemap.Device{"model.layers.0": devicemap.CPU, "model.layers.1": "0", "model.layers.2": devicemap.CPU, "lm_head": "0"} {
		if d, _ := plan.Map.Device(path); d != want {
			t.Errorf("%s is on %q, want %q", path, d, want)
		}
	}
	const said = "model.layers.0 and 1 more unit stay on the cpu: the GPU has no kernels for selective scans"
	if !slices.Contains(plan.Warnings, said) {
		t.Errorf("the plan warns %q, want %q", plan.Warnings, said)
	}
	stationsKeepBits(t, g, gpus)
}

// TestWeightsOfAGPUAreNotOnTheHost: the host holds and counts only what its own units read.
func TestWeightsOfAGPUAreNotOnTheHost(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["all on a GPU"], withTwoGPUs(dispatch.Options{Threads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, prompt := dispatchtest.LawIDs()
	dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	for d, n := range m.Status().TierBytes {
		if n != 0 {
			t.Errorf("%d bytes of weights are counted on %s", n, d)
		}
	}
	if held := m.Status().Held; held["weights"] != 0 || held["kv"] != 0 {
		t.Errorf("the host holds %v", held)
	}
}

// TestHooksSeeHiddenStatesOfAGPU: a hook reads and changes states wherever a unit runs.
func TestHooksSeeHiddenStatesOfAGPU(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	ids, prompt := dispatchtest.LawIDs()
	var results [2][][]float32
	for i, name := range []string{"between two GPUs", "cpu"} {
		devices := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
		if name != "cpu" {
			devices = stationMaps(skeleton)[name]
		}
		m, err := dispatch.New(skeleton, checkpoint, devices, withTwoGPUs(dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh}))
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		if _, err := m.AddHook(dispatch.Hook{Post: func(c *dispatch.ModuleCall) error {
			calls++
			for k := range c.Hidden {
				c.Hidden[k] *= 1.5
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		results[i] = dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
		if calls == 0 {
			t.Error("the hook was not called")
		}
		m.Close()
	}
	dispatchtest.SameLogits(t, "hooks on GPUs", results[0], results[1])
}

// TestAGPUThatCannotBeOpenedNamesTheMap: the error says which GPU the map has, and why it is not there.
func TestAGPUThatCannotBeOpenedNamesTheMap(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1}, 1, func(number int, _ backend.Backend) (backend.Backend, error) {
		return nil, fmt.Errorf("there is no GPU %d", number)
	}, nil)
	_, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: "3"}), o)
	if err == nil || !strings.Contains(err.Error(), "the device map has GPU 3: there is no GPU 3") {
		t.Errorf("error %v", err)
	}
}

// failing is a device that fails for good when its units run.
type failing struct {
	backend.Backend
	lost error
}

func (f *failing) Sync() error { return f.lost }

func (f *failing) Lost() error { return f.lost }

// TestALostGPUIsAnErrorOfThePass: the error names the GPU and says that it is lost.
func TestALostGPUIsAnErrorOfThePass(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	device := &failing{}
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1}, 1, func(_ int, host backend.Backend) (backend.Backend, error) {
		b, err := cpu.New(cpu.Options{Threads: 1})
		device.Backend = b
		return device, err
	}, nil)
	told := 0
	o.DeviceLost = func(e *dispatch.DeviceError) { told++ }
	m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["disk between"], o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, prompt := dispatchtest.LawIDs()
	dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	device.lost = errors.New("the GPU was lost")
	s := m.NewSequence()
	defer s.Free()
	for range 2 {
		_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[:prompt], Logits: dispatch.LogitsLast}}})
		var failed *dispatch.DeviceError
		if !errors.As(err, &failed) || !failed.Lost || failed.Device != "0" || s.Len() != 0 || told != 1 {
			t.Errorf("error %v with %d tokens in the sequence, told %d times", err, s.Len(), told)
		}
	}
}

// TestDecodingAtStationsAllocatesNothing: law 5 holds where hidden states cross between devices.
func TestDecodingAtStationsAllocatesNothing(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	for _, name := range []string{"all on a GPU", "between two GPUs", "head on a GPU"} {
		m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)[name], withTwoGPUs(dispatch.Options{Threads: 1, StreamPrompts: 2}))
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSequence()
		batch := &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{5}, PromptLen: 1, Logits: dispatch.LogitsLast}}}
		if n := testing.AllocsPerRun(20, func() {
			if _, err := m.Forward(context.Background(), batch); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per token", name, n)
		}
		s.Free()
		m.Close()
	}
}
