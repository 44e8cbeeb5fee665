package main

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// heapMargin is the memory that the limit of Go's heap leaves free, in bytes. Go exceeds its limit
// by one large allocation, such as a request body, and the probe of the machine needs some memory.
const heapMargin = 32 << 20

// openingHeap is the limit of Go's memory in bytes before weights are loaded. Reading a tokenizer
// produces garbage.
const openingHeap = 128 << 20

// A heapLimit makes Go collect garbage before its memory exceeds the plan's part for requests and
// the runtime. Memory held by requests has its own limit, so whatever exceeds the limit is garbage.
// A lower GOMEMLIMIT in the environment takes precedence.
type heapLimit struct{ inherited int64 }

// limitHeap limits Go's memory while a model is opened.
func limitHeap() heapLimit {
	h := heapLimit{inherited: debug.SetMemoryLimit(-1)}
	debug.SetMemoryLimit(min(openingHeap, h.inherited))
	return h
}

// fit limits Go's memory to its part in a plan's row of the host. If the tokenizer and the model's
// description leave too little of it, the limit is higher. fit logs a warning if the plan does not
// leave enough free memory for the higher limit.
func (h heapLimit) fit(host devicemap.DevicePlan) {
	debug.FreeOSMemory() // frees the garbage of opening the model
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	limit, over := heapBytes(host, int64(now.Sys-now.HeapIdle))
	if over > 0 {
		slog.Warn("the tokenizer and the model's description take more memory than the plan has for the runtime; raise --max-memory",
			"more", gib(over))
	}
	debug.SetMemoryLimit(min(limit, h.inherited))
}

// follow lowers the limit of Go's memory together with the limit for requests, which the model
// changes.
func (h heapLimit) follow(m *dispatch.Model) {
	most, all := debug.SetMemoryLimit(-1), m.RequestBytes()
	m.NotifyRequests(func(n int64) {
		if limit := most - (all - n); limit != debug.SetMemoryLimit(-1) {
			debug.SetMemoryLimit(limit)
		}
	})
}

// heapBytes returns the limit of Go's memory on a host where Go already uses used bytes. The limit
// leaves room for garbage, an eighth of the memory for requests, and up to a quarter if the plan
// has free memory for it. over is the excess of the limit over the plan's part for Go and its free
// memory.
func heapBytes(host devicemap.DevicePlan, used int64) (limit, over int64) {
	planned := host.RuntimeBytes + host.RequestBytes - heapMargin
	room := planned + max(0, host.LimitBytes-host.Used())
	least, most := used+host.RequestBytes*9/8, used+host.RequestBytes*5/4
	limit = max(planned, least, min(most, room))
	return limit, max(0, limit-room)
}

// restore restores the limit before limitHeap, for programs that continue.
func (h heapLimit) restore() { debug.SetMemoryLimit(h.inherited) }

// logLimit logs a new memory limit.
func logLimit(l dispatch.MemoryLimit) {
	level := slog.LevelInfo
	if l.Short > 0 {
		level = slog.LevelWarn
	}
	slog.Log(context.Background(), level, l.String())
}
