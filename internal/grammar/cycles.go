package grammar

// cycles finds the strongly connected components of a graph of positions by Tarjan's algorithm,
// without recursion.
type cycles struct {
	edges             func(p Pos, visit func(to Pos, call bool))
	index, low, part  []int32
	stack             []Pos
	work              []visit
	edgesTo           []Pos // of the positions in work, concatenated
	calls             []callEdge
	nextIndex, nParts int32
}

type callEdge struct{ from, to Pos }

// visit is a position on the current path, with its remaining edges.
type visit struct {
	p         Pos
	from, end int // in edgesTo
}

// findCycles returns [ErrLeftRecursion] if a cycle contains a call.
func findCycles(n int, edges func(p Pos, visit func(to Pos, call bool))) error {
	c := &cycles{edges: edges, index: make([]int32, n), low: make([]int32, n), part: make([]int32, n), nextIndex: 1}
	for p := range n {
		if c.index[p] == 0 {
			c.search(Pos(p))
		}
	}
	for _, e := range c.calls {
		if c.part[e.from] == c.part[e.to] {
			return ErrLeftRecursion
		}
	}
	return nil
}

func (c *cycles) enter(p Pos) {
	v := visit{p: p, from: len(c.edgesTo)}
	c.edges(p, func(to Pos, call bool) {
		if to == Fail {
			return
		}
		c.edgesTo = append(c.edgesTo, to)
		if call {
			c.calls = append(c.calls, callEdge{p, to})
		}
	})
	v.end = len(c.edgesTo)
	c.index[p], c.low[p] = c.nextIndex, c.nextIndex
	c.nextIndex++
	c.stack = append(c.stack, p)
	c.work = append(c.work, v)
}

func (c *cycles) search(root Pos) {
	c.enter(root)
	for len(c.work) > 0 {
		v := &c.work[len(c.work)-1]
		if v.from == v.end {
			c.leave(v.p)
			continue
		}
		p, to := v.p, c.edgesTo[v.from]
		v.from++
		if c.index[to] == 0 {
			c.enter(to)
		} else if c.part[to] == 0 {
			c.low[p] = min(c.low[p], c.index[to])
		}
	}
}

// leave ends the search from p. If p was the first position of a component, it ends the component.
func (c *cycles) leave(p Pos) {
	c.work = c.work[:len(c.work)-1]
	if n := len(c.work); n > 0 {
		c.edgesTo = c.edgesTo[:c.work[n-1].end]
	} else {
		c.edgesTo = c.edgesTo[:0]
	}
	if n := len(c.work); n > 0 {
		parent := c.work[n-1].p
		c.low[parent] = min(c.low[parent], c.low[p])
	}
	if c.low[p] != c.index[p] {
		return
	}
	c.nParts++
	for {
		q := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		c.part[q] = c.nParts
		if q == p {
			return
		}
	}
}
