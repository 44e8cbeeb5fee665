package main

import (
	"log/slog"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
)

// kvStoreFlags configure the store of KV cache pages.
type kvStoreFlags struct {
	KVStore      string `name:"kv-store" help:"Keep cached prompt prefixes in this folder, for restarts and other processes." placeholder:"DIR"`
	KVStoreLimit string `name:"kv-store-limit" help:"Limit --kv-store to this size by evicting the least recently used (default ${default})." default:"10GiB" placeholder:"SIZE"`
}

func (f *kvStoreFlags) check() error {
	_, err := f.limit()
	return err
}

func (f *kvStoreFlags) limit() (int64, error) {
	n, err := devicemap.ParseSize(f.KVStoreLimit)
	if err != nil || n <= 0 {
		return 0, cmdline.Misusef("--kv-store-limit %q: want a size such as 10GiB", f.KVStoreLimit)
	}
	return n, nil
}

// open opens the store of the folder. It returns nil without one.
func (f *kvStoreFlags) open() (*dispatch.KVStore, error) {
	if f.KVStore == "" {
		return nil, nil
	}
	limit, err := f.limit()
	if err != nil {
		return nil, err
	}
	s, err := dispatch.OpenKVStore(f.KVStore, limit, slog.Warn)
	if err != nil {
		return nil, cmdline.Misusef("--kv-store: %w", err)
	}
	return s, nil
}
