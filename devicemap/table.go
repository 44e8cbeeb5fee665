package devicemap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/meta"
)

// A table is a module tree as a flat list of its names, parents first: a module, then its
// parameters, its buffers and its children. The descendants of node i are the range (i, end).
// Paths are built and sizes are added up once, so that the solvers compare numbers.
type table struct {
	loaded, streamed map[*meta.Param]int64 // see Policy
	nodes            []node
	sizes            sizing
	ties             []tie
}

// A node is one name of the tree. A module with several names has a node for each of them; only
// the first one counts.
type node struct {
	path   string
	module *meta.Module // nil for a tensor; never one with SameAs
	param  *meta.Param
	buffer *meta.Buffer
	end    int32
	size   float64 // bytes of the tensors at and below it, in memory
	onDisk float64 // the same, on the disk
	// listed reports that a split of the parent lists the node. It is false for the second name
	// of one object within one module.
	listed bool
	// counted reports that a tensor that counts is at or below the node; hasParam reports a
	// parameter.
	counted, hasParam bool
	repeated          bool // below a module that occurs earlier under another name
}

// A tie is one parameter with several names, in alphabetical order.
type tie struct {
	names []string
	nodes []int32
}

// Limits of a table, against trees that contain themselves.
const (
	maxNodes = 1 << 22
	maxDepth = 256
)

// newTable flattens the tree below root.
func newTable(root *meta.Module, sizes sizing) (*table, error) {
	return newLoadedTable(root, sizes, Policy{})
}

// newLoadedTable is newTable with other sizes for the parameters of p.Loaded and p.Streamed.
func newLoadedTable(root *meta.Module, sizes sizing, p Policy) (*table, error) {
	if root == nil {
		return nil, fmt.Errorf("devicemap: no module tree")
	}
	t := &table{sizes: sizes, loaded: p.Loaded, streamed: p.Streamed}
	if err := t.add(root, "", 0, false, true); err != nil {
		return nil, err
	}
	if err := t.findTies(); err != nil {
		return nil, err
	}
	return t, nil
}

// add appends m and its descendants.
func (t *table) add(m *meta.Module, path string, depth int, repeated, listed bool) error {
	if depth > maxDepth || len(t.nodes) > maxNodes {
		return fmt.Errorf("devicemap: module tree too deep or too large at %.200q: does a module contain itself?", path)
	}
	repeated = repeated || m.SameAs != nil
	m = m.Resolve()
	at := len(t.nodes)
	t.nodes = append(t.nodes, node{path: path, module: m, listed: listed, repeated: repeated})
	for i, p := range m.Params {
		again := slices.ContainsFunc(m.Params[:i], func(q *meta.Param) bool { return q.Resolve() == p.Resolve() })
		t.addTensor(node{path: meta.Join(path, p.Name), param: p, listed: !again,
			repeated: repeated || p.SameAs != nil}, p.DType, p.Elements())
	}
	for _, b := range m.Buffers {
		t.addTensor(node{path: meta.Join(path, b.Name), buffer: b, listed: true, repeated: repeated},
			b.DType, meta.Elements(b.Shape))
	}
	for i, c := range m.Children {
		again := c.SameAs != nil && slices.ContainsFunc(m.Children[:i],
			func(d *meta.Module) bool { return d.Resolve() == c.Resolve() })
		if err := t.add(c, meta.Join(path, c.Name), depth+1, repeated, !again); err != nil {
			return err
		}
	}
	t.nodes[at].end = int32(len(t.nodes))
	for i := at + 1; i < len(t.nodes); i = int(t.nodes[i].end) {
		c := &t.nodes[i]
		t.nodes[at].size, t.nodes[at].onDisk = t.nodes[at].size+c.size, t.nodes[at].onDisk+c.onDisk
		t.nodes[at].counted = t.nodes[at].counted || c.counted
		t.nodes[at].hasParam = t.nodes[at].hasParam || c.hasParam
	}
	return nil
}

// addTensor appends a parameter or buffer. Under a repeated name its size is 0.
func (t *table) addTensor(n node, d meta.DType, elements int64) {
	n.end = int32(len(t.nodes)) + 1
	if !n.repeated {
		n.size = t.sizes(n.path, d, elements)
		if p := n.param; p != nil && p.Stored > 0 && (p.Quantised() || n.size == float64(d.Bytes(elements))) {
			n.size = float64(p.Stored) // used as it is stored
		}
		if bytes, ok := t.loaded[n.param]; ok && n.param != nil {
			n.size = float64(bytes)
		}
		n.onDisk = n.size
		if bytes, ok := t.streamed[n.param]; ok && n.param != nil {
			n.onDisk = float64(bytes)
		}
		n.counted = true
		n.hasParam = n.param != nil
	}
	t.nodes = append(t.nodes, n)
}

// findTies groups the names of parameters that have several.
func (t *table) findTies() error {
	groups := map[*meta.Param]*tie{}
	var order []*meta.Param
	for i := range t.nodes {
		if n := &t.nodes[i]; n.param != nil && n.repeated {
			p := n.param.Resolve()
			if groups[p] == nil {
				groups[p] = &tie{}
				order = append(order, p)
			}
		}
	}
	if len(groups) == 0 {
		return nil
	}
	first := map[*meta.Param]bool{}
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.param == nil {
			continue
		}
		g := groups[n.param.Resolve()]
		if g == nil {
			continue
		}
		if !n.repeated {
			first[n.param.Resolve()] = true
		}
		g.names = append(g.names, n.path)
		g.nodes = append(g.nodes, int32(i))
	}
	for _, p := range order {
		g := groups[p]
		if !first[p] {
			return fmt.Errorf("devicemap: %s is tied to a parameter that is not in the tree", g.names[0])
		}
		slices.SortFunc(g.nodes, func(a, b int32) int { return strings.Compare(t.nodes[a].path, t.nodes[b].path) })
		slices.Sort(g.names)
		t.ties = append(t.ties, *g)
	}
	slices.SortFunc(t.ties, func(a, b tie) int { return slices.Compare(a.names, b.names) })
	return nil
}

// split lists the nodes that replace module i when it is split: direct parameters, then children.
func (t *table) split(i int32) []int32 {
	var params, children []int32
	for c := i + 1; c < t.nodes[i].end; c = t.nodes[c].end {
		n := &t.nodes[c]
		switch {
		case !n.listed || n.buffer != nil:
		case n.param != nil:
			params = append(params, c)
		default:
			children = append(children, c)
		}
	}
	return append(params, children...)
}

// top lists the root's parameters, children and buffers, in this order.
func (t *table) top() []int32 {
	list := t.split(0)
	for c := int32(1); c < t.nodes[0].end; c = t.nodes[c].end {
		if t.nodes[c].buffer != nil {
			list = append(list, c)
		}
	}
	return list
}

// childless reports whether node i is a tensor or a module without children.
func (t *table) childless(i int32) bool {
	m := t.nodes[i].module
	return m == nil || len(m.Children) == 0
}

// inside reports whether node i is node of or one of its descendants.
func (t *table) inside(i, of int32) bool { return of <= i && i < t.nodes[of].end }

// find returns the node at path.
func (t *table) find(path string) (int32, bool) {
	i := int32(0)
	for path != t.nodes[i].path {
		next := int32(-1)
		for c := i + 1; c < t.nodes[i].end; c = t.nodes[c].end {
			if under(path, t.nodes[c].path) {
				next = c
				break
			}
		}
		if next < 0 {
			return 0, false
		}
		i = next
	}
	return i, true
}

// under reports whether path is prefix or a path below it. Every path is below "".
func under(path, prefix string) bool {
	if prefix == "" {
		return true
	}
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '.')
}
