//go:build cuda

package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// underDriver runs a test in a process of its own whose simulated driver has settings. It reports whether this is that
// process.
func underDriver(t *testing.T, settings ...string) bool {
	t.Helper()
	if !testenv.IsProcess(t) {
		onGPUs(t, dispatch.Options{})
	}
	return testenv.UnderDriver(t, settings...)
}

// TestALostGPUNamesItselfAtTheStart: an allocation that fails because the GPU is lost was called too little memory. The
// first allocation is for kernels, the next for weights.
func TestALostGPUNamesItselfAtTheStart(t *testing.T) {
	for n, want := range []string{"GPU 0: LaunchFailed", "memory for the weights that the device map places there"} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if !underDriver(t, fmt.Sprintf("CUDASIM_FAIL=memory:%d", n)) {
				return
			}
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
			told := 0
			o := dispatch.Options{Threads: 1, DeviceLost: func(*dispatch.DeviceError) { told++ }}
			_, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["all on a GPU"], dispatchtest.OnHostGPUs(o))
			if err == nil || !strings.Contains(err.Error(), "GPU 0") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "too little") || told != n {
				t.Errorf("error %v, told %d times", err, told)
			}
		})
	}
}

// TestACopyThatFailsTellsOfTheLoss: the first request that fails says that the GPU is lost; the second one did.
func TestACopyThatFailsTellsOfTheLoss(t *testing.T) {
	if !underDriver(t, "CUDASIM_FAIL=copy:3") {
		return
	}
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	told := 0
	o := dispatch.Options{Threads: 1, DeviceLost: func(*dispatch.DeviceError) { told++ }}
	m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["all on a GPU"], dispatchtest.OnHostGPUs(o))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.NewSequence()
	defer s.Free()
	_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{5, 6}, Logits: dispatch.LogitsLast}}})
	var failed *dispatch.DeviceError
	if !errors.As(err, &failed) || !failed.Lost || failed.Device != "0" || told != 1 {
		t.Errorf("error %v, told %d times", err, told)
	}
}

// TestAGPUWhoseMemoryShrinksAfterThePlan: another process takes memory of the GPU that the plan counts on. The error says
// so, nothing of the model stays, and once there is room the same plan runs.
func TestAGPUWhoseMemoryShrinksAfterThePlan(t *testing.T) {
	others := os.Getenv("CUDASIM_OTHERS")
	if others == "" {
		others = t.TempDir()
	}
	if !underDriver(t, "CUDASIM_OTHERS="+others, "CUDASIM_DEVICES=1", "CUDASIM_MEMORY=1073741824") {
		return
	}
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128, MaxSequences: 8192, MaxMemory: hostMemory(1 << 30)}
	ids, prompt := dispatchtest.LawIDs()
	want := onTheCPU(t, skeleton, checkpoint, o)
	plan, o, err := dispatch.Plan(skeleton, dispatchtest.OnHostGPUs(o))
	if err != nil || plan.Device("0").Used() < 500<<20 {
		t.Fatalf("the plan takes %d bytes of GPU 0, want most of its memory: %v", plan.Device("0").Used(), err)
	}
	other := filepath.Join(others, fmt.Sprint(os.Getppid())) // a process that lives
	before := free(t)
	if err := os.WriteFile(other, []byte(fmt.Sprint(before-64<<20)), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err = dispatch.New(skeleton, checkpoint, plan.Map, o)
	for _, part := range []string{"dispatch: GPU 0 has too little memory for ", "the plan takes " + devicemap.FormatSize(plan.Device("0").Used()), "of 1.00 GiB are free now", "lower its limit with --max-memory 0=0"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, want %q", err, part)
		}
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if after := free(t); after != before {
		t.Errorf("%d bytes are free afterwards, %d were before", after, before)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dispatchtest.SameLogits(t, "once there is room", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
}

// TestAGPUWhoseMemoryIsGoneWhileItServes: a pass that finds no memory for its operations is an error that says what to do,
// and the next one runs if there is some.
func TestAGPUWhoseMemoryIsGoneWhileItServes(t *testing.T) {
	others := os.Getenv("CUDASIM_OTHERS")
	if others == "" {
		others = t.TempDir()
	}
	if !underDriver(t, "CUDASIM_OTHERS="+others, "CUDASIM_DEVICES=1") {
		return
	}
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128}
	ids, prompt := dispatchtest.LawIDs()
	want := onTheCPU(t, skeleton, checkpoint, o)
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: "0"}), dispatchtest.OnHostGPUs(o))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	other := filepath.Join(others, fmt.Sprint(os.Getppid()))
	if err := os.WriteFile(other, []byte(fmt.Sprint(1<<30)), 0o666); err != nil {
		t.Fatal(err)
	}
	s := m.NewSequence()
	_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[:prompt], Logits: dispatch.LogitsLast}}})
	var failed *dispatch.DeviceError
	if !errors.As(err, &failed) || failed.Lost || failed.Device != "0" || !strings.HasSuffix(err.Error(), "OutOfMemory; leave more of the GPU free with a lower --max-memory 0=SIZE") {
		t.Errorf("error %v", err)
	}
	s.Free()
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	dispatchtest.SameLogits(t, "once there is room", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
}

// TestTwoPlansForOneGPU: of two models that were both planned with all of a GPU's memory, the second one is an error whose
// limit is right, and the first one answers as before.
func TestTwoPlansForOneGPU(t *testing.T) {
	if !underDriver(t, "CUDASIM_DEVICES=1", "CUDASIM_MEMORY=1073741824") {
		return
	}
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128, MaxSequences: 8192, MaxMemory: hostMemory(1 << 30)}
	ids, prompt := dispatchtest.LawIDs()
	want := onTheCPU(t, skeleton, checkpoint, o)
	limited := func(bytes float64) (devicemap.Plan, dispatch.Options) {
		o := dispatchtest.OnHostGPUs(o)
		o.MaxMemory = append(hostMemory(1<<30), devicemap.DeviceMemory{Device: "0", Bytes: bytes})
		plan, o, err := dispatch.Plan(skeleton, o)
		if err != nil || float64(plan.Device("0").Used()) < bytes*0.9 {
			t.Fatalf("the plan takes %d bytes of GPU 0, want nearly %.0f: %v", plan.Device("0").Used(), bytes, err)
		}
		return plan, o
	}
	first, fo := limited(300 << 20)
	second, so := limited(800 << 20)
	a, err := dispatch.New(skeleton, checkpoint, first.Map, fo)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	before := free(t)
	_, err = dispatch.New(skeleton, checkpoint, second.Map, so)
	var mib int64
	if err == nil {
		t.Fatal("both models are open")
	}
	_, text, found := strings.Cut(err.Error(), "lower its limit with --max-memory 0=")
	if _, scanned := fmt.Sscanf(text, "%dMiB", &mib); !found || scanned != nil {
		t.Fatalf("error %v names no limit", err)
	}
	if after := free(t); after != before {
		t.Errorf("%d bytes are free after the error, %d were before", after, before)
	}
	dispatchtest.SameLogits(t, "the first model", dispatchtest.ForcedLogits(t, a, ids, prompt, prompt), want)
	third, to := limited(float64(mib << 20))
	b, err := dispatch.New(skeleton, checkpoint, third.Map, to)
	if err != nil {
		t.Fatalf("with the limit of the error: %v", err)
	}
	defer b.Close()
	dispatchtest.SameLogits(t, "the second model", dispatchtest.ForcedLogits(t, b, ids, prompt, prompt), want)
	dispatchtest.SameLogits(t, "the first model beside it", dispatchtest.ForcedLogits(t, a, ids, prompt, prompt), want)
}

// free returns the free memory of GPU 0.
func free(t *testing.T) int64 {
	t.Helper()
	gpus, reason := dispatch.GPUs()
	if len(gpus) == 0 || gpus[0].Reason != "" {
		t.Fatal("no GPU 0", reason)
	}
	return gpus[0].AvailableBytes
}

// onTheCPU returns the logits of a model on the CPU.
func onTheCPU(t *testing.T, skeleton *meta.Model, checkpoint *loader.Checkpoint, o dispatch.Options) [][]float32 {
	t.Helper()
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids, prompt := dispatchtest.LawIDs()
	return dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
}
