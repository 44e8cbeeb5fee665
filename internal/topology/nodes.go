package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// A Node is memory with the processors that are near it. Some machines have nodes without
// processors, or without memory.
type Node struct {
	ID     int
	Bytes  int64 // of memory; 0 means none or unknown
	Memory bool  // that it has some
	// Distances are to each of the machine's nodes, in order of ID, in the units of the
	// firmware: 10 is to itself. nil is not said.
	Distances []int
}

// readNodes returns the online nodes, or a single one if the system lists none.
func readNodes(root fs.FS) []Node {
	ids, memory := list(text(root, nodes+"/online")), list(text(root, nodes+"/has_memory"))
	if len(ids) == 0 {
		return []Node{{Memory: true}}
	}
	var out []Node
	for _, id := range ids {
		n := Node{ID: id, Bytes: nodeBytes(root, id), Memory: memory == nil || slices.Contains(memory, id)}
		for _, f := range strings.Fields(text(root, fmt.Sprintf("%s/node%d/distance", nodes, id))) {
			d, err := strconv.Atoi(f)
			if err != nil || d < 0 {
				n.Distances = nil
				break
			}
			n.Distances = append(n.Distances, d)
		}
		if len(n.Distances) != len(ids) {
			n.Distances = nil
		}
		out = append(out, n)
	}
	return out
}

// nodeBytes reads "Node 0 MemTotal: 32768 kB".
func nodeBytes(root fs.FS, id int) int64 {
	for line := range strings.Lines(text(root, fmt.Sprintf("%s/node%d/meminfo", nodes, id))) {
		f := strings.Fields(line)
		if len(f) == 5 && f[2] == "MemTotal:" && f[4] == "kB" {
			kib, err := strconv.ParseInt(f[3], 10, 52)
			if err == nil && kib > 0 {
				return kib << 10
			}
		}
	}
	return 0
}

// Near returns all nodes ordered by their distance from a node, which comes first.
func (m *Machine) Near(node int) []int {
	distances := map[int]int{}
	for _, n := range m.Memory {
		for i, other := range m.Memory {
			if n.ID == node && n.Distances != nil {
				distances[other.ID] = n.Distances[i]
			}
		}
	}
	out := []int{node}
	for _, n := range m.Memory {
		if n.ID != node {
			out = append(out, n.ID)
		}
	}
	slices.SortStableFunc(out[1:], func(a, b int) int { return cmp.Compare(distances[a], distances[b]) })
	return out
}

// Home returns the nearest node that has memory, usually the node itself.
func (m *Machine) Home(node int) int {
	for _, id := range m.Near(node) {
		for _, n := range m.Memory {
			if n.ID == id && n.Memory {
				return id
			}
		}
	}
	return node
}
