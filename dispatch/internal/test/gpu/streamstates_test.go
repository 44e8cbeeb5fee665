package gpu_test

import (
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// TestBlocksWithStatesStream: blocks of the CPU and the disk that have states stream to a GPU for long prompts, and the
// host has the states, and the snapshots that a prompt leaves, afterwards.
func TestBlocksWithStatesStream(t *testing.T) {
	for _, name := range []string{"lfm2-1", "qwen3-next-1", "mamba2-1", "falcon-h1-1"} {
		g := golden.OwnModel(t, "family-"+name)
		skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
		ids := append(stationIDs(g), stationIDs(g)...)
		prompt := len(ids) - 3
		var want [][]float32
		for _, from := range []int{0, 1} {
			o := withTwoGPUs(dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 12 * 128, StreamPrompts: from})
			m, err := dispatch.New(skeleton, checkpoint, stationMaps(skeleton)["disk between"], o)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			first := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
			if want == nil {
				want = first
			}
			dispatchtest.SameLogits(t, name, first, want)
			again, n := dispatchtest.AfterReuse(t, m, ids, prompt)
			dispatchtest.SameLogits(t, name+", after a prefix", again, want[n:])
			dispatchtest.SameLogits(t, name+", in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, ids, prompt, 7, 2), want)
			if n == 0 || dispatchtest.StreamsPrompts(m) != (from > 0) || (streamed(m) > 0) != (from > 0) {
				t.Errorf("%s from %d tokens: %d tokens reused, %d bytes streamed, prompts stream: %v", name, from, n, streamed(m), dispatchtest.StreamsPrompts(m))
			}
		}
	}
}
