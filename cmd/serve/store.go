package main

import (
	"github.com/heftai/heft/api/batches"
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/cmdline"
)

// storeFlags configure where responses, files and batches are stored.
type storeFlags struct {
	Store      string `help:"Keep responses, files and batches in this folder (default: responses in memory)." placeholder:"DIR"`
	StoreLimit string `help:"Limit --store to this size by dropping old responses (default ${default})." default:"1GiB" placeholder:"SIZE"`
}

func (f *storeFlags) check() error {
	_, err := f.limit()
	return err
}

func (f *storeFlags) limit() (int64, error) {
	n, err := devicemap.ParseSize(f.StoreLimit)
	if err != nil || n <= 0 {
		return 0, cmdline.Misusef("--store-limit %q: want a size such as 1GiB", f.StoreLimit)
	}
	return n, nil
}

// open opens the store of the folder. It returns nil without one.
func (f *storeFlags) open() (*store.Store, error) {
	if f.Store == "" {
		return nil, nil
	}
	limit, err := f.limit()
	if err != nil {
		return nil, err
	}
	s, err := store.Open(f.Store, limit)
	if err != nil {
		return nil, cmdline.Misusef("--store: %w", err)
	}
	return s, nil
}

// openBatches opens the files and batches of a store. s may be nil.
func openBatches(s *store.Store) (*batches.Server, error) {
	b, err := batches.Open(s)
	if err != nil {
		return nil, cmdline.Misusef("--store: %w", err)
	}
	return b, nil
}
