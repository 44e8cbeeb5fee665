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
	// Speed is its share of the fastest core's speed in quarters, since cores of one kind
	// differ by little; 1 where the system says nothing.
	Speed float64 `json:"speed"`
}

// A Machine is what this process may compute on.
type Machine struct {
	// CPUs may be used: they are online and the process is allowed on them. In order of ID.
	CPUs []CPU `json:"cpus"`
	// Offline is how many more the machine has that do not run or that are not allowed.
	Offline int `json:"unavailable"`
	// Memory is all nodes that run, in order of ID. It is never empty in what [Here] returns.
	Memory []Node `json:"-"`
	// Quota is the processors' time that the control groups allow, in processors; 0 is no
	// limit.
	Quota float64 `json:"quota"`
}

// Here is this machine. Where the system does not say how its processors are made, each
// that Go sees is a core, all on one node.
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

// Cores is the number of physical cores that may be used.
func (m *Machine) Cores() int {
	cores := map[int]bool{}
	for _, c := range m.CPUs {
		cores[c.Core] = true
	}
	return len(cores)
}

// Nodes are the memory nodes of the processors that may be used, in rising order.
func (m *Machine) Nodes() []int {
	var nodes []int
	for _, c := range m.CPUs {
		nodes = append(nodes, c.Node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Threads is how many threads compute: one for each core, and no more than use the quota up.
// A quota of one and a half is used up by two.
func (m *Machine) Threads() int {
	n := m.Cores()
	if m.Quota > 0 {
		n = min(n, int(math.Ceil(m.Quota)))
	}
	return max(n, 1)
}

// Places are processors for so many threads: one of each core first, fast cores before slow
// ones, then second threads of cores, then all again. They are evenly taken from the nodes
// and stand in order of node, so that neighbours share memory.
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

// ranked are the processors in the order in which threads take them.
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
