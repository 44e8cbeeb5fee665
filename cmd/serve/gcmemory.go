package main

import (
	"log/slog"
	"runtime"
	"runtime/debug"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
)

// heapMargin is what the limit of Go's memory leaves free: Go exceeds it by what it allocates at
// once, a body for example, and the probe of the machine takes some.
const heapMargin = 32 << 20

// A heapLimit makes Go collect garbage before it takes more memory than the plan has for requests
// and the runtime. What requests hold has a limit of its own, so garbage alone has to give way. A
// lower GOMEMLIMIT in the environment stands.
type heapLimit struct{ inherited int64 }

// limitHeap limits Go's memory while a model is opened.
func limitHeap() heapLimit {
	h := heapLimit{inherited: debug.SetMemoryLimit(-1)}
	debug.SetMemoryLimit(min(dispatch.RuntimeBytes, h.inherited))
	return h
}

// fit limits Go's memory to what plan has for it. If the tokenizer and the model's description leave
// too little of it, the limit is higher, and a warning says so.
func (h heapLimit) fit(plan devicemap.Plan) {
	host := plan.Device(devicemap.CPU)
	limit := host.RuntimeBytes + host.RequestBytes - heapMargin
	debug.FreeOSMemory() // what opening the model has left
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	if least := int64(now.Sys-now.HeapIdle) + host.RequestBytes*5/4; least > limit {
		slog.Warn("the tokenizer and the model's description take more memory than the plan has for the runtime", "more", gib(least-limit))
		limit = least
	}
	debug.SetMemoryLimit(min(limit, h.inherited))
}

// restore is for programs that go on.
func (h heapLimit) restore() { debug.SetMemoryLimit(h.inherited) }
