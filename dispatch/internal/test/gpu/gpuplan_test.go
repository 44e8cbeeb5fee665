package gpu_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// hostMemory is a limit of the CPU.
func hostMemory(bytes float64) []devicemap.DeviceMemory {
	return []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: bytes}}
}

// TestPlansFillGPUsFirst: with two GPUs that hold a block each, auto places blocks on GPU 0, GPU 1 and
// the CPU, counts keys and values with their blocks, and the model of the plan gives the CPU's bits.
func TestPlansFillGPUsFirst(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := withTwoGPUs(dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128, MaxBatchTokens: 32, MaxSequences: 2, MaxMemory: hostMemory(64 << 20)})
	block := skeleton.Root.Find("model.layers.0")
	var weights int64
	for _, p := range block.AllParams() {
		weights += p.Bytes()
	}
	all, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	first := all.Device("0")
	if cpu := all.Device(devicemap.CPU); cpu.WeightsBytes != 0 || cpu.KVBytes != 0 || first.KVBytes == 0 {
		t.Errorf("with room for everything GPU 0 has %+v and the CPU %+v", first, cpu)
	}
	one := weights + first.KVBytes/2 + first.ActivationBytes + 4096
	o = dispatchtest.WithGPUMemory(o, (one+300<<20)*20/19)
	o.KVTokens = 64
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"model.layers.0", "model.layers.1"} {
		d, _ := plan.Map.Device(path)
		if _, gpu := d.GPU(); !gpu {
			t.Errorf("%s is on %s, want a GPU; plan %v", path, d, plan.Map)
		}
	}
	used := 0
	for _, d := range plan.Devices {
		if _, gpu := d.Device.GPU(); gpu && d.WeightsBytes > 0 {
			used++
			if d.KVBytes == 0 || d.Used() > d.LimitBytes {
				t.Errorf("GPU %s: %+v", d.Device, d)
			}
		}
	}
	if used != 2 {
		t.Errorf("%d GPUs are used, want 2: %v", used, plan.Map)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, prompt := dispatchtest.LawIDs()
	host := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh})
	dispatchtest.SameLogits(t, "the plan's map", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), dispatchtest.ForcedLogits(t, host, ids, prompt, prompt))
}

// TestUnitsThatAGPUCannotRunStayOnTheCPU: a format without kernels is in no plan for a GPU, also where the
// map names one, and a warning says so.
func TestUnitsThatAGPUCannotRunStayOnTheCPU(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatchtest.OnGPUs(dispatch.Options{Threads: 1, Context: 128, MaxMemory: hostMemory(64 << 20)}, 1, func(int, backend.Backend) (backend.Backend, error) {
		t.Error("the GPU is opened")
		return nil, nil
	}, func(backend.Matrix) bool { return false })
	for _, text := range []string{"auto", `{"": 0}`} {
		var err error
		if o.DeviceMap, err = devicemap.ParsePolicy(text); err != nil {
			t.Fatal(err)
		}
		plan, planned, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		if n := plan.Device("0").WeightsBytes; n != 0 {
			t.Errorf("%s: %d bytes are on the GPU", text, n)
		}
		if !strings.Contains(strings.Join(plan.Warnings, "\n"), "model.embed_tokens and 3 more units stay on the cpu: the GPU has no kernels for weights in bfloat16") {
			t.Errorf("%s: warnings %q", text, plan.Warnings)
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
}

// allocating is a GPU that counts its memory.
type allocating struct {
	*cpu.Backend
	bytes int64
}

func (a *allocating) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	t, err := a.Backend.New(dtype, dims...)
	a.bytes += t.Bytes()
	return t, err
}

// TestPlansCountStatesOfGPUs: the GPU of a plan has all of the memory that the model takes there, states among it.
func TestPlansCountStatesOfGPUs(t *testing.T) {
	for _, name := range []string{"lfm2-1", "qwen3-next-1", "mamba2-1", "falcon-h1-1"} {
		for _, sequences := range []int{1, 16} {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, golden.OwnDir(t, "family-"+name))
			gpu := &allocating{}
			o := dispatch.Options{Threads: 1, MaxBatchTokens: 32, MaxSequences: sequences, MaxMemory: hostMemory(64 << 20)}
			o = dispatchtest.OnGPUs(o, 1, func(int, backend.Backend) (b backend.Backend, err error) {
				gpu.Backend, err = cpu.New(cpu.Options{Threads: 1})
				return gpu, err
			}, nil)
			plan, planned, err := dispatch.Plan(skeleton, o)
			if err != nil {
				t.Fatal(err)
			}
			d := plan.Device("0")
			if d.WeightsBytes == 0 || d.KVBytes == 0 || d.Used() > d.LimitBytes {
				t.Errorf("%s: GPU 0 has %+v", name, d)
			}
			m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
			if err != nil {
				t.Fatal(err)
			}
			if gpu.bytes > d.Used() {
				t.Errorf("%s with %d sequences takes %d bytes of GPU 0, planned are %+v", name, sequences, gpu.bytes, d)
			}
			t.Logf("%s with %d sequences: %d of %d bytes, %d of them keys, values and states", name, sequences, gpu.bytes, d.Used(), d.KVBytes)
			m.Close()
		}
	}
}

// TestCompressionKeptBlocksOffGPUs: `--compress exact` left all blocks on the CPU, as no GPU has kernels for coded weights.
// The weights of a plan with a GPU are not coded, and the plan says so.
func TestCompressionKeptBlocksOffGPUs(t *testing.T) {
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatchtest.CodingAll(dispatch.Options{Threads: 1, Context: 128, MaxMemory: hostMemory(64 << 20)})
	o = dispatchtest.OnGPUs(o, 1, func(int, backend.Backend) (backend.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) },
		func(m backend.Matrix) bool { return m.Quant == nil })
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if gpu := plan.Device("0"); gpu.WeightsBytes == 0 || plan.Device(devicemap.CPU).WeightsBytes != 0 || planned.LoadedAs() != meta.QuantNone {
		t.Errorf("the GPU has %+v, weights are loaded as %v", gpu, planned.LoadedAs())
	}
	if !slices.Contains(plan.Warnings, "weights are not coded: GPUs do not use coded weights") {
		t.Errorf("warnings %q", plan.Warnings)
	}
}

// TestAModelLostAWarningOfItsPlan: the warning that weights are not coded for GPUs was in the plan that Plan returned, and
// not in that of a model opened with it.
func TestAModelLostAWarningOfItsPlan(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatchtest.CodingAll(dispatch.Options{Threads: 1, Context: 128, MaxMemory: hostMemory(64 << 20)})
	o = dispatchtest.OnGPUs(o, 1, func(int, backend.Backend) (backend.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) },
		func(m backend.Matrix) bool { return m.Quant == nil })
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := m.Plan().Warnings; !slices.Equal(got, plan.Warnings) {
		t.Errorf("the model has the warnings %q, its plan %q", got, plan.Warnings)
	}
}
