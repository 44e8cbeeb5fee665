package gpu_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// stacks returns the paths of the stacks of experts of a model, and how many experts each has.
func stacks(t *testing.T, skeleton *meta.Model) (paths []string, experts []int) {
	t.Helper()
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range program.Units {
		for _, n := range u.Experts {
			paths, experts = append(paths, n.Path), append(experts, n.Module.Params[0].Resolve().Shape[0])
		}
	}
	return paths, experts
}

// dividedMaps are placements of experts on other devices than their blocks, by a description.
func dividedMaps(t *testing.T, skeleton *meta.Model) map[string]devicemap.Map {
	t.Helper()
	paths, experts := stacks(t, skeleton)
	inTurn := func(rest devicemap.Device, devices ...devicemap.Device) devicemap.Map {
		m := devicemap.NewMap(devicemap.Entry{Device: rest})
		for i, path := range paths {
			for e := range experts[i] {
				m.Set(fmt.Sprintf("%s.%d", path, e), devices[(i+e)%len(devices)])
			}
		}
		return m
	}
	stacked := func(rest devicemap.Device, devices ...devicemap.Device) devicemap.Map {
		m := devicemap.NewMap(devicemap.Entry{Device: rest})
		for i, path := range paths {
			m.Set(path, devices[i%len(devices)])
		}
		return m
	}
	return map[string]devicemap.Map{
		"experts in turn":              inTurn("0", "0", "1", "cpu", "disk"),
		"experts on the CPU":           stacked("0", "cpu"),
		"stacks in turn":               stacked("1", "disk", "0", "cpu"),
		"blocks on the CPU":            inTurn("cpu", "1", "cpu", "0", "disk"),
		"experts on GPUs, disk behind": stacked("disk", "1", "0"),
	}
}

// TestDividedExpertsNeverChangeTheAnswer holds law 4 for golden models whose experts are on two devices, the CPU and the
// disk, and not where their blocks are: the logits are those of the CPU, bit by bit, also while experts stream.
func TestDividedExpertsNeverChangeTheAnswer(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		skeleton, _ := dispatchtest.OpenCheckpoint(t, g.Dir())
		if paths, _ := stacks(t, skeleton); len(paths) == 0 {
			continue
		}
		t.Run(g.Name(), func(t *testing.T) { dividedKeepBits(t, g, withTwoGPUs) })
		cases++
	}
	golden.Count(t, "infer/models (divided experts)", cases)
	for _, name := range kindsOfMixtures {
		t.Run(name, func(t *testing.T) { dividedKeepBits(t, golden.OwnModel(t, name), withTwoGPUs) })
	}
}

// kindsOfMixtures have experts beside an MLP, behind a map to fewer dimensions, without gates, of scaled operands, beside the
// attention, with a gate of the shared expert, beside layers with a state, and beside experts without weights in a block of four branches.
var kindsOfMixtures = []string{"family-gemma4-experts-1", "family-nemotron-h-moe-2", "family-llama4-text-1", "family-cohere2-moe-1", "family-qwen2-moe-1", "family-qwen3-next-1", "small-gptoss-mxfp4", "family-longcat-flash-1"}

// dividedKeepBits compares the logits of a golden model with divided experts on GPUs, which gpus adds to options, with
// those of the CPU. Short tests try the maps that use all devices, streamed.
func dividedKeepBits(t *testing.T, g *golden.Model, gpus func(dispatch.Options) dispatch.Options) {
	a := answerOfHost(t, g, meta.QuantNone)
	o := gpus(a.o)
	maps, streams := dividedMaps(t, a.skeleton), []int{0, 6}
	if testing.Short() {
		maps = map[string]devicemap.Map{"experts in turn": maps["experts in turn"], "stacks in turn": maps["stacks in turn"]}
		streams = []int{6}
	}
	for name, devices := range maps {
		for _, o.StreamPrompts = range streams {
			a.isKept(t, fmt.Sprintf("%s, prompts from %d tokens on stream", name, o.StreamPrompts), devices, o)
		}
	}
}

// TestDividedExpertsAreInMemoryOnce: a GPU has memory for the experts that the map places there and no others, and the host
// the rest.
func TestDividedExpertsAreInMemoryOnce(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.MixtureFolder(t, 77))
	paths, experts := stacks(t, skeleton)
	devices := devicemap.NewMap(devicemap.Entry{Device: "0"})
	var stack, all int64
	for _, p := range skeleton.Root.Find(paths[0]).Params {
		stack += p.Bytes()
	}
	for _, p := range skeleton.Root.AllParams() {
		if p.SameAs == nil {
			all += p.Bytes()
		}
	}
	devices.Set(paths[0], "cpu")
	devices.Set(fmt.Sprintf("%s[0:1]", paths[1]), "1")
	devices.Set(fmt.Sprintf("%s[1:2]", paths[1]), "cpu")
	m, err := dispatch.New(skeleton, checkpoint, devices, withTwoGPUs(dispatch.Options{Threads: 1}))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, prompt := dispatchtest.LawIDs()
	dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	one := stack / int64(experts[0])
	want := map[devicemap.Device]int64{"0": all - stack - 2*one, "1": one, devicemap.CPU: stack + one}
	for _, u := range m.DeviceUse() {
		if n, ok := want[u.Device]; ok && u.Device != devicemap.CPU && dispatchtest.StationBytes(m, u.Device) != n {
			t.Errorf("device %s has %d bytes of weights, want %d", u.Device, dispatchtest.StationBytes(m, u.Device), n)
		}
	}
	if n := m.Status().TierBytes[devicemap.CPU]; n != want[devicemap.CPU] {
		t.Errorf("the host has %d bytes of weights, want %d", n, want[devicemap.CPU])
	}
	batch := &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: m.NewSequence(), Tokens: []int32{5}, PromptLen: 1, Logits: dispatch.LogitsLast}}}
	if n := testing.AllocsPerRun(20, func() {
		if _, err := m.Forward(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per token", n)
	}
}
