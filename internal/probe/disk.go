package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/hostmem"
)

const (
	// readSize is the largest size of a read, as in package residency.
	readSize = 8 << 20
	// nearlyBest is the share of the best rate that an earlier trial must reach to be chosen: more
	// bytes in flight take more time each, and smaller reads take more of the processors' time, which
	// the trials leave idle but computing does not. The leads of trials differ by up to 8 % between probes of one disk.
	nearlyBest = 0.92
	// diskRounds is how often each trial runs. The fastest of its runs counts, since the reads of others
	// only make one slower.
	diskRounds = 2
)

// diskTrials are the depths and sizes that are tried, fewer bytes in flight first, then larger reads.
var diskTrials = []DiskRate{
	{Depth: 1, RequestBytes: readSize}, {Depth: 2, RequestBytes: readSize / 2}, {Depth: 4, RequestBytes: readSize / 4},
	{Depth: 2, RequestBytes: readSize}, {Depth: 4, RequestBytes: readSize / 2}, {Depth: 8, RequestBytes: readSize / 4},
	{Depth: 4, RequestBytes: readSize}, {Depth: 8, RequestBytes: readSize},
}

// A DiskRate is the rate at which a file is read past the page cache.
type DiskRate struct {
	File           string  `json:"file"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	// Depth is the number of reads in flight, and RequestBytes their size, with which BytesPerSecond
	// was reached.
	Depth        int   `json:"depth"`
	RequestBytes int64 `json:"request_bytes"`
	Bytes        int64 `json:"bytes"` // number of bytes read, with all depths
	// Direct is false if the file system reads only through the page cache; the rate may then be
	// that of memory.
	Direct bool `json:"direct"`
}

// Disk measures how fast one of o.Files is read, with 1 to 8 reads of 2 to 8 MiB in flight. It chooses
// the fewest bytes in flight that are nearly as fast as the best, and measures these again for the rate.
// It starts at random offsets, which are unlikely to be in a cache, takes 320 ms and at most
// o.MemoryBytes, but at least 8 MiB.
func Disk(ctx context.Context, o Options) (*DiskRate, error) {
	path, err := choose(o.Files)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	f, err := hostmem.OpenDirect(path)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer f.Close()
	if f.Size() == 0 {
		return nil, fmt.Errorf("probe: %s is empty", path)
	}
	rates := trialsWithin(o.MemoryBytes)
	most := 0
	for _, rate := range rates {
		most = max(most, rate.inFlight())
	}
	block, err := hostmem.Alloc(o.Ledger, hostmem.Other, most)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = block.Release() }() // held once
	r := diskReader{file: f, memory: block.Bytes(), slice: trialSlice / time.Duration(diskRounds*len(diskTrials))}
	for range diskRounds {
		for i := range rates {
			if err := r.measure(ctx, &rates[i]); err != nil {
				return nil, err
			}
		}
	}
	best := first(rates)
	best.BytesPerSecond, r.slice = 0, rateSlice // the fastest of several short runs promises too much
	if err := r.measure(ctx, &best); err != nil {
		return nil, err
	}
	best.File, best.Bytes, best.Direct = path, r.bytes, f.Direct()
	return &best, nil
}

// inFlight is the memory that the reads of a trial take.
func (d *DiskRate) inFlight() int { return d.Depth * int(d.RequestBytes) }

// trialsWithin returns the trials that take at most so much memory, but at least readSize; 0 is no limit.
func trialsWithin(memory int64) []DiskRate {
	return slices.DeleteFunc(slices.Clone(diskTrials), func(d DiskRate) bool {
		return memory > 0 && d.inFlight() > int(max(memory, readSize))
	})
}

// first returns the first of rates that is nearly the best.
func first(rates []DiskRate) DiskRate {
	var best float64
	for _, r := range rates {
		best = max(best, r.BytesPerSecond)
	}
	at := slices.IndexFunc(rates, func(r DiskRate) bool { return r.BytesPerSecond >= nearlyBest*best })
	return rates[at]
}

// A diskReader reads one file for a slice of time.
type diskReader struct {
	file   *hostmem.DirectFile
	memory []byte // of all reads in flight
	slice  time.Duration
	bytes  int64
}

// measure reads for a slice and sets the rate, unless it was better before.
func (r *diskReader) measure(ctx context.Context, rate *DiskRate) error {
	pieces := (r.file.Size() + rate.RequestBytes - 1) / rate.RequestBytes
	var next, read atomic.Int64
	next.Store(rand.Int64N(pieces))
	errs := make([]error, rate.Depth)
	start := time.Now()
	var all sync.WaitGroup
	for i := range rate.Depth {
		all.Go(func() {
			to := r.memory[i*int(rate.RequestBytes):][:rate.RequestBytes]
			for first := true; first || time.Since(start) < r.slice && ctx.Err() == nil; first = false {
				off := (next.Add(1) - 1) % pieces * rate.RequestBytes
				n := min(rate.RequestBytes, r.file.Size()-off)
				if _, err := r.file.ReadAt(to, off, n); err != nil {
					errs[i] = fmt.Errorf("probe: %w", err)
					return
				}
				read.Add(n)
			}
		})
	}
	all.Wait()
	rate.BytesPerSecond = max(rate.BytesPerSecond, float64(read.Load())/max(time.Since(start).Seconds(), 1e-9))
	r.bytes += read.Load()
	return errors.Join(errs...)
}

// choose picks one of the files, with probability proportional to its size.
func choose(files []string) (string, error) {
	var total int64
	ends := make([]int64, len(files))
	for i, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		total += info.Size()
		ends[i] = total
	}
	if total == 0 {
		return files[0], nil
	}
	at := rand.Int64N(total)
	for i, end := range ends {
		if at < end {
			return files[i], nil
		}
	}
	return files[0], nil
}
