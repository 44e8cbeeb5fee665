package activations_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// A prompt of 4096 tokens was computed in 8 passes of 512 tokens, and each read all weights of the
// disk tier.
func TestAStreamedPromptIsOnePass(t *testing.T) {
	for _, test := range []struct {
		shape  string
		limit  int64
		tokens int // of a batch
	}{
		{"moe-1b", 900 << 20, 4096},
		{"moe-1t", 20 * dispatchtest.GiB, 4096},
		{"moe-671b", 200 * dispatchtest.GiB, 4096},
		{"dense-405b", 200 * dispatchtest.GiB, 4096},
		{"dense-405b", 20 * dispatchtest.GiB, 4096},
		{"moe-mxfp4-117b", 32 * dispatchtest.GiB, 4096},
		{"moe-mxfp4-117b", 64 * dispatchtest.GiB, 512}, // all in memory
	} {
		_, o := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, test.shape), dispatchtest.ServingOptions(test.limit))
		if o.MaxBatchTokens != test.tokens {
			t.Errorf("%s in %s: batches of %d tokens, want %d", test.shape, devicemap.FormatSize(test.limit), o.MaxBatchTokens, test.tokens)
		}
	}
	asked := dispatchtest.ServingOptions(20 * dispatchtest.GiB)
	asked.MaxBatchTokens = 600
	if _, o := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, "moe-1t"), asked); o.MaxBatchTokens != 600 {
		t.Errorf("batches of %d tokens, asked for 600", o.MaxBatchTokens)
	}
}

// TestAPromptReadsStreamedMatricesOnce: matrices that stream in bands were read once for each tile of 512
// tokens, a prompt of 2,000 tokens 4 times.
func TestAPromptReadsStreamedMatricesOnce(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "dense-1b")
	for limit := int64(600 << 20); limit < 2000<<20; limit += 50 << 20 {
		p, o := dispatchtest.PlanShape(t, skeleton, dispatchtest.ServingOptions(limit))
		t.Logf("%d MiB: %d of %d tokens %d", limit>>20, dispatchtest.TileTokens(o), o.MaxBatchTokens, p.Streamed()>>20)
		if n := dispatchtest.TileTokens(o); p.Streamed() > 0 && (2000+n-1)/n > 1 {
			t.Errorf("%d MiB: %d of %d tokens of a batch go through a block together", limit>>20, n, o.MaxBatchTokens)
		}
	}
}

// Memory for long passes must not cost more reads than the passes save: a model of which little
// fits keeps its weights in memory instead.
func TestLongPassesDoNotDisplaceWeights(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "moe-1b")
	for limit := int64(260 << 20); limit < 2500<<20; limit += 40 << 20 {
		o := dispatchtest.ServingOptions(limit)
		o.MaxBatchTokens = 512
		short, _ := dispatchtest.PlanShape(t, skeleton, o)
		long, chosen := dispatchtest.PlanShape(t, skeleton, dispatchtest.ServingOptions(limit))
		if long.Least != short.Least || long.BelowLeast != short.BelowLeast {
			t.Errorf("%d MiB: the minimum is %d with batches of %d tokens, %d with 512", limit>>20, long.Least, chosen.MaxBatchTokens, short.Least)
		}
		if most := short.DiskBytesPerToken + short.DiskBytesPerToken/32; long.DiskBytesPerToken > most {
			t.Errorf("%d MiB: a token reads %d bytes with batches of %d tokens, %d with 512", limit>>20, long.DiskBytesPerToken, chosen.MaxBatchTokens, short.DiskBytesPerToken)
		}
	}
}

// The bytes that passes read are counted on a model on disk: a prompt of 120 tokens reads no more
// than one token, in a batch of any size.
func TestOnePassReadsEachWeightOnce(t *testing.T) {
	dir := dispatchtest.DemoFolder(t) // of more blocks than the window holds
	disk := devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	m, err := dispatch.New(skeleton, checkpoint, disk, dispatchtest.InTiles(dispatch.Options{Threads: 1, Context: 128, MaxBatchTokens: 128}, 16))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !m.BatchLimits().Streaming && m.Plan().DiskBytesPerToken >= 1<<20 {
		t.Error("a model that streams does not say that passes amortise")
	}
	pass := func(n int) float64 {
		s := m.NewSequence()
		defer s.Free()
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(i)
		}
		before := m.Status().TierReadBytes
		if _, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids, Logits: dispatch.LogitsLast}}}); err != nil {
			t.Fatal(err)
		}
		return float64(m.Status().TierReadBytes - before)
	}
	pass(1)
	const rounds = 4 // reads ahead are counted in this pass or the next
	var one, many float64
	for range rounds {
		one += pass(1)
	}
	for range rounds {
		many += pass(120)
	}
	if many > 1.3*one || many == 0 {
		t.Errorf("%d prompts of 120 tokens read %.0f bytes, %d tokens %.0f", rounds, many, rounds, one)
	}
}
