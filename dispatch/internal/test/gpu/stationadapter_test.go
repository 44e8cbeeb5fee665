package gpu_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
)

// TestAdaptersOfStations runs adapters on two backends of the CPU in place of GPUs.
func TestAdaptersOfStations(t *testing.T) { adaptersKeepBits(t, withTwoGPUs) }

// adaptersKeepBits holds law 4 for the adapters that PEFT trained: with high precision the logits over maps with GPUs
// are those of the CPU, also of prompts that stream, in a batch with rows of the base and of another adapter.
// Low-rank pairs, magnitudes (DoRA), whole modules and pairs of experts are among them. Short tests try one map, and
// one with divided experts.
func adaptersKeepBits(t *testing.T, gpus func(dispatch.Options) dispatch.Options) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "peft")
	var trace struct{ Runs []struct{ Run, Base string } }
	if !golden.JSON(t, filepath.Join(dir, "trace.json"), &trace) || len(trace.Runs) == 0 {
		t.Fatalf("%s has no runs: make them with scripts/make-peft-fixtures.py", dir)
	}
	for _, r := range trace.Runs {
		t.Run(r.Run, func(t *testing.T) {
			fixture, err := loader.Open(filepath.Join(dir, r.Run, "logits.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer fixture.Close()
			ids := dispatchtest.AdapterPrompts(t, fixture)
			skeleton, checkpoint := dispatchtest.OpenBase(t, filepath.Join(dir, "base", r.Base, "model.safetensors"))
			o := dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, KVTokens: 4096,
				Adapters: []dispatch.Adapter{{Name: "final", Dir: filepath.Join(dir, r.Run, "final")}, {Name: "init", Dir: filepath.Join(dir, r.Run, "init")}}}
			run := func(name string, devices devicemap.Map, o dispatch.Options, want [][]float32) [][]float32 {
				m, err := dispatch.New(skeleton, checkpoint, devices, o)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				defer m.Close()
				got := dispatchtest.AdaptedLogits(t, m, ids, "final")
				if want != nil {
					dispatchtest.SameLogits(t, name, got, want)
					dispatchtest.BesideOthers(t, m, ids, want)
				}
				if plain := dispatchtest.AdaptedLogits(t, m, ids, ""); slices.Equal(slices.Concat(plain...), slices.Concat(got...)) {
					t.Errorf("%s: the adapter adds nothing", name)
				}
				return got
			}
			want := run("cpu", devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), o, nil)
			o = gpus(o)
			all := stationMaps(skeleton)
			tried := triedMaps(all)
			if paths, _ := stacks(t, skeleton); len(paths) > 0 {
				tried["experts in turn"] = dividedMaps(t, skeleton)["experts in turn"]
			}
			for name, devices := range tried {
				run(name, devices, o, want)
			}
			o.StreamPrompts = 2
			run("streamed", all["disk between"], o, want)
		})
	}
}

// TestPlansCountAdaptersOfGPUs: the GPU of a plan has all of the memory that the model takes there, adapters among it.
func TestPlansCountAdaptersOfGPUs(t *testing.T) {
	skeleton, checkpoint := dispatchtest.OpenBase(t, dispatchtest.OwnBase(t))
	gpu := &allocating{}
	o := dispatch.Options{Threads: 1, MaxBatchTokens: 32, MaxSequences: 2, MaxMemory: hostMemory(64 << 20), Adapters: []dispatch.Adapter{{Name: "a", Dir: dispatchtest.AdapterDir(t)}}}
	o = dispatchtest.OnGPUs(o, 1, func(int, backend.Backend) (b backend.Backend, err error) {
		gpu.Backend, err = cpu.New(cpu.Options{Threads: 1})
		return gpu, err
	}, nil)
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if d := plan.Device("0"); d.WeightsBytes == 0 || gpu.bytes > d.Used() || d.Used() > d.LimitBytes {
		t.Errorf("the GPU has %d bytes, planned are %+v", gpu.bytes, d)
	}
}
