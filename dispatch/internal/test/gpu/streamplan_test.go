package gpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/meta"
)

// oneGPU is o for a machine with one GPU of so many bytes for plans, which is a backend of the CPU.
func oneGPU(o dispatch.Options, bytes int64) dispatch.Options {
	o = dispatchtest.OnGPUs(o, 1, func(int, backend.Backend) (backend.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }, nil)
	return dispatchtest.WithGPUMemory(o, (bytes+300<<20)*20/19)
}

// blockBytes is the size of the first block.
func blockBytes(skeleton *meta.Model) (n int64) {
	for _, p := range skeleton.Root.Find("model.layers.0").AllParams() {
		n += p.Bytes()
	}
	return n
}

// onlyForStreams is o for a machine with one GPU that has room for streams, and for no block.
func onlyForStreams(t *testing.T, skeleton *meta.Model, o dispatch.Options) dispatch.Options {
	t.Helper()
	plan, _, err := dispatch.Plan(skeleton, oneGPU(o, 64<<20))
	if err != nil {
		t.Fatal(err)
	}
	return oneGPU(o, plan.Device("0").ActivationBytes+5*blockBytes(skeleton)/2)
}

// TestPlansStreamBlocksThatAGPUHasNoRoomFor: a plan keeps memory of the GPU for streams, within its limit, and the
// model of the plan has the CPU's bits: where the GPU holds a block, and where it has room for no block.
func TestPlansStreamBlocksThatAGPUHasNoRoomFor(t *testing.T) {
	dir := dispatchtest.LawFolderOf(t, 5)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids, prompt := dispatchtest.LawIDs()
	host := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh})
	want := dispatchtest.ForcedLogits(t, host, ids, prompt, prompt)
	o := dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 256, MaxBatchTokens: 32, MaxSequences: 4, MaxMemory: hostMemory(64 << 20), StreamPrompts: prompt}
	plan, _, err := dispatch.Plan(skeleton, oneGPU(o, 64<<20))
	if err != nil {
		t.Fatal(err)
	}
	if gpu := plan.Device("0"); plan.StreamPrompts != 0 || gpu.StagingBytes != 0 || dispatch.StreamsPrompts(&plan) != "" {
		t.Errorf("with room for everything prompts stream: %+v", gpu)
	}
	activations, block := plan.Device("0").ActivationBytes, blockBytes(skeleton)
	for name, bytes := range map[string]int64{"a block": activations + 7*block/2, "no block": activations + 5*block/2} {
		plan, planned, err := dispatch.Plan(skeleton, oneGPU(o, bytes))
		if err != nil {
			t.Fatal(err)
		}
		gpu := plan.Device("0")
		if plan.StreamPrompts != prompt || plan.StreamDevice != "0" || gpu.StagingBytes < 2*block || gpu.Used() > gpu.LimitBytes || (gpu.WeightsBytes >= block) != (name == "a block") {
			t.Fatalf("a GPU with room for %s: prompts of %d stream, %+v: %v", name, plan.StreamPrompts, gpu, plan.Warnings)
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
		if err != nil {
			t.Fatal(err)
		}
		dispatchtest.SameLogits(t, name, dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
		dispatchtest.SameLogits(t, name+", in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, ids, prompt, 4, 2), want)
		if streamed(m) == 0 {
			t.Errorf("a GPU with room for %s: nothing streamed", name)
		}
		m.Close()
	}
	plan, planned, err := dispatch.Plan(skeleton, oneGPU(o, activations+block))
	if err != nil {
		t.Fatal(err)
	}
	if planned.StreamPrompts != 0 || !strings.Contains(strings.Join(plan.Warnings, "\n"), "no prompts stream to a GPU: GPU 0 has no room for ") {
		t.Errorf("without room for the streams: prompts of %d stream, warnings %v", planned.StreamPrompts, plan.Warnings)
	}
}

// TestStreamedPromptsGoInLongPasses: a prompt of 4,096 tokens went in 8 passes, each of which copied the weights of the CPU
// to the GPU. A GPU that would have to give up blocks for it keeps them.
func TestStreamedPromptsGoInLongPasses(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "dense-1b")
	for _, test := range []struct {
		gpu    int64
		from   int
		tokens int
	}{
		{1500 << 20, 48, 4096},
		{600 << 20, 48, 4096},
		{1500 << 20, 0, 512},  // no prompt streams
		{8000 << 20, 48, 512}, // all is on the GPU
	} {
		o := dispatchtest.ServingOptions(8 * dispatchtest.GiB)
		o.StreamPrompts = test.from
		plan, o := dispatchtest.PlanShape(t, skeleton, oneGPU(o, test.gpu))
		if o.MaxBatchTokens != test.tokens {
			t.Errorf("a GPU of %s, prompts from %d tokens on stream: batches of %d tokens, want %d; %+v", devicemap.FormatSize(test.gpu), test.from, o.MaxBatchTokens, test.tokens, plan.Device("0"))
		}
	}
	held := func(gpu int64, tokens int) int64 {
		o := dispatchtest.ServingOptions(8 * dispatchtest.GiB)
		o.StreamPrompts, o.MaxBatchTokens = 48, tokens
		plan, _ := dispatchtest.PlanShape(t, skeleton, oneGPU(o, gpu))
		return plan.Device("0").WeightsBytes
	}
	weights := held(8*dispatchtest.GiB, 0)
	for gpu := int64(400 << 20); gpu < 2000<<20; gpu += 23 << 20 {
		if long, short := held(gpu, 0), held(gpu, 512); long < short-weights/32 {
			t.Errorf("a GPU of %s holds %d bytes of weights, and %d with short passes", devicemap.FormatSize(gpu), long, short)
		}
	}
	o := dispatchtest.ServingOptions(8 * dispatchtest.GiB)
	o.StreamPrompts, o.MaxBatchTokens = 48, 600
	if _, o = dispatchtest.PlanShape(t, skeleton, oneGPU(o, 1500<<20)); o.MaxBatchTokens != 600 {
		t.Errorf("batches of %d tokens, asked for 600", o.MaxBatchTokens)
	}
}

// TestTheLeastPromptThatStreamsFollowsFromSpeeds: a prompt streams if the GPU, with the weights on their way, is
// faster than the CPU.
func TestTheLeastPromptThatStreamsFollowsFromSpeeds(t *testing.T) {
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolderOf(t, 5))
	o := dispatch.Options{Threads: 1, Context: 128, KVTokens: 64, MaxBatchTokens: 256, MaxMemory: hostMemory(64 << 20), StreamPrompts: dispatch.StreamChosen}
	o = onlyForStreams(t, skeleton, o)
	for name, c := range map[string]struct {
		memory, host, link, device float64
		want                       int
	}{
		"a link of half the memory's speed":   {50e9, 1e12, 25e9, 100e12, 48}, // bfloat16: 2 bytes ÷ 25e9 = 2·40 ÷ 1e12
		"a slow CPU":                          {50e9, 1e11, 25e9, 100e12, 16},
		"a link that is faster than memory":   {20e9, 1e12, 25e9, 100e12, 16},
		"a GPU that is slower than the CPU":   {50e9, 1e12, 25e9, 1e11, 0},
		"a link that wins beyond a pass only": {50e9, 1e12, 2e9, 100e12, 0},
		"unknown speeds":                      {0, 1e12, 25e9, 100e12, 0},
	} {
		plan, planned, err := dispatch.Plan(skeleton, dispatchtest.WithGPUPace(o, c.memory, c.host, c.link, c.device))
		if err != nil {
			t.Fatal(err)
		}
		if plan.StreamPrompts != c.want || planned.StreamPrompts != c.want {
			t.Errorf("%s: prompts of %d tokens stream, want %d", name, plan.StreamPrompts, c.want)
		}
		if text := dispatch.StreamsPrompts(&plan); c.want == 48 && text != "prompts of 48 tokens or more compute blocks of the cpu and the disk on GPU 0, to which they stream" {
			t.Error(text)
		}
	}
}

// TestTheSpeedOfAGPUIsMeasuredOnce: the first plan leaves a file, and later ones follow it. A damaged file is
// measured again.
func TestTheSpeedOfAGPUIsMeasuredOnce(t *testing.T) {
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolderOf(t, 5))
	folder := t.TempDir()
	o := dispatch.Options{Threads: 1, Context: 128, KVTokens: 64, MaxBatchTokens: 256, MaxMemory: hostMemory(64 << 20), StreamPrompts: dispatch.StreamChosen}
	o = onlyForStreams(t, skeleton, o)
	o.MeasurementsDir = folder
	from := func() int {
		plan, _, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		return plan.StreamPrompts
	}
	from()
	files, err := filepath.Glob(filepath.Join(folder, "gpu-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), `"link_bytes_per_second"`) {
		t.Fatalf("%s, %v", text, err)
	}
	kept := `{"version": 2, "memory_bytes_per_second": 50e9, "host_operations_per_second": 1e12, "link_bytes_per_second": 25e9, "device_operations_per_second": 1e14}`
	if err := os.WriteFile(files[0], []byte(kept), 0o644); err != nil {
		t.Fatal(err)
	}
	if n := from(); n != 48 {
		t.Errorf("with the stored speeds prompts of %d tokens stream, want 48", n)
	}
	if err := os.WriteFile(files[0], []byte(`{"version": 2}`), 0o644); err != nil {
		t.Fatal(err)
	}
	from()
	if again, err := os.ReadFile(files[0]); err != nil || len(again) < len(text)/2 {
		t.Errorf("a damaged file became %s, %v", again, err)
	}
}

// TestAMapByHandStreamsToo: a plan of a map by hand keeps memory for streams on the GPU of the map.
func TestAMapByHandStreamsToo(t *testing.T) {
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dispatchtest.LawFolder(t))
	o := oneGPU(dispatch.Options{Threads: 1, Context: 128, StreamPrompts: 5, MaxMemory: hostMemory(64 << 20)}, 64<<20)
	o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: stationMaps(skeleton)["disk between"]}
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if gpu := plan.Device("0"); plan.StreamPrompts != 5 || planned.StreamPrompts != 5 || gpu.StagingBytes == 0 {
		t.Errorf("prompts of %d tokens stream, %+v", plan.StreamPrompts, gpu)
	}
}

// TestPlansStreamConvertedWeights: the rings have room for converted blocks, which are smaller than those of the file, and
// the model of the plan has the CPU's bits.
func TestPlansStreamConvertedWeights(t *testing.T) {
	dir := dispatchtest.LawFolderOf(t, 5)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids, prompt := dispatchtest.LawIDs()
	o := dispatch.Options{Threads: 1, Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 256, MaxBatchTokens: 32, MaxSequences: 4, MaxMemory: hostMemory(64 << 20), StreamPrompts: prompt}
	stored, _, err := dispatch.Plan(skeleton, onlyForStreams(t, skeleton, o))
	if err != nil {
		t.Fatal(err)
	}
	o.Quantize = meta.QuantQ8
	host := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, host, ids, prompt, prompt)
	plan, planned, err := dispatch.Plan(skeleton, oneGPU(o, stored.Device("0").ActivationBytes+2*blockBytes(skeleton)))
	if err != nil {
		t.Fatal(err)
	}
	gpu := plan.Device("0")
	if plan.StreamPrompts != prompt || gpu.StagingBytes == 0 || gpu.StagingBytes >= stored.Device("0").StagingBytes*2/3 || gpu.Used() > gpu.LimitBytes {
		t.Fatalf("prompts of %d tokens stream, %+v; as stored the rings have %d bytes; %v", plan.StreamPrompts, gpu, stored.Device("0").StagingBytes, plan.Warnings)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dispatchtest.SameLogits(t, "converted", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
	if streamed(m) == 0 {
		t.Error("nothing streamed")
	}
}
