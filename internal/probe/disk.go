package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heftai/heft/internal/hostmem"
)

const (
	// readSize is the largest size of a read, as in package residency.
	readSize = 8 << 20
	// smallRead is the other size that is tried.
	smallRead = 2 << 20
	// nearlyBest is the share of the best rate that a smaller depth must reach to be chosen: more
	// reads in flight take more time each.
	nearlyBest = 0.97
)

// depths are the numbers of reads in flight that are tried.
var depths = []int{1, 2, 4, 8}

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

// Disk measures how fast one of o.Files is read: with 1 to 8 reads of 8 MiB in flight, then with
// smaller reads. It chooses the smallest depth that is nearly as fast as the best. It starts at
// random offsets, which are unlikely to be in a cache, takes 160 ms and at most o.MemoryBytes.
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
	most := depths[len(depths)-1]
	if o.MemoryBytes > 0 {
		most = int(min(max(1, o.MemoryBytes/readSize), int64(most)))
	}
	block, err := hostmem.Alloc(o.Ledger, hostmem.Other, most*readSize)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = block.Release() }() // held once
	best := &DiskRate{File: path}
	r := diskReader{file: f, memory: block.Bytes(), slice: diskSlice / time.Duration(len(depths)+1)}
	var rates []DiskRate
	for _, depth := range depths {
		if depth <= most {
			rates = append(rates, DiskRate{Depth: depth, RequestBytes: readSize})
		}
	}
	for i := range rates {
		if err := r.measure(ctx, &rates[i]); err != nil {
			return nil, err
		}
	}
	chosen := smallest(rates)
	small := DiskRate{Depth: chosen.Depth, RequestBytes: smallRead}
	if err := r.measure(ctx, &small); err != nil {
		return nil, err
	}
	if small.BytesPerSecond*nearlyBest > chosen.BytesPerSecond {
		chosen = small
	}
	best.BytesPerSecond, best.Depth, best.RequestBytes = chosen.BytesPerSecond, chosen.Depth, chosen.RequestBytes
	best.Bytes, best.Direct = r.bytes, f.Direct()
	return best, nil
}

// smallest returns the first of rates that is nearly the best.
func smallest(rates []DiskRate) DiskRate {
	var best float64
	for _, r := range rates {
		best = max(best, r.BytesPerSecond)
	}
	for _, r := range rates {
		if r.BytesPerSecond >= nearlyBest*best {
			return r
		}
	}
	return DiskRate{Depth: 1, RequestBytes: readSize}
}

// A diskReader reads one file for a slice of time.
type diskReader struct {
	file   *hostmem.DirectFile
	memory []byte // readSize for each read in flight
	slice  time.Duration
	bytes  int64
}

// measure sets the rate for a depth and size of reads.
func (r *diskReader) measure(ctx context.Context, rate *DiskRate) error {
	pieces := (r.file.Size() + rate.RequestBytes - 1) / rate.RequestBytes
	var next, read atomic.Int64
	next.Store(rand.Int64N(pieces))
	errs := make([]error, rate.Depth)
	start := time.Now()
	var all sync.WaitGroup
	for i := range rate.Depth {
		all.Go(func() {
			to := r.memory[i*readSize:][:readSize]
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
	rate.BytesPerSecond = float64(read.Load()) / max(time.Since(start).Seconds(), 1e-9)
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
