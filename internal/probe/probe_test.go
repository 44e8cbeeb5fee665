package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/roof"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func file(t *testing.T, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRates checks what any machine does, and no timing: between 1 MB and 100 TB a second.
func TestRates(t *testing.T) {
	plausible := func(what string, rate float64) {
		t.Helper()
		if rate < 1e6 || rate > 1e14 {
			t.Errorf("%s: %g a second", what, rate)
		}
	}
	var ledger hostmem.Ledger
	path := file(t, 9<<20)
	r, err := Run(context.Background(), Options{Threads: []int{1, 2}, Files: []string{path}, MemoryBytes: 64 << 20, Ledger: &ledger})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Memory) != 2 || r.Memory[0].Threads != 1 || r.Memory[1].Threads != 2 {
		t.Fatalf("memory: %+v", r.Memory)
	}
	for _, m := range r.Memory {
		plausible("memory", m.BytesPerSecond)
	}
	for _, f := range []string{"float32", "bfloat16"} {
		plausible(f, r.ComputeFor(f, false))
	}
	for _, f := range []string{"bfloat16", "q8_0"} {
		plausible(f+" with rounded tokens", r.ComputeFor(f, true))
	}
	for _, p := range r.Peaks {
		plausible(p.Name, r.PeakOf(p.Name))
	}
	if len(r.Peaks) != len(roof.Roofs()) || r.PeakOf("abacus") != 0 {
		t.Errorf("peaks: %+v", r.Peaks)
	}
	if r.Compute[0].Threads != 2 || r.Compute[0].Variant != kernels.Names()[0] {
		t.Errorf("compute: %+v", r.Compute)
	}
	for _, c := range r.Compute {
		if len(c.ByTokens) != len(tokenCounts) {
			t.Errorf("%s: rates by tokens are %+v", c.Weights, c.ByTokens)
		}
		for i, rate := range c.ByTokens {
			if plausible(c.Weights, rate.OperationsPerSecond); rate.Tokens != tokenCounts[i] {
				t.Errorf("%s: rate %d is of %d tokens", c.Weights, i, rate.Tokens)
			}
		}
	}
	plausible("floats", r.FloatsPerSecond)
	if r.OperationSeconds < 0 || r.OperationSeconds > 1 {
		t.Errorf("an operation takes %v s", r.OperationSeconds)
	}
	plausible("disk", r.Disk.BytesPerSecond)
	if r.Disk.File != path || r.Disk.Bytes < 1<<20 {
		t.Errorf("disk: %+v", r.Disk)
	}
	if ledger.Total() != 0 || ledger.Peak(hostmem.Other) < 64<<20 {
		t.Errorf("ledger: %d bytes held, %d at most", ledger.Total(), ledger.Peak(hostmem.Other))
	}
}

func TestEveryVariantComputes(t *testing.T) {
	for _, name := range kernels.Names() {
		r, err := Run(context.Background(), Options{Threads: []int{1}, Variant: name, MemoryBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Memory != nil || r.Disk != nil || r.Compute[1].Variant != name || r.ComputeFor("q8_0", true) <= 0 || r.ByTokensFor("q8_0", true) != nil || r.FloatsPerSecond != 0 {
			t.Errorf("%s without memory and files: %+v", name, r)
		}
	}
}

// TestProductsStayWithinTheMemory: products for many threads took more than the memory that a probe may take next to
// a model.
func TestProductsStayWithinTheMemory(t *testing.T) {
	var ledger hostmem.Ledger
	const memory = 32 << 20
	if _, err := Run(t.Context(), Options{Threads: []int{8}, MemoryBytes: memory, Ledger: &ledger}); err != nil {
		t.Fatal(err)
	}
	if most := ledger.Peak(hostmem.Activations); most == 0 || most > memory {
		t.Errorf("products took %d bytes, want at most %d", most, memory)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	if _, err := Run(ctx, Options{Files: []string{file(t, 1<<20)}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 20*Limit {
		t.Errorf("it took %v after it was cancelled", took)
	}
}

func TestErrorsNameTheirPlace(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	for name, c := range map[string]struct {
		o    Options
		want string
		is   error
	}{
		"missing file": {Options{Files: []string{gone}}, gone, fs.ErrNotExist},
		"empty file":   {Options{Files: []string{file(t, 0)}}, "is empty", nil},
		"folder":       {Options{Files: []string{t.TempDir()}}, "not a regular file", nil},
		"variant":      {Options{Variant: "abacus"}, `no variant "abacus"`, nil},
		"threads":      {Options{Threads: []int{0}}, "0 threads", nil},
	} {
		c.o.MemoryBytes = 1
		_, err := Run(context.Background(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestLastPieceOfAFile reads a file that ends within a piece from any start.
func TestLastPieceOfAFile(t *testing.T) {
	path := file(t, readSize+4097)
	for range 4 {
		if _, err := Disk(context.Background(), Options{Files: []string{path}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestANoisyMomentChoseSmallReads: each trial counts with its fastest run, and of nearly equal ones the first is
// chosen, which has fewer bytes in flight and then larger reads. Before, one slow run of large reads was enough for
// small ones to be chosen for good. The last two rows are rates of one disk, in units of 10 MB/s, at which 2 MiB were
// chosen for a lead that another run did not have; during computation, 2 reads of 4 MiB are faster there.
func TestANoisyMomentChoseSmallReads(t *testing.T) {
	speeds := func(v ...float64) []DiskRate {
		rates := slices.Clone(diskTrials[:len(v)])
		for i := range rates {
			rates[i].BytesPerSecond = v[i]
		}
		return rates
	}
	for _, c := range []struct {
		rates       []DiskRate
		depth, size int
	}{
		{speeds(100, 99, 102, 101), 1, 8 << 20},
		{speeds(100, 180, 182, 181), 2, 4 << 20},
		{speeds(100, 100, 100, 190, 195, 200, 300, 500), 8, 8 << 20},
		{speeds(100, 100, 120), 4, 2 << 20},
		{speeds(0), 1, 8 << 20},
		{speeds(219, 267, 287, 235, 255, 262, 232, 210), 2, 4 << 20},
		{speeds(109, 251, 240, 236, 248, 267, 203, 214), 2, 4 << 20},
	} {
		if got := first(c.rates); got.Depth != c.depth || got.RequestBytes != int64(c.size) {
			t.Errorf("%v: depth %d, reads of %d, want %d of %d", c.rates, got.Depth, got.RequestBytes, c.depth, c.size)
		}
	}
	path := file(t, 40<<20)
	f, err := hostmem.OpenDirect(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block, err := hostmem.Alloc(nil, hostmem.Other, readSize)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = block.Release() }()
	r := diskReader{file: f, memory: block.Bytes()}
	rate := DiskRate{Depth: 1, RequestBytes: readSize, BytesPerSecond: 1e18}
	if err := r.measure(t.Context(), &rate); err != nil || rate.BytesPerSecond != 1e18 || r.bytes == 0 {
		t.Errorf("a slow run after a fast one: %+v, %v", rate, err)
	}
	for memory, most := range map[int64]int{0: 64 << 20, 1: 8 << 20, 20 << 20: 16 << 20} {
		got, err := Disk(t.Context(), Options{Files: []string{path}, MemoryBytes: memory})
		if err != nil || got.Depth < 1 || got.inFlight() > most || got.BytesPerSecond <= 0 {
			t.Errorf("with %d bytes of memory: %+v, %v", memory, got, err)
		}
	}
}

// TestADamagedDiskFileIsIgnored: the rate of a disk is kept for all its files; a damaged file counts
// as none.
func TestADamagedDiskFileIsIgnored(t *testing.T) {
	path, other, folder := file(t, 1000), file(t, 10), t.TempDir()
	if KeptDisk(folder, path) != nil || KeptDisk("", path) != nil || KeepDisk("", &DiskRate{}) != nil {
		t.Error("something is kept of nothing")
	}
	want := DiskRate{File: path, BytesPerSecond: 2e9, Depth: 4, RequestBytes: readSize, Direct: true}
	if err := KeepDisk(folder, &want); err != nil {
		t.Fatal(err)
	}
	if got := KeptDisk(folder, other); got == nil || *got != want {
		t.Errorf("kept %+v, want %+v", got, want)
	}
	name, err := diskFile(folder, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", "[]", fmt.Sprintf(`{"version": %d, "rate": {"depth": -1}}`, keptVersion),
		fmt.Sprintf(`{"version": %d, "rate": {"depth": 1}}`, keptVersion), "\x00\xff"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := KeptDisk(folder, path); got != nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}

// TestAStaleDiskRateIsMeasuredAgain: measurements of an earlier version, with other trials, do not count.
func TestAStaleDiskRateIsMeasuredAgain(t *testing.T) {
	path, folder := file(t, 10), t.TempDir()
	if err := KeepDisk(folder, &DiskRate{File: path, BytesPerSecond: 2e9, Depth: 4, RequestBytes: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	name, err := diskFile(folder, path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	now, before := fmt.Sprintf(`"version": %d`, keptVersion), fmt.Sprintf(`"version": %d`, keptVersion-1)
	if KeptDisk(folder, path) == nil || !strings.Contains(string(data), now) {
		t.Fatalf("not kept: %s", data)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(data), now, before, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := KeptDisk(folder, path); got != nil {
		t.Errorf("a rate of version %d gives %+v", keptVersion-1, got)
	}
}

func TestCounts(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 2: {1, 2}, 6: {1, 2, 4, 6}, 8: {1, 2, 4, 8}} {
		if got := Counts(n); !slices.Equal(got, want) {
			t.Errorf("Counts(%d) = %v, want %v", n, got, want)
		}
	}
}

func TestMemoryAtTakesTheNearestCount(t *testing.T) {
	r := Rates{Memory: []MemoryRate{{1, 10}, {2, 20}, {8, 50}}}
	for n, want := range map[int]float64{1: 10, 3: 20, 6: 50, 64: 50} {
		if got := r.MemoryAt(n); got != want {
			t.Errorf("MemoryAt(%d) = %g, want %g", n, got, want)
		}
	}
	if got := (&Rates{}).MemoryAt(1); got != 0 {
		t.Errorf("without memory: %g", got)
	}
}

// BenchmarkRun is all of a probe but the disk.
func BenchmarkRun(b *testing.B) {
	for b.Loop() {
		r, err := Run(context.Background(), Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(r.Memory[len(r.Memory)-1].BytesPerSecond/1e9, "GB/s")
		b.ReportMetric(r.ComputeFor("float32", false)/1e9, "GFLOPS")
	}
}

// TestAProbeInAFewMegabytesReadTheCaches: every round writes the file past the caches before it reads it, all of it,
// and the memory of a thread does not depend on how many read. Before, a start whose system was slow to give memory
// read 32 MiB again and again, at twice the rate of memory on a Zen 5.
func TestAProbeInAFewMegabytesReadTheCaches(t *testing.T) {
	parts := partsOf(hostmemBytes(t, 3<<20+64), 3)
	for i, part := range parts {
		if len(part) != 1<<20 {
			t.Errorf("part %d has %d bytes", i, len(part))
		}
		part[0], part[len(part)-1] = 7, 7
	}
	if rate := round(parts); rate <= 0 {
		t.Errorf("%g bytes a second", rate)
	}
	for i, part := range parts {
		if part[0] == 7 || part[len(part)-1] == 7 {
			t.Errorf("part %d was read as it lay in the caches", i)
		}
	}
}

// hostmemBytes returns n bytes as the probe reads them.
func hostmemBytes(t *testing.T, n int) []byte {
	t.Helper()
	block, err := hostmem.Alloc(nil, hostmem.Other, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = block.Release() }) // held once
	return block.Bytes()
}
