package dfa

import "encoding/binary"

// Dead is the state from which no string is accepted.
const Dead int32 = -1

// A DFA is a deterministic finite automaton. It does not change and is safe for concurrent use.
type DFA struct {
	classes [256]uint8
	width   int     // classes
	next    []int32 // state*width + class
	accept  []bool
	more    []bool // whether another byte may follow
	start   int32
}

// Start returns the state before the first byte, or [Dead] if no string is accepted.
func (d *DFA) Start() int32 { return d.start }

// States returns the number of states.
func (d *DFA) States() int { return len(d.accept) }

// Step returns the state after byte b, or [Dead].
func (d *DFA) Step(s int32, b byte) int32 { return d.next[int(s)*d.width+int(d.classes[b])] }

// Accepts reports whether a string may end in s.
func (d *DFA) Accepts(s int32) bool { return d.accept[s] }

// Continues reports whether a string may continue in s.
func (d *DFA) Continues(s int32) bool { return d.more[s] }

// Only returns the only byte that may follow in state s. ok is false if there is none, or more than
// one.
func (d *DFA) Only(s int32) (b byte, ok bool) {
	class := -1
	for i, to := range d.next[int(s)*d.width : (int(s)+1)*d.width] {
		if to == Dead {
			continue
		}
		if class >= 0 {
			return 0, false
		}
		class = i
	}
	for i, c := range d.classes {
		if int(c) == class {
			if ok {
				return 0, false
			}
			b, ok = byte(i), true
		}
	}
	return b, ok
}

// Rest returns a description of the automaton that starts in state s. Automata with equal
// descriptions accept the same texts, and have the same states with other numbers. It returns "" if
// there are more than most states.
func (d *DFA) Rest(s int32, most int) string {
	ids := map[int32]int{Dead: 0, s: 1}
	order := []int32{s}
	var key, runs []byte
	for i := 0; i < len(order); i++ {
		runs = runs[:0]
		n, last, before := 0, -1, Dead-1
		for b := range 256 {
			to := d.Step(order[i], byte(b))
			if to == before {
				continue
			}
			before = to
			id, known := ids[to]
			if !known {
				if len(order) == most {
					return ""
				}
				order = append(order, to)
				id = len(order)
				ids[to] = id
			}
			if id != last {
				runs = binary.AppendUvarint(append(runs, byte(b)), uint64(id))
				n, last = n+1, id
			}
		}
		end := uint64(0)
		if d.accept[order[i]] {
			end = 1
		}
		key = append(binary.AppendUvarint(key, uint64(2*n)+end), runs...)
	}
	return string(key)
}

// Match reports whether d accepts text.
func (d *DFA) Match(text string) bool {
	s := d.start
	for i := 0; i < len(text) && s != Dead; i++ {
		s = d.Step(s, text[i])
	}
	return s != Dead && d.accept[s]
}

// Bytes returns the approximate memory of d.
func (d *DFA) Bytes() int { return 4*len(d.next) + 2*len(d.accept) + 400 }

// Compile makes the automaton of e. It returns [ErrTooLarge] if e exceeds the budget.
func Compile(e *Expr, budget *Budget) (*DFA, error) {
	n := &nfa{nodes: make([]nfaNode, 1), budget: budget}
	begin, err := n.build(e, endNode)
	if err != nil {
		return nil, err
	}
	d := &DFA{start: Dead}
	if begin == noNode {
		d.width = 1
		return d, nil
	}
	d.split(n.nodes)
	c := subsets{nfa: n, d: d, ids: map[string]int32{}, seen: make([]uint32, len(n.nodes)), targets: make([][]int32, d.width)}
	if err := c.run(begin); err != nil {
		return nil, err
	}
	d.trim()
	return d, nil
}

// split numbers the classes of bytes that all nodes treat alike. Each class is a range.
func (d *DFA) split(nodes []nfaNode) {
	var begins [257]bool
	for i := range nodes {
		if n := &nodes[i]; n.reads {
			begins[n.lo], begins[int(n.hi)+1] = true, true
		}
	}
	class := 0
	for b := range 256 {
		if begins[b] && b > 0 {
			class++
		}
		d.classes[b] = uint8(class)
	}
	d.width = class + 1
}

// subsets makes one state for each set of nodes that a string can reach.
type subsets struct {
	nfa     *nfa
	d       *DFA
	ids     map[string]int32
	sets    [][]int32 // of each state: the nodes that read
	kept    int       // nodes in sets
	seen    []uint32
	epoch   uint32
	key     []byte
	work    []int32
	set     []int32
	ends    bool
	targets [][]int32 // of each class
}

func (c *subsets) run(begin int32) error {
	var err error
	if c.d.start, err = c.state([]int32{begin}); err != nil {
		return err
	}
	for s := 0; s < len(c.sets); s++ {
		for i := range c.targets {
			c.targets[i] = c.targets[i][:0]
		}
		steps := c.d.width
		for _, at := range c.sets[s] {
			n := &c.nfa.nodes[at]
			for class := c.d.classes[n.lo]; class <= c.d.classes[n.hi]; class++ {
				c.targets[class] = append(c.targets[class], n.next)
				steps++
				if class == 255 {
					break
				}
			}
		}
		if err := c.nfa.budget.spend(4 * steps); err != nil {
			return err
		}
		for class, nodes := range c.targets {
			if len(nodes) == 0 {
				continue
			}
			to, err := c.state(nodes)
			if err != nil {
				return err
			}
			c.d.next[s*c.d.width+class] = to
		}
	}
	return nil
}

// state returns the state of all nodes that can be reached from nodes without reading.
func (c *subsets) state(nodes []int32) (int32, error) {
	c.close(nodes)
	if err := c.nfa.budget.spend(20 * (len(c.set) + 3)); err != nil {
		return 0, err
	}
	c.key = c.key[:0]
	for _, at := range c.set {
		c.key = binary.LittleEndian.AppendUint32(c.key, uint32(at))
	}
	if c.ends {
		c.key = append(c.key, 1)
	}
	if id, ok := c.ids[string(c.key)]; ok {
		return id, nil
	}
	id := int32(len(c.sets))
	if c.kept += len(c.set); int(id) >= c.nfa.budget.States || len(c.d.next) >= maxTable || c.kept >= maxTable {
		return 0, ErrTooLarge
	}
	c.ids[string(c.key)] = id
	c.sets = append(c.sets, append([]int32(nil), c.set...))
	d := c.d
	d.accept = append(d.accept, c.ends)
	for range d.width {
		d.next = append(d.next, Dead)
	}
	return id, nil
}

// close fills set with the reading nodes in the order in which they are found. That order depends
// only on nodes.
func (c *subsets) close(nodes []int32) {
	c.epoch++
	c.set, c.ends = c.set[:0], false
	c.work = c.work[:0]
	for i := len(nodes) - 1; i >= 0; i-- {
		c.work = append(c.work, nodes[i])
	}
	for len(c.work) > 0 {
		at := c.work[len(c.work)-1]
		c.work = c.work[:len(c.work)-1]
		if c.seen[at] == c.epoch {
			continue
		}
		c.seen[at] = c.epoch
		n := &c.nfa.nodes[at]
		switch {
		case at == endNode:
			c.ends = true
		case n.reads:
			c.set = append(c.set, at)
		default:
			for i := len(n.alts) - 1; i >= 0; i-- {
				c.work = append(c.work, n.alts[i])
			}
		}
	}
}
