package topology

import (
	"cmp"
	"math"
	"os"
	"runtime"
	"slices"
)

// A CPU is a processor as the system numbers them: one hardware thread.
type CPU struct {
	ID   int `json:"id"`
	Core int `json:"core"` // the lowest ID among the threads of its core
	Node int `json:"node"` // of memory
	// Speed is the core's share of the fastest core's speed, in quarters, because cores of one kind
	// differ by little; 1 where the system says nothing.
	Speed float64 `json:"speed"`
}

// A Machine describes the processors and the memory that this process may use.
type Machine struct {
	// CPUs are the processors that are online and that the process may use, in order of ID.
	CPUs []CPU `json:"cpus"`
	// Offline is the number of other processors: those that do not run or are not allowed.
	Offline int `json:"unavailable"`
	// Memory lists the online nodes, in order of ID. [Here] returns at least one.
	Memory []Node `json:"-"`
	// Quota is the processor time that the control groups allow, in processors; 0 means no
	// limit.
	Quota float64 `json:"quota"`
}

// Here returns this machine. If the system does not describe its processors, each processor that Go
// sees is a core, and all are on one node.
func Here() Machine {
	m := Read(os.DirFS("/"), affinity())
	if len(m.CPUs) == 0 {
		m.Memory = []Node{{Memory: true}}
		for i := range runtime.NumCPU() {
			m.CPUs = append(m.CPUs, CPU{ID: i, Core: i, Speed: 1})
		}
	}
	return m
}

// Cores returns the number of physical cores that may be used.
func (m *Machine) Cores() int {
	cores := map[int]bool{}
	for _, c := range m.CPUs {
		cores[c.Core] = true
	}
	return len(cores)
}

// Nodes returns the memory nodes of the processors that may be used, in ascending order.
func (m *Machine) Nodes() []int {
	var nodes []int
	for _, c := range m.CPUs {
		nodes = append(nodes, c.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Threads returns the default number of compute threads: one per core, and no more than the quota
// allows. A quota of 1.5 processors allows two.
func (m *Machine) Threads() int {
	n := m.Cores()
	if m.Quota > 0 {
		n = min(n, int(math.Ceil(m.Quota)))
	}
	return max(n, 1)
}

// Places returns processors for n threads: one of each core first, fast cores before slow ones,
// then second threads of cores, then all again. They are taken evenly from the nodes and ordered by
// node, so that neighbours share memory.
func (m *Machine) Places(threads int) []CPU {
	if len(m.CPUs) == 0 || threads < 1 {
		return nil
	}
	order := m.ranked()
	out := make([]CPU, threads)
	for i := range out {
		out[i] = order[i%len(order)]
	}
	slices.SortStableFunc(out, func(a, b CPU) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// ranked returns the processors in the order in which threads take them.
func (m *Machine) ranked() []CPU {
	type rank struct {
		CPU
		sibling int // among the threads of its core
		turn    int // among its node's processors that are alike
	}
	ranks := make([]rank, len(m.CPUs))
	siblings := map[int]int{}
	for i, c := range m.CPUs {
		ranks[i] = rank{CPU: c, sibling: siblings[c.Core]}
		siblings[c.Core]++
	}
	type kind struct {
		node, sibling int
		speed         float64
	}
	turns := map[kind]int{}
	for i := range ranks {
		r := &ranks[i]
		k := kind{r.Node, r.sibling, r.Speed}
		r.turn = turns[k]
		turns[k]++
	}
	slices.SortStableFunc(ranks, func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.sibling, b.sibling), cmp.Compare(b.Speed, a.Speed),
			cmp.Compare(a.turn, b.turn), cmp.Compare(a.Node, b.Node))
	})
	out := make([]CPU, len(ranks))
	for i := range ranks {
		out[i] = ranks[i].CPU
	}
	return out
}
