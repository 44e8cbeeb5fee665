package probe

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/heftai/heft/internal/hostmem"
)

// readSize is the size of one read, equal to package residency's.
const readSize = 8 << 20

// disk measures the read rate of one of the files. It starts at a random offset, which is unlikely
// to be in a cache.
func disk(ctx context.Context, o Options) (*DiskRate, error) {
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
	block, err := hostmem.Alloc(o.Ledger, hostmem.Other, readSize)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = block.Release() }() // held once
	clear(block.Bytes())                   // touches the pages
	rate := &DiskRate{File: path}
	pieces := (f.Size() + readSize - 1) / readSize
	at := rand.Int64N(pieces)
	start := time.Now()
	for {
		n := min(readSize, f.Size()-at*readSize)
		if _, err := f.ReadAt(block.Bytes(), at*readSize, n); err != nil {
			return nil, fmt.Errorf("probe: %w", err)
		}
		rate.Bytes += n
		if time.Since(start) >= diskSlice || ctx.Err() != nil {
			break
		}
		at = (at + 1) % pieces
	}
	rate.BytesPerSecond = float64(rate.Bytes) / max(time.Since(start).Seconds(), 1e-9)
	rate.Direct = f.Direct()
	return rate, nil
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
