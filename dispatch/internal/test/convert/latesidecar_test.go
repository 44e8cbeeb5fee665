package convert_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// lowest lowers the limit of m to the minimum, and returns the counters of a pass under it, the second one.
func lowest(t *testing.T, m *dispatch.Model, want [][]float32) (misses, read int64) {
	t.Helper()
	ids, prompt := dispatchtest.LawIDs()
	least := m.SetMemoryLimit(0)
	m.SetMemoryLimit(least)
	dispatchtest.SameLogits(t, "displaced", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	before := m.Status()
	dispatchtest.SameLogits(t, "displaced, the second time", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
	after := m.Status()
	if held := dispatchtest.Sum(after.Held); held > least {
		t.Errorf("%v is held under a limit of %d", after.Held, least)
	}
	return after.Tiers[devicemap.CPU].Misses - before.Tiers[devicemap.CPU].Misses, after.TierReadBytes - before.TierReadBytes
}

// TestDisplacedConvertedWeightsStream: converted weights that a falling limit displaced were converted again in each
// pass. The first pass writes them to a side-car, later ones and the next start read that.
func TestDisplacedConvertedWeightsStream(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	for _, o := range []dispatch.Options{{Quantize: meta.QuantQ8}, {Quantize: meta.QuantQ4}, {Compress: dispatch.CompressExact}} {
		for _, tied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v %v, tied %v", o.Quantize, o.Compress, tied), func(t *testing.T) {
				dir, cache, o := dispatchtest.LateModel(t, tied, false), t.TempDir(), o
				o.Threads, o.MaxSequences = 2, 4
				m := dispatchtest.OpenModel(t, dir, o)
				want := dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
				dispatchtest.LoadAll(t, m)
				again, norms := lowest(t, m, want)
				m.Close()
				o.CacheDir = cache
				m = dispatchtest.OpenModel(t, dir, o)
				dispatchtest.LoadAll(t, m)
				dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
				if all := dispatchtest.FileNames(t, cache); o.Quantize != meta.QuantNone && len(all) > 0 {
					t.Errorf("%v is written although all weights stay in memory", all)
				}
				before := m.Status().Held
				misses, read := lowest(t, m, want)
				if o.Quantize != meta.QuantNone && (misses >= again/2 || read < 100*norms) {
					t.Errorf("the second pass misses %d weights of the cpu tier and streams %d bytes, without a side-car %d and %d", misses, read, again, norms)
				}
				if o.Quantize == meta.QuantNone && read >= norms*9/10 {
					t.Errorf("the second pass streams %d bytes, %d as stored", read, norms)
				}
				name, text := dispatchtest.WaitForSidecar(t, cache)
				m.SetMemoryLimit(dispatchtest.UsedBytes(m))
				for end := time.Now().Add(time.Minute); m.Status().Held["weights"] != before["weights"]; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%v is held, want %v again", m.Status().Held, before)
					}
				}
				dispatchtest.SameLogits(t, "back in memory", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
				m.Close()
				date := modified(t, name)
				m = dispatchtest.OpenModel(t, dir, o)
				dispatchtest.LoadAll(t, m)
				dispatchtest.SameLogits(t, "the next start", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
				if _, read := lowest(t, m, want); read == 0 {
					t.Error("the next start streams nothing under a low limit")
				}
				if now, text2 := dispatchtest.WaitForSidecar(t, cache); now != name || !modified(t, name).Equal(date) || !bytes.Equal(text, text2) {
					t.Error("the next start wrote the side-car again")
				}
			})
		}
	}
}

// TestALimitThatWalksWithALateSidecar: the limit changes at random within passes and between them, while the side-car
// is written. Logits keep their bits, with experts too.
func TestALimitThatWalksWithALateSidecar(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	for _, o := range []dispatch.Options{{Quantize: meta.QuantQ8}, {Compress: dispatch.CompressExact}} {
		for _, experts := range []bool{false, true} {
			o.Threads, o.MaxSequences, o.CacheDir = 2, 4, t.TempDir()
			m := dispatchtest.OpenModel(t, dispatchtest.LateModel(t, experts, experts), o)
			want := dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
			dispatchtest.LoadAll(t, m)
			dispatchtest.LimitWalks(t, m, ids, prompt, want)
			dispatchtest.WaitForSidecar(t, o.CacheDir)
			m.Close()
		}
	}
}

// TestALateSidecarIsResumed: a process that is killed, or stopped, while it writes the side-car leaves what it has to the
// next one, whose plan has all weights in memory too.
func TestALateSidecarIsResumed(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	dir, cache := dispatchtest.LateModel(t, false, false), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, MaxSequences: 4, CacheDir: cache}
	m := dispatchtest.OpenModel(t, dir, o) // without Warm, so that passes alone write
	want := dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
	m.SetMemoryLimit(m.SetMemoryLimit(0))
	stop := func(*dispatch.ModuleCall) error { return errors.New("stopped") }
	hook, err := m.AddHook(dispatch.Hook{Post: stop, Paths: m.Units()[2:3]})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range m.Generate(context.Background(), ids[:2], dispatch.GenerateOptions{}) {
		if err == nil {
			t.Fatal("the pass was not stopped")
		}
	}
	hook.Remove()
	m.Close()
	if left := dispatchtest.FileNames(t, cache); len(left) != 1 || !atomicfile.IsTemp(left[0]) {
		t.Fatalf("a stopped process left %v, want the unfinished file", left)
	}
	start := func(when string) (text []byte) {
		log := dispatchtest.LogOf(func() {
			m = dispatchtest.OpenModel(t, dir, o)
			dispatchtest.SameLogits(t, when, dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
			dispatchtest.LoadAll(t, m)
			dispatchtest.SameLogits(t, when+", loaded", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
			_, text = dispatchtest.WaitForSidecar(t, cache)
			m.Close()
		})
		if !strings.Contains(log, "continuing the conversion") {
			t.Errorf("%s: the log says %q", when, log)
		}
		return text
	}
	complete := start("after a stop")
	final, _ := dispatchtest.WaitForSidecar(t, cache)
	ck, err := loader.OpenBytes("whole", map[string][]byte{"model.safetensors": complete})
	if err != nil {
		t.Fatal(err)
	}
	killed, i := bytes.Clone(complete), 0
	for x, sums := range checked(t, dir, ck) { // every third matrix is torn, every third was not begun
		switch i++; i % 3 {
		case 1:
			killed[x.Offset+x.Size/2] ^= 1
		case 2:
			clear(killed[x.Offset:][:x.Size])
			clear(killed[sums.begin:sums.end])
		}
	}
	err = os.WriteFile(filepath.Join(cache, atomicfile.TempPrefix+"0123456789abcdef-"+filepath.Base(final)), killed, 0o600)
	if err := errors.Join(err, os.Remove(final)); err != nil {
		t.Fatal(err)
	}
	if again := start("after a kill"); !bytes.Equal(again, complete) {
		t.Error("the file that was continued differs")
	}
}

// TestALateSidecarThatCannotBeWritten: without room or permission weights are converted in each pass, with the same
// bits, and the log says so once with what helps. No request fails.
func TestALateSidecarThatCannotBeWritten(t *testing.T) {
	ids, prompt := dispatchtest.LawIDs()
	dir := dispatchtest.LateModel(t, false, false)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var size int64
	{
		o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, MaxSequences: 4, CacheDir: t.TempDir()}
		m := dispatchtest.OpenModel(t, dir, o)
		dispatchtest.LoadAll(t, m)
		lowest(t, m, dispatchtest.ForcedLogits(t, m, ids, prompt, 7))
		_, text := dispatchtest.WaitForSidecar(t, o.CacheDir)
		size = int64(len(text))
		m.Close()
	}
	writes := 0
	for what, c := range map[string]struct {
		folder func() string
		write  func(write func() error) error
		want   string
	}{
		"no folder":  {func() string { return "" }, nil, "--cache-dir"},
		"no room":    {func() string { return testenv.SmallDisk(t, size/2) }, nil, "free space there"},
		"no reserve": {func() string { return testenv.SmallDisk(t, size+64<<10) }, nil, "free space there"},
		"a file":     {func() string { return filepath.Join(file, "sub") }, nil, file},
		"an error of the disk": {t.TempDir, func(write func() error) error {
			if writes++; writes > 9 {
				return errors.New("broken disk")
			}
			return write()
		}, "broken disk"},
	} {
		o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, MaxSequences: 4, CacheDir: c.folder(), Ledger: new(dispatch.Ledger)}
		if c.write != nil {
			dispatchtest.InterceptWrites(o.Ledger, c.write)
		}
		log := dispatchtest.LogOf(func() {
			m := dispatchtest.OpenModel(t, dir, o)
			want := dispatchtest.ForcedLogits(t, m, ids, prompt, 7)
			dispatchtest.LoadAll(t, m)
			lowest(t, m, want)
			lowest(t, m, want)
			m.Close()
		})
		if n := strings.Count(log, "converted again in each pass"); n != 1 || !strings.Contains(log, c.want) {
			t.Errorf("%s: the log says so %d times, want once with %q: %s", what, n, c.want, log)
		}
	}
}
