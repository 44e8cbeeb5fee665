package gpu_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// TestStationsStorePages stores and restores pages on two backends of the CPU in place of GPUs.
func TestStationsStorePages(t *testing.T) { storesKeepBits(t, withTwoGPUs) }

// storesKeepBits holds that pages and states which a model has stored on some devices are restored on others: with high
// precision a prompt then has the bits of a computed one. With automatic precision devices share no pages with others.
func storesKeepBits(t *testing.T, gpus func(dispatch.Options) dispatch.Options) {
	for name, dir := range map[string]string{"plain": dispatchtest.StoreFolder(t, 1), "windows": golden.OwnDir(t, "family-gemma3-text-1"),
		"convolutions": golden.OwnDir(t, "family-lfm2-1"), "delta nets": golden.OwnDir(t, "family-qwen3-next-1")} {
		t.Run(name, func(t *testing.T) {
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
			all := stationMaps(skeleton)
			all["cpu"] = devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
			o := gpus(dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 8 * 128})
			run := func(at string, o dispatch.Options) (reused int, logits []float32) {
				m, err := dispatch.New(skeleton, checkpoint, all[at], o)
				if err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				defer m.Close() // which writes
				prompt := dispatchtest.StorePrompt()
				for i := range prompt {
					prompt[i] %= int32(m.Vocab())
				}
				return dispatchtest.Answered(t, m, "", "", prompt)
			}
			_, alone := run("cpu", o)
			for _, pair := range [][2]string{{"cpu", "all on a GPU"}, {"GPUs, CPU, disk", "cpu"}, {"between two GPUs", "head on a GPU"}} {
				o.KVStore = dispatchtest.OpenKVStore(t, t.TempDir())
				if n, logits := run(pair[0], o); n != 0 || dispatchtest.FirstDifference(logits, alone) >= 0 {
					t.Errorf("%s: %d tokens were reused, want none, or other bits", pair[0], n)
				}
				if n, logits := run(pair[1], o); n < 16 || dispatchtest.FirstDifference(logits, alone) >= 0 {
					t.Errorf("%s after %s: %d tokens were reused, or other bits", pair[1], pair[0], n)
				}
				auto := o
				auto.Precision = dispatch.PrecisionAuto
				run(pair[0], auto)
				if n, _ := run(pair[1], auto); n != 0 {
					t.Errorf("%s after %s with automatic precision: %d tokens were reused", pair[1], pair[0], n)
				}
				if n, _ := run(pair[1], auto); n < 16 {
					t.Errorf("%s after itself with automatic precision: %d tokens were reused", pair[1], n)
				}
			}
		})
	}
}
