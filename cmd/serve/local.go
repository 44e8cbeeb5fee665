package main

import (
	"context"
	"time"

	"github.com/alecthomas/kong"
)

// newLocal returns the flags of a server within this process that serves path, for commands that
// are its only client. "" is the demo.
func newLocal(path string, place placeFlags, size sizeFlags, adapters adapterFlags) *runCmd {
	r := &runCmd{placeFlags: place, sizeFlags: size, adapterFlags: adapters, LogLevel: "warn", MaxQueue: 64}
	r.LogFormat, r.StoreLimit, r.KVStoreLimit, r.LoadTimeout = "text", "1GiB", "10GiB", time.Minute
	if path != "" {
		r.Model = []string{path}
	}
	return r
}

// startLocal makes the model ready without listening. end frees it.
func (c *runCmd) startLocal(ctx context.Context, k *kong.Context) (s *service, end func(), err error) {
	if err := c.log(); err != nil {
		return nil, nil, err
	}
	w, err := c.find(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	heap := limitHeap()
	if s, err = c.build(ctx, w); err != nil {
		heap.restore()
		return nil, nil, err
	}
	s.fleet.limitHeap(heap)
	leaveRoom(s.fleet.threads(), 0)
	s.fleet.begin(s.first)
	return s, func() {
		_ = s.server.Close() // no request is running
		s.close()
		heap.restore()
	}, nil
}
