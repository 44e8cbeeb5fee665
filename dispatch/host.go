package dispatch

import (
	"io/fs"
	"os"

	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/topology"
)

// A Host describes the memory and processors that this process may use.
type Host struct {
	TotalBytes     int64 // of memory; 0 where the machine does not say
	LimitBytes     int64 // the lowest limit of the process's control groups; 0 means none
	AvailableBytes int64 // see HostMemory
	CPUs           int   // that the machine lets the process run on
	Threads        int   // that compute unless Options say otherwise
	Cores          int   // physical cores that the process may use, with one or both of their threads
	Nodes          []HostNode
	Quota          float64 // processors' time that the control groups allow; 0 means no limit
}

// A HostNode is a NUMA node.
type HostNode struct {
	ID    int
	CPUs  int   // that the process may use
	Bytes int64 // of memory; 0 for none, or where the machine does not say
}

// hostNodes returns all NUMA nodes of m.
func hostNodes(m *topology.Machine) []HostNode {
	var out []HostNode
	for _, n := range m.Memory {
		node := HostNode{ID: n.ID, Bytes: n.Bytes}
		for _, c := range m.CPUs {
			if c.Node == n.ID {
				node.CPUs++
			}
		}
		out = append(out, node)
	}
	return out
}

// DescribeHost reads the description of this machine.
func DescribeHost() Host { return describeHost(os.DirFS("/")) }

// describeHost describes the machine whose /proc and /sys are below root.
func describeHost(root fs.FS) Host {
	m := topology.Here()
	total, _ := topology.Memory(root)
	h := Host{TotalBytes: total, AvailableBytes: placement.HostMemory(root),
		CPUs: len(m.CPUs), Threads: placement.DefaultThreads(m), Cores: m.Cores(), Nodes: hostNodes(&m), Quota: m.Quota}
	for _, g := range topology.MemoryGroups(root) {
		if h.LimitBytes == 0 || g.Limit < h.LimitBytes {
			h.LimitBytes = g.Limit
		}
	}
	return h
}

// HostMemory returns the memory in bytes that this process may take: the machine's available
// memory, or less if the limit of its control group or of its address space (ulimit -v) leaves
// less. 0 means unknown.
func HostMemory() int64 { return placement.HostMemory(os.DirFS("/")) }

// A GPU describes a GPU of this machine.
type GPU struct {
	Number         int
	Name           string
	MemoryBytes    int64
	AvailableBytes int64  // 0 if it is not used
	Capability     string // NVIDIA's compute capability, such as "8.0"
	Reason         string // why it is not used, or ""
}

// GPUs returns the GPUs of this machine. If there are none, reason says why, as text for users.
// The first call starts the driver, which takes some tenths of a second.
func GPUs() (list []GPU, reason string) {
	found, reason := gpus.List()
	for _, g := range found {
		list = append(list, GPU(g))
	}
	return list, reason
}

// GPUCode reports whether this build can use GPUs, which requires the build tag cuda.
const GPUCode = gpus.Built
