package disk_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestMatricesAreReadInTheOrderOfTheirBands holds, for all architectures without routed experts, that a
// pass reads each band of a matrix once: a rule that used matrices in another order than that of the module tree
// would read bands again.
func TestMatricesAreReadInTheOrderOfTheirBands(t *testing.T) {
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
			o := dispatchtest.InBands(dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh}, 256)
			m, err := dispatch.New(skeleton, checkpoint, dispatchtest.FiveMaps(skeleton)["disk"], o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			plan := m.Plan()
			if plan.ExpertBytesPerToken > 0 {
				return // a prompt reads more experts than a token
			}
			// A read of neighbours brings up to a page between two of them, as much as bands of 256 bytes themselves.
			reads := dispatchtest.PassReads(m)
			if most := plan.DiskBytesPerToken + reads.Gaps; reads.Bytes > most {
				t.Errorf("a pass reads %d bytes, want at most %d", reads.Bytes, most)
			}
			n := len(g.Prompts[0].Greedy)
			dispatchtest.Greedy(t, m, g.Prompts[0].IDs, n)
			if got, most := m.Status().TierReadBytes, int64(n)*reads.Bytes+reads.Ahead; got > most {
				t.Errorf("%d passes read %d bytes, want at most %d", n, got, most)
			}
		})
	}
}

// bigHead writes a checkpoint whose head is some 15 times larger than all of its block.
func bigHead(t *testing.T) (dir string, head int64) {
	t.Helper()
	const width, inner, vocab = 128, 256, 20000
	dir = t.TempDir()
	config := fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": %d,
		"intermediate_size": %d, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": %d,
		"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false}`, width, inner, vocab)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 8))
	var tensors []loader.NamedTensor
	add := func(name string, centre float64, shape ...int) {
		var b []byte
		for range meta.Elements(shape) {
			b = binary.LittleEndian.AppendUint16(b, mat.ToBFloat16(float32(centre+0.1*rng.NormFloat64())))
		}
		tensors = append(tensors, loader.NamedTensor{Name: name, DType: meta.BFloat16, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	add("model.embed_tokens.weight", 0, vocab, width)
	for _, name := range []string{"q", "k", "v", "o"} {
		add("model.layers.0.self_attn."+name+"_proj.weight", 0, width, width)
	}
	add("model.layers.0.mlp.gate_proj.weight", 0, inner, width)
	add("model.layers.0.mlp.up_proj.weight", 0, inner, width)
	add("model.layers.0.mlp.down_proj.weight", 0, width, inner)
	add("model.layers.0.input_layernorm.weight", 1, width)
	add("model.layers.0.post_attention_layernorm.weight", 1, width)
	add("model.norm.weight", 1, width)
	add("lm_head.weight", 0, vocab, width)
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir, 2 * width * vocab
}

// TestAHeadPassedWhole runs a model under a limit that is smaller than its head: the head streams in
// bands of rows, and the tokens are those of all weights in memory.
func TestAHeadPassedWhole(t *testing.T) {
	dir, head := bigHead(t)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids := []int32{17, 9999, 4, 812, 5000, 77}
	o := dispatch.Options{Threads: 2, Context: 16, MaxBatchTokens: 8, MaxSequences: 1}
	whole := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, whole, ids, 3, 3)
	whole.Close()

	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(head - 4096)}}
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if plan.BelowLeast || plan.Least > head/2 {
		t.Fatalf("the minimum is %d bytes, want at most half of the %d of the head\n%s", plan.Least, head, plan.Explain())
	}
	o.Ledger = new(dispatch.Ledger)
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dispatchtest.SameLogits(t, plan.Explain(), dispatchtest.ForcedLogits(t, m, ids, 3, 3), want)
	var held int64
	for _, n := range o.Ledger.Held() {
		held += n
	}
	if limit := plan.Device(devicemap.CPU).LimitBytes; held > limit+1<<16 { // whole pages of direct reads
		t.Errorf("the model holds %d bytes, the limit is %d\n%s", held, limit, plan.Explain())
	}
}

// TestBlocksStreamedThroughLargeWindows: blocks streamed whole through up to 160 MiB. Reads into so much memory
// are no faster than into 32 MiB, and it held no weights.
func TestBlocksStreamedThroughLargeWindows(t *testing.T) {
	for _, name := range []string{"dense-1b", "dense-405b"} {
		plan, _ := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, name), dispatchtest.ServingOptions(map[string]int64{"dense-1b": 1 << 30, "dense-405b": 64 << 30}[name]))
		host := plan.Device(devicemap.CPU)
		if host.StagingBytes > 36<<20 || plan.Streamed() == 0 {
			t.Errorf("%s: staging takes %s, want some 32 MiB\n%s", name, devicemap.FormatSize(host.StagingBytes), plan.Explain())
		}
	}
}

// TestTheMinimumOfGiants holds what large matrices that pass in bands of rows bring: neither a head nor a
// block has to fit into memory. The first model, with 23,040 experts, has the largest runtime that plans count.
func TestTheMinimumOfGiants(t *testing.T) {
	for name, want := range map[string]struct {
		skeleton *meta.Model
		most     int64
	}{
		"1T in bfloat16": {dispatchtest.Trillion(t, ""), 880 << 20},
		"405B":           {dispatchtest.ModelShape(t, "dense-405b"), 5 << 29},
	} {
		o := dispatchtest.ServingOptions(16 << 30)
		o.Context = 4096
		plan, _ := dispatchtest.PlanShape(t, want.skeleton, o)
		t.Logf("%s: %s", name, devicemap.FormatSize(plan.Least))
		if plan.Least > want.most {
			t.Errorf("%s: the minimum is %s, want at most %s\n%s", name, devicemap.FormatSize(plan.Least), devicemap.FormatSize(want.most), plan.Explain())
		}
	}
}
