package files_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/meta"
)

// TestADiskThatFailsOneReadInAThousand generates from a disk whose reads fail now and then, while the
// limit walks at random: each failed read is repeated, and the logits are those of all weights in memory.
func TestADiskThatFailsOneReadInAThousand(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	ids, prompt := dispatchtest.LawIDs()
	o := dispatch.Options{Threads: 2, Context: 256, MaxBatchTokens: 32, MaxSequences: 2}
	whole := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, whole, ids, prompt, 9)
	whole.Close()
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	limit := need.Least - need.Runtime + (need.All-need.Least)/4
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Ledger = new(dispatch.Ledger)
	var reads, failed atomic.Int64
	dispatchtest.Intercept(o.Ledger, func(read func() error) error {
		if reads.Add(1)%1000 == 500 {
			failed.Add(1)
			return errors.New("a sector cannot be read")
		}
		return read()
	})
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rng := rand.New(rand.NewPCG(5, 5))
	for round := 0; failed.Load() < 3 && round < 400; round++ {
		m.SetMemoryLimit(limit/2 + rng.Int64N(limit))
		dispatchtest.SameLogits(t, "with a failing disk", dispatchtest.ForcedLogits(t, m, ids, prompt, 9), want)
	}
	if failed.Load() < 3 {
		t.Errorf("%d of %d reads failed, want 3", failed.Load(), reads.Load())
	}
}

// TestADiskThatFillsUpWhileWeightsAreConverted: the answers go on, with codes from weights as stored, and with a
// conversion that changes answers from weights that each pass converts. The next start takes nothing that was half
// written, and completes the file.
func TestADiskThatFillsUpWhileWeightsAreConverted(t *testing.T) {
	dir := dispatchtest.Incompressible(t)
	ids, prompt := dispatchtest.LawIDsOf(300)
	disk, _ := devicemap.ParsePolicy("disk")
	for _, base := range []dispatch.Options{{Compress: dispatch.CompressExact}, {Quantize: meta.QuantQ8}} {
		for _, after := range []int64{0, 1, 2, 7} { // writes, of bytes or of checksums
			what := fmt.Sprintf("%v %v, full after %d writes", base.Compress, base.Quantize, after)
			o := base
			o.Threads, o.DeviceMap, o.CacheDir = 2, disk, t.TempDir()
			want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Quantize: o.Quantize}), ids, prompt, prompt)
			var writes atomic.Int64
			var room atomic.Bool
			o.Ledger = new(dispatch.Ledger)
			dispatchtest.InterceptWrites(o.Ledger, func(write func() error) error {
				if n := writes.Add(1); !room.Load() && n > after {
					return &os.PathError{Op: "write", Path: filepath.Join(o.CacheDir, "some file"), Err: syscall.ENOSPC}
				}
				return write()
			})
			m := dispatchtest.OpenModel(t, dir, o)
			s := m.NewSequence()
			_, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: ids[:prompt], PromptLen: prompt, Logits: dispatch.LogitsLast}}})
			s.Free()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			dispatchtest.SameLogits(t, what, dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			m.Warm(context.Background())
			m.Promote(context.Background())
			dispatchtest.AwaitConversion(t, m)
			dispatchtest.SameLogits(t, what+", loaded", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			room.Store(true)
			dispatchtest.SameLogits(t, what+", with room", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
			m.Close()
			o.Ledger = nil
			for _, start := range []string{"next start", "one more"} {
				m = dispatchtest.OpenModel(t, dir, o)
				dispatchtest.SameLogits(t, what+", "+start, dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
				m.Warm(context.Background())
				m.Promote(context.Background())
				dispatchtest.AwaitConversion(t, m)
				m.Close()
				if list := dispatchtest.FileNames(t, o.CacheDir); !slices.ContainsFunc(list, func(name string) bool { return strings.HasSuffix(name, ".safetensors") && !atomicfile.IsTemp(name) }) {
					t.Errorf("%s: the folder has %q after the %s, want a complete file", what, list, start)
				}
			}
		}
	}
}

// TestAFailedReadOfAMappedWeightNamesItsFile: a disk that failed a page (EIO) left the error without the file, as the
// file itself is unchanged.
func TestAFailedReadOfAMappedWeightNamesItsFile(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Context: 64})
	for w := range m.Checkpoint().Tensors() {
		data, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		err = dispatchtest.FailedRead(m, "model.norm", &data[0])
		var failed *dispatch.WeightError
		if !errors.As(err, &failed) || failed.File != filepath.Join(dir, w.File.Name) || !strings.Contains(err.Error(), failed.File) {
			t.Fatalf("got %v, want an error that names %s", err, filepath.Join(dir, w.File.Name))
		}
	}
}
