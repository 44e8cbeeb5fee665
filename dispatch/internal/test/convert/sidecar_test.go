package convert_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// converted is a model with quantised weights that a policy places, and its logits.
func converted(t *testing.T, dir, policy string, o dispatch.Options, warm bool) [][]float32 {
	t.Helper()
	p, err := devicemap.ParsePolicy(policy)
	if err != nil {
		t.Fatal(err)
	}
	o.DeviceMap = p
	m, err := dispatch.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if warm {
		m.Warm(context.Background())
		m.Promote(context.Background())
		dispatchtest.AwaitConversion(t, m)
	}
	return inABatchOf(t, m, []int32{1, 5, 9, 2, 7, 3, 3, 8}, 8)
}

// TestQuantizedDiskTier: converted weights of the disk tier give the bits of those converted
// in memory, on the first start, on the next, which reads the file, under another map, and
// where a file is damaged, cut, stale or no safetensors file at all.
func TestQuantizedDiskTier(t *testing.T) {
	dir, cache := dispatchtest.DemoFolder(t), filepath.Join(t.TempDir(), "made", "here")
	for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
		want := converted(t, dir, "cpu", dispatch.Options{Quantize: format, Threads: 2}, false)
		o := dispatch.Options{Quantize: format, Threads: 2, CacheDir: cache}
		check := func(when, policy string, warm bool) {
			t.Helper()
			if got := converted(t, dir, policy, o, warm); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
				t.Errorf("%v, %s: the logits are others than with weights converted in memory", format, when)
			}
		}
		o.DeviceMap = devicemap.Policy{Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})}
		m, err := dispatch.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		m.Close() // early, with little converted
		for _, name := range dispatchtest.FileNames(t, cache) {
			if atomicfile.IsTemp(name) {
				t.Errorf("%s is left of a start that ended early", name)
			}
		}
		check("first start", "model.layers.1=disk", true)
		all := dispatchtest.FileNames(t, cache)
		slices.SortFunc(all, func(a, b string) int { return modified(t, a).Compare(modified(t, b)) })
		name := all[len(all)-1]
		before := modified(t, name)
		check("next start", "disk", true)
		check("another map", "model.layers.0=disk", true)
		check("the cpu alone", "cpu", true)
		if !modified(t, name).Equal(before) {
			t.Errorf("%v: the file was written again", format)
		}
		for what, harm := range map[string]func(b []byte) []byte{
			"damaged":        func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			"cut":            func(b []byte) []byte { return b[:len(b)-1] },
			"of another key": func(b []byte) []byte { b[40] ^= 1; return b },
			"no safetensors": func(b []byte) []byte { return []byte("{}") },
		} {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, policy := range []string{"disk", "model.layers.1=disk"} {
				if err := os.WriteFile(name, harm(slices.Clone(b)), 0o600); err != nil {
					t.Fatal(err)
				}
				check(what, policy, true)
				if now, err := os.ReadFile(name); err != nil || !slices.Equal(now, b) {
					t.Errorf("%v: a file that is %s was not made again: %v", format, what, err)
				}
			}
		}
	}
}

func modified(t *testing.T, name string) time.Time {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}

// TestQuantizedDiskTierNotices: a checkpoint that was written again is converted again.
func TestQuantizedDiskTierNotices(t *testing.T) {
	dir, cache := rewritten(t, func(string, []int, []float32) {}), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, CacheDir: cache}
	first := converted(t, dir, "disk", o, true)
	other := rewritten(t, func(name string, shape []int, v []float32) {
		for i := range v {
			v[i] *= 0.5
		}
	})
	for _, path := range dispatchtest.FileNames(t, other) {
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	second := converted(t, dir, "disk", o, true)
	if math.Abs(float64(first[0][0]-second[0][0])) < 1e-9 {
		t.Error("the weights are other ones, the logits are the same")
	}
	if n := len(dispatchtest.FileNames(t, cache)); n != 1 {
		t.Errorf("%d files for one checkpoint", n)
	}
}

// TestAKilledConversionResumes: a start continues the file that a killed process was writing. It
// keeps the matrices whose checksums agree, converts the others, and says so in the log.
func TestAKilledConversionResumes(t *testing.T) {
	dir, cache := dispatchtest.DemoFolder(t), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, CacheDir: cache}
	want := converted(t, dir, "disk", o, true)
	final := dispatchtest.FileNames(t, cache)[0]
	whole, err := os.ReadFile(final)
	if err != nil {
		t.Fatal(err)
	}
	ck, err := loader.OpenBytes("whole", map[string][]byte{"model.safetensors": whole})
	if err != nil {
		t.Fatal(err)
	}
	killed := slices.Clone(whole)
	i := 0
	for x, sums := range checked(t, dir, ck) { // every third matrix was written, every third is torn, the others are not begun
		switch i % 3 {
		case 1:
			killed[x.Offset+x.Size/2] ^= 1
		case 2:
			clear(killed[x.Offset:][:x.Size])
			clear(killed[sums.begin:sums.end])
		}
		i++
	}
	if i < 6 {
		t.Fatalf("%d matrices", i)
	}
	if err := os.Remove(final); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(cache, atomicfile.TempPrefix+"0123456789abcdef-"+filepath.Base(final))
	if err := os.WriteFile(temp, killed, 0o600); err != nil {
		t.Fatal(err)
	}
	var got [][]float32
	log := dispatchtest.LogOf(func() { got = converted(t, dir, "disk", o, true) })
	if !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
		t.Error("the logits are others than those of the first start")
	}
	if now, err := os.ReadFile(final); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the file is another one: %v", err)
	}
	if !strings.Contains(log, "continuing the conversion") {
		t.Errorf("the log says %q", log)
	}
	if all, _ := os.ReadDir(cache); len(all) != 1 {
		t.Errorf("%d files are left", len(all))
	}
}

// A span is where the checksums of a matrix are in a side-car.
type span struct{ begin, end int64 }

// checked iterates over the matrices of a side-car for the checkpoint in dir, with their checksums: one for 16
// rows.
func checked(t *testing.T, dir string, side *loader.Checkpoint) iter.Seq2[*loader.Tensor, span] {
	t.Helper()
	_, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	sums, _ := side.Lookup("heft.checksums")
	return func(yield func(*loader.Tensor, span) bool) {
		at := sums.Offset
		for x := range side.Tensors() {
			if x == sums {
				continue
			}
			name, _, _ := strings.Cut(x.Name, "/")
			source, ok := checkpoint.Lookup(name)
			if !ok {
				t.Fatalf("%s is of no tensor", x.Name)
			}
			end := at + int64(4*((source.Shape[0]+15)/16))
			if !yield(x, span{at, end}) {
				return
			}
			at = end
		}
		if at != sums.Offset+sums.Size {
			t.Errorf("%d bytes of checksums, want %d", sums.Size, at-sums.Offset)
		}
	}
}

// TestAStoppedConversionResumes: a model that is closed in the middle of its conversion leaves the
// file, and the next start continues it. It was removed, so converted weights were kept only after kills.
func TestAStoppedConversionResumes(t *testing.T) {
	dir, cache := dispatchtest.DemoFolder(t), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, CacheDir: cache}
	want := converted(t, dir, "disk", dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, CacheDir: t.TempDir()}, true)
	p, err := devicemap.ParsePolicy("disk")
	if err != nil {
		t.Fatal(err)
	}
	o.DeviceMap = p
	m, err := dispatch.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	stop := func(*dispatch.ModuleCall) error { return errors.New("stopped") }
	if _, err := m.AddHook(dispatch.Hook{Post: stop, Paths: m.Units()[1:2]}); err != nil {
		t.Fatal(err)
	}
	for _, err := range m.Generate(context.Background(), []int32{1, 5}, dispatch.GenerateOptions{}) {
		if err == nil {
			t.Fatal("the pass was not stopped")
		}
	}
	m.Close()
	all, _ := os.ReadDir(cache)
	if len(all) != 1 || !atomicfile.IsTemp(all[0].Name()) {
		t.Fatalf("a stopped conversion left %v, want the unfinished file", all)
	}
	var got [][]float32
	log := dispatchtest.LogOf(func() { got = converted(t, dir, "disk", o, true) })
	if !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
		t.Error("the logits differ from those of an uninterrupted conversion")
	}
	if !strings.Contains(log, "continuing the conversion") {
		t.Errorf("the log says %q", log)
	}
	if all, _ := os.ReadDir(cache); len(all) != 1 || atomicfile.IsTemp(all[0].Name()) {
		t.Errorf("the next start left %v", all)
	}
}

// TestAResumedConversionKeepsWhatIsThere: matrices that a killed process wrote are not converted
// again. One that is marked, with the checksum to it, keeps its mark.
func TestAResumedConversionKeepsWhatIsThere(t *testing.T) {
	dir, cache := dispatchtest.DemoFolder(t), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, CacheDir: cache}
	converted(t, dir, "disk", o, true)
	final := dispatchtest.FileNames(t, cache)[0]
	marked, err := os.ReadFile(final)
	if err != nil {
		t.Fatal(err)
	}
	ck, err := loader.OpenBytes("marked", map[string][]byte{"model.safetensors": marked})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	var again span
	for x, sums := range checked(t, dir, ck) {
		if i == 0 { // the first is marked
			marked[x.Offset+7] ^= 1
			tile := x.Size / ((sums.end - sums.begin) / 4)
			sum := crc32.Checksum(marked[x.Offset:][:tile], crc32.MakeTable(crc32.Castagnoli))
			binary.LittleEndian.PutUint32(marked[sums.begin:], sum)
		}
		if i++; i == 2 { // the second is to be converted
			again = sums
			clear(marked[sums.begin:sums.end])
			break
		}
	}
	if err := os.Remove(final); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, atomicfile.TempPrefix+"0123456789abcdef-"+filepath.Base(final)), marked, 0o600); err != nil {
		t.Fatal(err)
	}
	converted(t, dir, "disk", o, true)
	now, err := os.ReadFile(final)
	if err != nil {
		t.Fatal(err)
	}
	copy(marked[again.begin:again.end], now[again.begin:])
	if !bytes.Equal(now, marked) {
		t.Error("the marked matrix was converted again")
	}
}

// TestUnfinishedSidecarsGoAtEveryStart: a start without --quantize, too, removes what a killed
// process left of converted weights, as large as the model.
func TestUnfinishedSidecarsGoAtEveryStart(t *testing.T) {
	cache := t.TempDir()
	left := filepath.Join(cache, atomicfile.TempPrefix+"0123456789abcdef-killed-q8_0.safetensors")
	for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ4} {
		if err := os.WriteFile(left, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		converted(t, dispatchtest.DemoFolder(t), "cpu", dispatch.Options{Quantize: format, CacheDir: cache}, false)
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%v: the file is left", format)
		}
	}
}

// TestARebuiltSidecarSaysSo: weights that are converted although there is a file of them are worth
// a line in the log with the reason.
func TestARebuiltSidecarSaysSo(t *testing.T) {
	dir, cache := dispatchtest.DemoFolder(t), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, Threads: 2, CacheDir: cache}
	if log := dispatchtest.LogOf(func() { converted(t, dir, "disk", o, true) }); strings.Contains(log, "again") {
		t.Errorf("the first start says %q", log)
	}
	final := dispatchtest.FileNames(t, cache)[0]
	if log := dispatchtest.LogOf(func() { converted(t, dir, "disk", o, true) }); strings.Contains(log, "again") {
		t.Errorf("the second start says %q", log)
	}
	whole, err := os.ReadFile(final)
	if err != nil {
		t.Fatal(err)
	}
	for what, harm := range map[string]func(b []byte){
		"converting the weights again":      func(b []byte) { b[40] ^= 1 },
		"converting a damaged matrix again": func(b []byte) { b[len(b)/2] ^= 1 },
	} {
		harmed := slices.Clone(whole)
		harm(harmed)
		if err := os.WriteFile(final, harmed, 0o600); err != nil {
			t.Fatal(err)
		}
		if log := dispatchtest.LogOf(func() { converted(t, dir, "disk", o, true) }); !strings.Contains(log, what) || !strings.Contains(log, filepath.Base(final)) {
			t.Errorf("the log says %q, want %q and the file", log, what)
		}
	}
}

// TestQuantizedDiskTierWithoutAFolder: a folder that cannot be made ended the server; the plan warns and names it. Answers
// are compared in TestConvertedWeightsWithoutAFolder.
func TestQuantizedDiskTierWithoutAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := devicemap.ParsePolicy("disk")
	m := dispatchtest.OpenModel(t, dispatchtest.DemoFolder(t), dispatch.Options{DeviceMap: p, Quantize: meta.QuantQ8, CacheDir: filepath.Join(file, "sub")})
	if got := strings.Join(m.Plan().Warnings, "\n"); !strings.Contains(got, file) || !strings.Contains(got, "--cache-dir") {
		t.Errorf("the plan warns of %q, want the folder and what helps", got)
	}
}
