package main

import (
	"github.com/heftai/heft/api/store"
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/cmdline"
)

// storeFlags say where responses are kept.
type storeFlags struct {
	Store      string `help:"Keep responses in this folder (default: in memory, until the server ends)." placeholder:"DIR"`
	StoreLimit string `help:"Drop the least recently used beyond this size of --store (default ${default})." default:"1GiB" placeholder:"SIZE"`
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

// open returns the store of the folder, nil without one.
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
