package dispatch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// TestConvertedWeightsWithoutAFolder: --quantize with weights on the disk ended the server where no folder could keep
// the converted ones. They are converted again in each pass, within the limit, and answers are those of weights in memory.
func TestConvertedWeightsWithoutAFolder(t *testing.T) {
	ids, prompt := lawIDs()
	notAFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notAFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, experts := range []bool{false, true} {
		for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
			s := shape{hidden: 384, inner: 512, heads: 6, kv: 2, dim: 64, vocab: 515, layers: 4, dtype: meta.BFloat16, shift: 3, tied: experts, experts: experts}
			dir := s.folder(t, rand.New(rand.NewPCG(8, 8)))
			o := dispatch.Options{Quantize: format, Threads: 2, MaxSequences: 4, CacheDir: t.TempDir()}
			whole := cpuModel(t, dir, o)
			want := forced(t, whole, ids, prompt, 7)
			host := whole.Plan().Device(devicemap.CPU)
			limit := host.Used() - host.RuntimeBytes - host.WeightsBytes/2 // options without Serving leave the runtime out
			whole.Close()
			writes := 0
			for name, change := range map[string]func(o *dispatch.Options){
				"a map":             func(o *dispatch.Options) { o.DeviceMap, _ = devicemap.ParsePolicy("disk") },
				"one block":         func(o *dispatch.Options) { o.DeviceMap, _ = devicemap.ParsePolicy("model.layers.1=disk") },
				"a limit":           func(o *dispatch.Options) { o.MaxMemory = limitOf(limit) },
				"a broken folder":   func(o *dispatch.Options) { o.MaxMemory, o.CacheDir = limitOf(limit), notAFolder },
				"a map, and broken": func(o *dispatch.Options) { o.DeviceMap, _ = devicemap.ParsePolicy("disk"); o.CacheDir = notAFolder },
				"a full folder": func(o *dispatch.Options) {
					o.MaxMemory, o.CacheDir = limitOf(limit), testenv.SmallDisk(t, host.WeightsBytes/2)
				},
				"a disk that breaks": func(o *dispatch.Options) {
					o.DeviceMap, _ = devicemap.ParsePolicy("disk")
					o.CacheDir, o.Ledger, writes = t.TempDir(), new(dispatch.Ledger), 0
					dispatchtest.InterceptWrites(o.Ledger, func(write func() error) error {
						if writes++; writes > 9 {
							return errors.New("broken disk")
						}
						return write()
					})
				},
			} {
				t.Run(fmt.Sprintf("experts %v, %v, %s", experts, format, name), func(t *testing.T) {
					o := o
					o.CacheDir = ""
					change(&o)
					convertsAgain(t, cpuModel(t, dir, o), want, name != "a disk that breaks") // after the start, for which the plan is
				})
			}
		}
	}
}

// convertsAgain compares answers of m with want, cold, loaded and under other limits. It checks that m keeps to its plan,
// which warns.
func convertsAgain(t *testing.T, m *dispatch.Model, want [][]float32, warns bool) {
	t.Helper()
	ids, prompt := lawIDs()
	if w := strings.Join(m.Plan().Warnings, "\n"); warns && !strings.Contains(w, "converted again in each pass") {
		t.Errorf("the plan warns of %q", w)
	}
	within := func(when string) {
		t.Helper()
		if held, limit := sum(m.Status().Held), usedBytes(m); held > limit {
			t.Errorf("%s %v is held, the plan takes %d", when, m.Status().Held, limit)
		}
	}
	sameLogits(t, "cold", forced(t, m, ids, prompt, 7), want)
	within("after a pass")
	load(t, m)
	within("after loading")
	sameLogits(t, "loaded", forced(t, m, ids, prompt, 7), want)
	least := m.SetMemoryLimit(0)
	sameLogits(t, "under the minimum", forced(t, m, ids, prompt, 7), want)
	if held := sum(m.Status().Held); held > least {
		t.Errorf("%v is held, the minimum is %d", m.Status().Held, least)
	}
	m.SetMemoryLimit(usedBytes(m))
	sameLogits(t, "and back", forced(t, m, ids, prompt, 7), want)
	within("back")
}

func limitOf(bytes int64) []devicemap.DeviceMemory {
	return []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(bytes)}}
}
