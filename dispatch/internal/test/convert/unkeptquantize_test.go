package convert_test

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
	ids, prompt := dispatchtest.LawIDs()
	notAFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notAFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for experts, format := range map[bool]meta.QuantFormat{false: meta.QuantQ8, true: meta.QuantQ4} {
		s := dispatchtest.Shape{Hidden: 384, Inner: 512, Heads: 6, KV: 2, Dim: 64, Vocab: 515, Layers: 4, DType: meta.BFloat16, Shift: 3, Tied: experts, Experts: experts}
		dir := s.Folder(t, rand.New(rand.NewPCG(8, 8)))
		o := dispatch.Options{Quantize: format, Threads: 2, MaxSequences: 4, CacheDir: t.TempDir()}
		whole := dispatchtest.OpenModel(t, dir, o)
		want := dispatchtest.ForcedLogits(t, whole, ids, prompt, 7)
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
				convertsAgain(t, dispatchtest.OpenModel(t, dir, o), want, name != "a disk that breaks") // after the start, for which the plan is
			})
		}
	}
}

// TestALimitAboveTheMinimumWasTooSmallToConvert: plans did not count the memory in which a pass converts a unit, so that
// models did not open at some limits above their minimum, and exceeded it below.
func TestALimitAboveTheMinimumWasTooSmallToConvert(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	s := dispatchtest.Shape{Hidden: 384, Inner: 512, Heads: 6, KV: 2, Dim: 64, Vocab: 4099, Layers: 4, DType: meta.BFloat16, Shift: 3}
	dir := s.Folder(t, rand.New(rand.NewPCG(9, 9)))
	for name, folder := range map[string]string{"no folder": "", "a full folder": testenv.SmallDisk(t, 64<<10)} {
		o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, MaxSequences: 4, MaxMemory: limitOf(1 << 40), CacheDir: t.TempDir()}
		whole := dispatchtest.OpenModel(t, dir, o)
		want := dispatchtest.ForcedLogits(t, whole, ids, prompt, 7)
		whole.Close()
		o.CacheDir, o.MaxMemory = folder, limitOf(1)
		least := dispatchtest.OpenModel(t, dir, o)
		minimum := least.Plan().Least
		convertsAgain(t, least, want, true)
		least.Close()
		for _, more := range []int64{0, 64 << 10, 512 << 10, 2 << 20} {
			o.MaxMemory = limitOf(minimum + more)
			m := dispatchtest.OpenModel(t, dir, o)
			if host := m.Plan().Device(devicemap.CPU); host.Used() > minimum+more || m.Plan().BelowLeast {
				t.Errorf("%s: the plan takes %d bytes of %d, which is %d more than the minimum", name, host.Used(), minimum+more, more)
			}
			convertsAgain(t, m, want, true)
			m.Close()
		}
	}
}

// convertsAgain compares answers of m with want, cold, loaded and under other limits. It checks that m keeps to its plan,
// which warns.
func convertsAgain(t *testing.T, m *dispatch.Model, want [][]float32, warns bool) {
	t.Helper()
	ids, prompt := dispatchtest.LawIDs()
	if w := strings.Join(m.Plan().Warnings, "\n"); warns && !strings.Contains(w, "converted again in each pass") {
		t.Errorf("the plan warns of %q", w)
	}
	within := func(when string) {
		t.Helper()
		if held, limit := dispatchtest.Sum(m.Status().Held), dispatchtest.UsedBytes(m); held > limit {
			t.Errorf("%s %v is held, the plan takes %d", when, m.Status().Held, limit)
		}
	}
	dispatchtest.SameLogits(t, "cold", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	within("after a pass")
	dispatchtest.LoadAll(t, m)
	within("after loading")
	dispatchtest.SameLogits(t, "loaded", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	least := m.SetMemoryLimit(0)
	dispatchtest.SameLogits(t, "under the minimum", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	if held := dispatchtest.Sum(m.Status().Held); held > least {
		t.Errorf("%v is held, the minimum is %d", m.Status().Held, least)
	}
	m.SetMemoryLimit(dispatchtest.UsedBytes(m))
	dispatchtest.SameLogits(t, "and back", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	within("back")
}

func limitOf(bytes int64) []devicemap.DeviceMemory {
	return []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(bytes)}}
}
