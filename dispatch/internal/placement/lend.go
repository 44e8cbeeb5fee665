package placement

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
)

const (
	// requestStep is the part of the memory for requests, 1/requestStep, that is never lent, and
	// the step in which it is taken back. mostRequestStep bounds it.
	requestStep     = 4
	mostRequestStep = 16 << 20
)

// UnusedByRequests returns the memory that is lent while requests hold the given bytes. Held
// bytes count twice, because Go's heap also holds garbage.
func UnusedByRequests(all, held int64) int64 {
	step := max(1, min(mostRequestStep, all/requestStep))
	return max(0, all-(2*held+2*step-1)/step*step)
}

// LendsToMatrices reports whether streamed matrices use memory of the plan that is otherwise
// unused.
func LendsToMatrices(plan *devicemap.Plan) bool {
	host := plan.Device(devicemap.CPU)
	return hostmem.Lazy && host.LimitBytes > 0 && host.KVBytes > 0 && plan.Policy != devicemap.Manual
}

// freeBytes returns the memory that the plan leaves free and that matrices use.
func freeBytes(plan *devicemap.Plan) int64 {
	if !LendsToMatrices(plan) {
		return 0
	}
	host := plan.Device(devicemap.CPU)
	return max(0, host.LimitBytes-host.Used())
}
