package dispatch

import (
	"path/filepath"
	"runtime"
)

// A Host is what the machine offers to this process.
type Host struct {
	TotalBytes     int64 // of memory; 0 where the machine does not say
	LimitBytes     int64 // of the process's control groups, the least; 0 for none
	AvailableBytes int64 // see HostMemory
	CPUs           int   // that the machine lets the process run on
	Threads        int   // that compute unless Options say otherwise: CPUs, or less by a quota
}

// DescribeHost looks at the machine.
func DescribeHost() Host { return describeHost("/") }

// describeHost reads below root, as hostMemory.
func describeHost(root string) Host {
	h := Host{TotalBytes: meminfo(filepath.Join(root, "proc/meminfo"), "MemTotal:"), AvailableBytes: hostMemory(root),
		CPUs: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0)}
	for _, g := range memoryGroups(root) {
		if h.LimitBytes == 0 || g.limit < h.LimitBytes {
			h.LimitBytes = g.limit
		}
	}
	return h
}
