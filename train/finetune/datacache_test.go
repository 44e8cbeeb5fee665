package finetune

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/data"
)

// cachedRun trains with a cache and returns the run's output and weights.
func cachedRun(t *testing.T, cache string, change func(o *Options), files ...string) (said string, weights []byte) {
	t.Helper()
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	var log bytes.Buffer
	o := Defaults()
	o.Output, o.DataCache, o.MaxSteps, o.Batch, o.Threads, o.LoRA = filepath.Join(t.TempDir(), "out"), cache, 3, 2, 1, "r=2"
	o.LearningRate, o.Sequence = 0.01, 64
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	if change != nil {
		change(&o)
	}
	if _, err := Run(t.Context(), dir, files, o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(o.Output, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return log.String(), b
}

// cachedText is a file of texts, some of which cannot be used.
func cachedText(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": \"what comes after %d? \", \"completion\": \"%d%s\"}\n", i, i+1, strings.Repeat(" or more", i%4))
	}
	path := filepath.Join(t.TempDir(), "text.jsonl")
	if err := os.WriteFile(path, []byte(b.String()+"{\"txt\": \"a typo\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTokenisedDataIsCached compares runs with the cache, at first and again, with runs without it: of texts, packed
// and weighted ones, and comparisons. A damaged file is made again, other options have files of their own.
func TestTokenisedDataIsCached(t *testing.T) {
	text, more := cachedText(t, 40), cachedText(t, 30)
	pairs := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference", "text.jsonl")
	for _, c := range []struct {
		name   string
		change func(o *Options)
		files  []string
		count  int
	}{
		{"texts", nil, []string{text}, 1},
		{"packed", func(o *Options) { o.Pack, o.Sequence = true, 24 }, []string{text}, 2},
		{"weighted", func(o *Options) { o.DataWeights, o.Sequence = []float64{1.5, 0.5}, 32 }, []string{text, more}, 2},
		{"comparisons", func(o *Options) { o.Method, o.Beta = "dpo", 0.1 }, []string{pairs}, 1},
		{"judged", func(o *Options) { o.Method = "kto" }, []string{pairs}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			_, want := cachedRun(t, "none", c.change, c.files...)
			said, got := cachedRun(t, cache, c.change, c.files...)
			if !bytes.Equal(got, want) || c.files[0] == text && !strings.Contains(said, "skipped=1 of=41") {
				t.Errorf("the first run with a cache: equal weights %v, said %s", bytes.Equal(got, want), said)
			}
			files, err := filepath.Glob(filepath.Join(cache, "*"))
			if err != nil || len(files) != c.count {
				t.Fatalf("got files %v, %v, want %d", files, err, c.count)
			}
			said, got = cachedRun(t, cache, c.change, c.files...)
			if !bytes.Equal(got, want) || !strings.Contains(said, "cached tokenised data is used") || c.files[0] == text && !strings.Contains(said, "skipped=1 of=41") {
				t.Errorf("another run: equal weights %v, said %s", bytes.Equal(got, want), said)
			}
			b, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(files[0], b, 0o600); err != nil {
				t.Fatal(err)
			}
			said, got = cachedRun(t, cache, c.change, c.files...)
			if !bytes.Equal(got, want) || !strings.Contains(said, "is made again") {
				t.Errorf("after damage: equal weights %v, said %s", bytes.Equal(got, want), said)
			}
			said, _ = cachedRun(t, cache, func(o *Options) {
				if c.change != nil {
					c.change(o)
				}
				o.Sequence -= 2
			}, c.files...)
			if strings.Contains(said, "cached tokenised data is used") {
				t.Errorf("another --sequence uses the samples of the first one: %s", said)
			}
		})
	}
}

// TestSmallDataIsNotCached: by default neither small data is, nor any where no folder can be made.
func TestSmallDataIsNotCached(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	t.Setenv("HOME", home)
	cachedRun(t, "auto", nil, cachedText(t, 40))
	if files, _ := filepath.Glob(filepath.Join(home, "heft", "data", "*")); len(files) > 0 {
		t.Errorf("got %v", files)
	}
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, _ := cachedRun(t, filepath.Join(file, "cache"), nil, cachedText(t, 40)); !strings.Contains(said, "kept in memory") {
		t.Errorf("said %s", said)
	}
}

// TestTheCacheForgets the files that were not used for the longest time.
func TestTheCacheForgets(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	for i, name := range []string{"c", "a", "b", "d"} {
		path := filepath.Join(dir, name+cacheSuffix)
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		at := now.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	j := &job{Options: &Options{DataCache: dir}}
	for _, c := range []struct {
		most int64
		want string
	}{{400, "a b c d"}, {250, "b d"}, {1, "d"}} {
		j.trimCache(c.most)
		var left []string
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, f := range files {
			left = append(left, strings.TrimSuffix(filepath.Base(f), cacheSuffix))
		}
		if got := strings.Join(left, " "); got != c.want {
			t.Errorf("at most %d bytes: left %s, want %s", c.most, got, c.want)
		}
	}
}

// TestSamplesAreCoded: samples come back as they were, and others than samples are errors.
func TestSamplesAreCoded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := func() []int32 {
		out := make([]int32, r.IntN(20))
		for i := range out {
			out[i] = r.Int32N(300000)
		}
		return out
	}
	for range 200 {
		s := data.Sequence{IDs: ids()}
		s.Labels = slices.Clone(s.IDs)
		for i := range s.Labels {
			switch r.IntN(3) {
			case 0:
				s.Labels[i] = data.IgnoreLabel
			case 1:
				s.Labels[i] = r.Int32N(1000)
			}
		}
		if r.IntN(2) == 0 && len(s.IDs) > 0 {
			s.Positions = ids()
		}
		b := sequenceCodec{}.Append(nil, s)
		if got, err := (sequenceCodec{}).Decode(b); err != nil || !slices.Equal(got.IDs, s.IDs) || !slices.Equal(got.Labels, s.Labels) || !slices.Equal(got.Positions, s.Positions) {
			t.Fatalf("got %v, %v, want %v", got, err, s)
		}
		c := data.Comparison{Prompt: ids(), Completions: [][]int32{ids(), ids()}[:1+r.IntN(2)], Desirable: r.IntN(2) == 0, Margin: r.NormFloat64()}
		if got, err := (comparisonCodec{}).Decode(comparisonCodec{}.Append(nil, c)); err != nil || !reflect.DeepEqual(got, c) {
			t.Fatalf("got %v, %v, want %v", got, err, c)
		}
		for n := range b {
			_, _ = sequenceCodec{}.Decode(b[:n]) // must not panic
		}
	}
}

// TestMemoryDoesNotGrowWithTheData reads a data set many times the size of what stays in memory.
func TestMemoryDoesNotGrowWithTheData(t *testing.T) {
	j := &job{Options: &Options{DataCache: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
	const count, length = 20000, 500 // 80 MB as slices
	d, err := makeSamples(j, "x", keyOf("x"), sequenceCodec{}, func(emit func(data.Sequence) error) (r report, err error) {
		s := data.Sequence{IDs: make([]int32, length), Labels: make([]int32, length)}
		for i := range count {
			s.IDs[0] = int32(i)
			if err := emit(s); err != nil {
				return r, err
			}
		}
		return r, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer j.closeData()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range d.Len() {
		if s, err := d.At(i); err != nil || s.IDs[0] != int32(i) || len(s.IDs) != length {
			t.Fatalf("sample %d: %v", i, err)
		}
	}
	runtime.GC()
	if runtime.ReadMemStats(&after); after.HeapAlloc > before.HeapAlloc+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
	if d.Len() != count {
		t.Errorf("got %d samples, want %d", d.Len(), count)
	}
}
