//go:build cuda

package gpu_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// TestPlansCountTheScratchOfGPUs runs a prompt as long as the context, in one pass. What kernels take for operands and scratch
// was in no plan, so that a GPU had more than its plan said.
func TestPlansCountTheScratchOfGPUs(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	const context = 400
	o := onGPUs(t, dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: context, MaxBatchTokens: context,
		DeviceMap: devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: "0"})}, MaxMemory: hostMemory(1 << 30)})
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, golden.OwnModel(t, "small-llama-bf16").Dir())
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := make([]int32, context)
	for i := range ids {
		ids[i] = int32(5 + i%50)
	}
	s := m.NewSequence()
	defer s.Free()
	if _, err := m.Forward(t.Context(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids, PromptLen: context, Logits: dispatch.LogitsLast}}}); err != nil {
		t.Fatal(err)
	}
	own := m.DeviceUse()[1].OwnBytes
	if gpu := plan.Device("0"); own > gpu.RuntimeBytes || own < gpu.RuntimeBytes/2 || own == 0 {
		t.Errorf("kernels of GPU 0 take %d bytes for operands and scratch, the plan has %d", own, gpu.RuntimeBytes)
	}
	if used, gpu := m.DeviceUse()[1].Bytes, plan.Device("0"); used > gpu.Used() {
		t.Errorf("GPU 0 has %d bytes, the plan %d", used, gpu.Used())
	}
}
