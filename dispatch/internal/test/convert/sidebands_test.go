package convert_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// converting are options of all ways to convert weights, with a new folder for the side-car.
func converting(t *testing.T) map[string]dispatch.Options {
	t.Helper()
	return map[string]dispatch.Options{
		"q8_0":  {Threads: 2, Quantize: meta.QuantQ8, CacheDir: t.TempDir()},
		"q4_0":  {Threads: 2, Quantize: meta.QuantQ4, CacheDir: t.TempDir()},
		"coded": {Threads: 2, Compress: dispatch.CompressExact, CacheDir: t.TempDir()},
	}
}

// TestConvertedMatricesStreamInBands: matrices of a side-car passed whole, so the largest one was the minimum.
// Now a pass reads each band once, in the first start and in those that find the file, and answers as with
// converted weights in memory.
func TestConvertedMatricesStreamInBands(t *testing.T) {
	s := dispatchtest.CodableShapes[0]
	dir := s.Folder(t, rand.New(rand.NewPCG(1, 31)))
	ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	for name, o := range converting(t) {
		inMemory := o
		inMemory.CacheDir = ""
		want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, inMemory), ids, prompt, 5)
		least := map[int64]int64{}
		for _, band := range []int64{16 << 10, 1 << 30} {
			need, err := dispatch.EstimateMemory(skeleton, dispatchtest.InBands(o, band), "")
			if err != nil {
				t.Fatal(err)
			}
			least[band] = need.Least
		}
		if bands, whole := least[16<<10], least[1<<30]; bands >= whole-(200<<10) {
			t.Errorf("%s: the minimum is %d bytes with bands and %d without", name, bands, whole)
		}
		for _, start := range []string{"first", "second", "third, in other bands"} {
			band := int64(16 << 10)
			if strings.HasPrefix(start, "third") {
				band = 12 << 10
			}
			m := dispatchtest.OnDisk(t, dir, dispatchtest.InBands(o, band))
			m.Warm(context.Background())
			m.Promote(context.Background())
			dispatchtest.SameLogits(t, name+", "+start+" start", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
			before := m.Status().TierReadBytes
			dispatchtest.SameLogits(t, name+", "+start+" start, again", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
			passes := int64(len(ids)-prompt) + int64((prompt+4)/5)
			plan := m.Plan()
			// Reads join neighbours, and some are ahead.
			read, per, slack := m.Status().TierReadBytes-before, plan.DiskBytesPerToken, plan.Device(devicemap.CPU).StagingBytes
			if diff := read - passes*per; diff > slack+passes*per/50 || -diff > slack+passes*per/50 {
				t.Errorf("%s, %s start: %d passes read %d bytes, the plan says %d each", name, start, passes, read, per)
			}
			m.Close()
		}
	}
}

// TestADamagedBandIsConvertedAgain: the bytes of a side-car are verified band by band, before a pass uses
// them. Wherever one is wrong, the answer is right, the log names the matrix and the file is repaired.
func TestADamagedBandIsConvertedAgain(t *testing.T) {
	s := dispatchtest.CodableShapes[0]
	dir := s.Folder(t, rand.New(rand.NewPCG(1, 32)))
	ids, prompt := dispatchtest.LawIDsOf(s.Vocab)
	rng := rand.New(rand.NewPCG(2, 32))
	for name, o := range converting(t) {
		o = dispatchtest.InBands(o, 16<<10)
		m := dispatchtest.OnDisk(t, dir, o)
		m.Warm(context.Background())
		m.Promote(context.Background())
		want := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
		dispatchtest.AwaitConversion(t, m)
		m.Close()
		var file string // next to a record of the matrices that coding does not make smaller
		for _, f := range dispatchtest.FileNames(t, o.CacheDir) {
			if strings.HasSuffix(f, ".safetensors") {
				file = f
			}
		}
		intact, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		side, err := loader.OpenBytes("side-car", map[string][]byte{"model.safetensors": intact})
		if err != nil {
			t.Fatal(err)
		}
		for x, sums := range checked(t, dir, side) {
			if rng.IntN(6) > 0 && !strings.Contains(x.Name, "lm_head") {
				continue
			}
			for _, at := range []int64{x.Offset + rng.Int64N(x.Size), x.Offset + x.Size - 1, sums.begin + rng.Int64N(sums.end-sums.begin)} {
				damaged := slices.Clone(intact)
				damaged[at] ^= byte(1 + rng.IntN(255))
				if err := os.WriteFile(file, damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				log := dispatchtest.LogOf(func() {
					m := dispatchtest.OnDisk(t, dir, o)
					defer m.Close()
					dispatchtest.SameLogits(t, fmt.Sprintf("%s, byte %d of %s", name, at-x.Offset, x.Name), dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
				})
				if !strings.Contains(log, x.Name) {
					t.Errorf("%s: the log does not name %s: %q", name, x.Name, log)
				}
				if now, err := os.ReadFile(file); err != nil || !slices.Equal(now, intact) {
					t.Errorf("%s: byte %d of %s was not repaired: %v", name, at-x.Offset, x.Name, err)
				}
			}
		}
	}
}

// TestIncompressibleWeightsStreamAsStored: a matrix that coding does not make smaller was used by page
// faults. It now streams from the checkpoint in bands, after the pass that has found out and in later starts.
func TestIncompressibleWeightsStreamAsStored(t *testing.T) {
	dir := dispatchtest.Incompressible(t)
	ids, prompt := dispatchtest.LawIDsOf(300)
	want := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1}), ids, prompt, prompt)
	o := dispatchtest.InBands(dispatch.Options{Threads: 2, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}, 16<<10)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	var more int64 // bytes that a pass reads of the two matrices, beyond the plan
	for p, coded := range skeleton.Root.Coded(meta.CodedShare) {
		if p.Bytes() == 2*384*256 && more == 0 || p.Bytes() == 2*256*256 && more > 0 && more <= 2*384*256 {
			more += p.Bytes() - coded
		}
	}
	for _, start := range []string{"first", "second"} {
		m := dispatchtest.OnDisk(t, dir, o)
		dispatchtest.SameLogits(t, start+" start", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		dispatchtest.SameLogits(t, start+" start, again", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		passes := 2 * int64(len(ids)-prompt+1)
		plan := m.Plan()
		if start == "second" { // whose plan knows it from the first one's record
			more = 0
		}
		// All weights that the passes used were read, whatever was read ahead. Only the first pass may cause page
		// faults.
		read, least := m.Status().TierReadBytes, (passes-1)*plan.DiskBytesPerToken+passes*more/4
		if read < least {
			t.Errorf("%s start: %d passes read %d bytes, want at least %d", start, passes, read, least)
		}
		m.Warm(context.Background())
		m.Promote(context.Background())
		dispatchtest.AwaitConversion(t, m)
		m.Close()
	}
}
