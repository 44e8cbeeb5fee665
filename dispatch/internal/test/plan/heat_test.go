package plan_test

import (
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// fp8 is the published FP8 form of a config of testdata/shapes.
const fp8 = `"quantization_config":{"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8","weight_block_size":[128,128]},`

// TestTrillionKeepsWhatEveryTokenReads: half of it was on the disk, while layers of experts filled the
// memory.
func TestTrillionKeepsWhatEveryTokenReads(t *testing.T) {
	for _, test := range []struct {
		name, more string
		limit      int64
	}{
		{"bf16", "", 22 * dispatchtest.GiB}, {"bf16", "", 24 * dispatchtest.GiB}, {"bf16", "", 64 * dispatchtest.GiB}, {"bf16", "", 512 * dispatchtest.GiB},
		{"fp8", fp8, 12 * dispatchtest.GiB}, {"fp8", fp8, 14 * dispatchtest.GiB}, {"fp8", fp8, 256 * dispatchtest.GiB},
	} {
		plan, _ := dispatchtest.PlanShape(t, dispatchtest.Trillion(t, test.more), dispatchtest.ServingOptions(test.limit))
		for path, device := range plan.Map.All() {
			if table, experts := path == "model.embed_tokens", strings.HasSuffix(path, ".mlp.experts"); device == devicemap.Disk && !table && !experts {
				t.Errorf("%s in %s: %s is on the disk, and every token reads it", test.name, devicemap.FormatSize(test.limit), path)
			} else if device != devicemap.Disk && (table || experts) {
				t.Errorf("%s in %s: %s is in memory, which experts of all layers could use", test.name, devicemap.FormatSize(test.limit), path)
			}
		}
		if plan.ExpertCacheBytes < plan.Device(devicemap.CPU).StagingBytes {
			t.Errorf("%s in %s: %s of %s of staging cache experts", test.name, devicemap.FormatSize(test.limit),
				devicemap.FormatSize(plan.ExpertCacheBytes), devicemap.FormatSize(plan.Device(devicemap.CPU).StagingBytes))
		}
	}
}

// BenchmarkPlanTrillion plans a model of a trillion parameters from its config.
func BenchmarkPlanTrillion(b *testing.B) {
	for b.Loop() {
		if _, _, err := dispatch.Plan(dispatchtest.Trillion(b, fp8), dispatchtest.ServingOptions(12*dispatchtest.GiB)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestMatricesOfABlockOnTwoTiers runs plans in which a block streams some of its matrices: the answer
// is that of all weights in memory, and a token reads the bytes that the plan shows.
func TestMatricesOfABlockOnTwoTiers(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids, prompt := dispatchtest.LawIDs()
	o := dispatch.Options{Threads: 2, Context: 64, MaxBatchTokens: 32, MaxSequences: 1}
	whole := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, whole, ids, prompt, prompt)
	whole.Close()
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	split := 0
	for limit := need.Least; limit < need.All; limit += (need.All - need.Least) / 9 {
		o := o
		o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit - need.Runtime)}}
		plan, o, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(plan.Map.String(), ".mlp.") || strings.Contains(plan.Map.String(), ".self_attn.") {
			split++
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
		if err != nil {
			t.Fatal(err)
		}
		dispatchtest.SameLogits(t, plan.Explain(), dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		// Rows of the table are looked up; staging bounds the reads ahead for the next pass. What lent memory keeps is
		// read once, and once more if it was there before the prompt, whose activations take the memory back.
		passes, host := int64(len(ids)-prompt+1), plan.Device(devicemap.CPU)
		least := passes * (plan.DiskBytesPerToken - 4096)
		least -= passes * 4 * 64 * 192 * 2 // k_proj and v_proj are too small for bands, and fit into the window together
		most := passes*plan.DiskBytesPerToken + host.StagingBytes + 2*plan.LentBytes
		if got := m.Status().TierReadBytes; got < least || got > most {
			t.Errorf("%d passes read %d bytes, want %d to %d\n%s", passes, got, least, most, plan.Explain())
		}
		m.Close()
	}
	if split < 3 {
		t.Errorf("%d plans place matrices of a block apart, want at least 3", split)
	}
}
