package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
)

// TestPlansPutWhatEachTokenReadsOnGPUs: of a mixture that is larger than a GPU, the GPU has the dense weights and the
// KV cache of all blocks first, and then experts, also some of a stack. Blocks stay whole where a crossing costs more than
// that saves.
func TestPlansPutWhatEachTokenReadsOnGPUs(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "moe-mxfp4-117b")
	o := dispatchtest.ServingOptions(64 * dispatchtest.GiB)
	o.StreamPrompts = dispatch.StreamChosen
	o = oneGPU(o, 24*dispatchtest.GiB)
	paths, _ := stacks(t, skeleton)
	blocks := func(plan *devicemap.Plan) (dense, experts int) {
		for _, path := range paths {
			if d, _ := plan.Map.Device(strings.TrimSuffix(path, ".mlp.experts") + ".self_attn"); d == "0" {
				dense++
			}
			for e := range 128 {
				if d, _ := plan.Map.Device(fmt.Sprintf("%s.%d", path, e)); d == "0" {
					experts++
				}
			}
		}
		return dense, experts
	}
	for name, o := range map[string]dispatch.Options{"measured": dispatchtest.WithGPUPace(o, 50e9, 1e12, 25e9, 100e12), "not measured": dispatchtest.WithGPUPace(o, 0, 0, 0, 0)} {
		plan, _ := dispatchtest.PlanShape(t, skeleton, o)
		dense, experts := blocks(&plan)
		if gpu := plan.Device("0"); dense != len(paths) || experts%128 == 0 || experts < 128 || plan.Device(devicemap.CPU).KVBytes != 0 || gpu.Used() > gpu.LimitBytes {
			t.Errorf("%s: the GPU has %d blocks and %d experts, %+v:\n%s", name, dense, experts, gpu, plan.Map)
		}
		if !strings.HasPrefix(plan.ExpertPlacement, "blocks that run on GPUs without all of their routed experts: 24; a token reads ") && name == "measured" {
			t.Error(plan.ExpertPlacement)
		}
	}
	plan, _ := dispatchtest.PlanShape(t, skeleton, dispatchtest.WithCrossing(dispatchtest.WithGPUPace(o, 50e9, 1e12, 25e9, 100e12), 0.1))
	if dense, experts := blocks(&plan); dense == len(paths) || experts != 128*dense || !strings.HasPrefix(plan.ExpertPlacement, "blocks stay whole: ") {
		t.Errorf("with slow crossings the GPU has %d blocks and %d experts: %s", dense, experts, plan.ExpertPlacement)
	}
}

// TestAMixtureBehindOneGPU: the plan of a mixture has the CPU's bits, also for prompts that stream, and the GPU has no more
// memory than planned.
func TestAMixtureBehindOneGPU(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids, prompt := dispatchtest.LawIDs()
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh}), ids, prompt, prompt)
	o := dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 256, MaxBatchTokens: 32, MaxSequences: 4, MaxMemory: hostMemory(64 << 20), StreamPrompts: prompt}
	paths, experts := stacks(t, skeleton)
	var stack int64
	for _, p := range skeleton.Root.Find(paths[0]).Params {
		stack += p.Bytes()
	}
	all, _, err := dispatch.Plan(skeleton, oneGPU(o, 64<<20))
	if err != nil {
		t.Fatal(err)
	}
	for missing := range 10 {
		gpu := &allocating{}
		less := int64(missing/2+1) * stack / 2
		if o.StreamPrompts = 0; missing%2 > 0 {
			o.StreamPrompts = prompt
		}
		o := dispatchtest.WithCrossing(dispatchtest.WithGPUPace(dispatchtest.WithGPUMemory(dispatchtest.OnGPUs(oneGPU(o, all.Device("0").Used()-less), 1, func(int, backend.Backend) (b backend.Backend, err error) {
			gpu.Backend, err = cpu.New(cpu.Options{Threads: 1})
			return gpu, err
		}, nil), (all.Device("0").Used()-less+300<<20)*20/19), 50e9, 1e12, 25e9, 100e12), 1e-12)
		plan, planned, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d of %d bytes less than all: %s, %d experts a stack\n%s", less, all.Device("0").Used(), plan.ExpertPlacement, experts[0], plan.Explain())
		if d := plan.Device("0"); gpu.bytes > d.Used() || d.Used() > d.LimitBytes || plan.ExpertPlacement == "" && o.StreamPrompts == 0 {
			t.Errorf("the GPU has %d bytes, planned are %+v: %q", gpu.bytes, d, plan.ExpertPlacement)
		}
		dispatchtest.SameLogits(t, "in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
		dispatchtest.SameLogits(t, "in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, ids, prompt, 4, 2), want)
		if (streamed(m) > 0) != (plan.StreamPrompts > 0) {
			t.Errorf("prompts of %d tokens stream, and %d bytes did", plan.StreamPrompts, streamed(m))
		}
		m.Close()
	}
}

// TestErrorsOfDividedExpertsNameTheDevice: a read that fails is the file's, not the GPU's, whose block needs the expert, and
// a GPU that is lost while it computes experts for another one is the one that the error names.
func TestErrorsOfDividedExpertsNameTheDevice(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.MixtureFolder(t, 77))
	ids, prompt := dispatchtest.LawIDs()
	devices := devicemap.NewMap(devicemap.Entry{Device: "0"})
	paths, _ := stacks(t, skeleton)
	devices.Set(paths[0], "disk")
	devices.Set(paths[1], "1")
	var failing atomic.Bool
	lost := &loseable{}
	for _, from := range []int{0, 1} {
		o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1, StreamPrompts: from, MaxBatchTokens: 32, Ledger: new(dispatch.Ledger)}, 2, func(number int, _ backend.Backend) (backend.Backend, error) {
			b, err := cpu.New(cpu.Options{Threads: 1})
			if number == 1 {
				lost.Backend, lost.err = b, nil
				return lost, err
			}
			return b, err
		}, nil)
		dispatchtest.Intercept(o.Ledger, func(read func() error) error {
			if failing.Load() {
				return errors.New("a sector cannot be read")
			}
			return read()
		})
		m, err := dispatch.New(skeleton, checkpoint, devices, o)
		if err != nil {
			t.Fatal(err)
		}
		pass := func() error {
			s := m.NewSequence()
			defer s.Free()
			_, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[:prompt], Logits: dispatch.LogitsLast}}})
			return err
		}
		var device *dispatch.DeviceError
		var weights *dispatch.WeightError
		failing.Store(true)
		if err := pass(); errors.As(err, &device) || !errors.As(err, &weights) {
			t.Errorf("prompts from %d tokens on stream: error %v, want one of the weights", from, err)
		}
		failing.Store(false)
		if err := pass(); err != nil {
			t.Error(err)
		}
		lost.err = errors.New("the GPU was lost")
		if err := pass(); !errors.As(err, &device) || device.Device != "1" || !device.Lost {
			t.Errorf("prompts from %d tokens on stream: error %v, want one of GPU 1", from, err)
		}
		m.Close()
	}
}

// loseable is a device that fails for good when a test sets err.
type loseable struct {
	backend.Backend
	err error
}

func (f *loseable) Sync() error {
	if f.err != nil {
		return f.err
	}
	return f.Backend.Sync()
}

func (f *loseable) Lost() error { return f.err }
