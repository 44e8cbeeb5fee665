package dfa

// Intersect returns an automaton that accepts the strings that both a and b accept. It returns
// [ErrTooLarge] if the result exceeds the budget.
func Intersect(a, b *DFA, budget *Budget) (*DFA, error) {
	return product(a, b, false, budget)
}

// Subtract returns an automaton that accepts the strings that a accepts and b does not. It returns
// [ErrTooLarge] if the result exceeds the budget.
func Subtract(a, b *DFA, budget *Budget) (*DFA, error) {
	return product(a, b, true, budget)
}

// IsEmpty reports whether d accepts no string.
func (d *DFA) IsEmpty() bool { return d.start == Dead }

// Union returns an automaton that accepts the strings that any of list accepts. It returns
// [ErrTooLarge] if the result exceeds the budget.
func Union(list []*DFA, budget *Budget) (*DFA, error) {
	u := &DFA{start: Dead, width: 1}
	for i, d := range list {
		if i == 0 {
			u = d
			continue
		}
		var err error
		if u, err = either(u, d, budget); err != nil {
			return nil, err
		}
	}
	return u, nil
}

type pair struct{ a, b int32 }

// pairs makes one state for each pair of states.
type pairs struct {
	a, b   *DFA
	out    *DFA
	first  []byte // a byte of each class
	ids    map[pair]int32
	list   []pair
	budget *Budget
	ends   func(a, b bool) bool
	live   func(p pair) bool
}

func product(a, b *DFA, without bool, budget *Budget) (*DFA, error) {
	p := &pairs{a: a, b: b, budget: budget}
	if without {
		p.ends = func(a, b bool) bool { return a && !b }
		p.live = func(p pair) bool { return p.a != Dead }
	} else {
		p.ends = func(a, b bool) bool { return a && b }
		p.live = func(p pair) bool { return p.a != Dead && p.b != Dead }
	}
	return p.run()
}

func either(a, b *DFA, budget *Budget) (*DFA, error) {
	p := &pairs{a: a, b: b, budget: budget}
	p.ends = func(a, b bool) bool { return a || b }
	p.live = func(p pair) bool { return p.a != Dead || p.b != Dead }
	return p.run()
}

func (p *pairs) run() (*DFA, error) {
	p.out, p.ids = &DFA{start: Dead}, map[pair]int32{}
	p.split()
	begin := pair{p.a.start, p.b.start}
	if !p.live(begin) {
		p.out.trim()
		return p.out, nil
	}
	var err error
	if p.out.start, err = p.state(begin); err != nil {
		return nil, err
	}
	for s := 0; s < len(p.list); s++ {
		if err := p.budget.spend(10 * p.out.width); err != nil {
			return nil, err
		}
		at := p.list[s]
		for class, b := range p.first {
			to := pair{Dead, Dead}
			if at.a != Dead {
				to.a = p.a.Step(at.a, b)
			}
			if at.b != Dead {
				to.b = p.b.Step(at.b, b)
			}
			if !p.live(to) {
				continue
			}
			id, err := p.state(to)
			if err != nil {
				return nil, err
			}
			p.out.next[s*p.out.width+class] = id
		}
	}
	p.out.trim()
	return p.out, nil
}

// split numbers the classes of bytes that a and b both treat alike.
func (p *pairs) split() {
	classes := map[[2]uint8]uint8{}
	for b := range 256 {
		key := [2]uint8{p.a.classes[b], p.b.classes[b]}
		class, ok := classes[key]
		if !ok {
			class = uint8(len(classes))
			classes[key] = class
			p.first = append(p.first, byte(b))
		}
		p.out.classes[b] = class
	}
	p.out.width = len(p.first)
}

func (p *pairs) state(at pair) (int32, error) {
	if id, ok := p.ids[at]; ok {
		return id, nil
	}
	if err := p.budget.spend(nodeSteps); err != nil || len(p.list) >= p.budget.States || len(p.out.next) >= maxTable {
		return 0, ErrTooLarge
	}
	id := int32(len(p.list))
	p.ids[at] = id
	p.list = append(p.list, at)
	accepts := func(d *DFA, s int32) bool { return s != Dead && d.accept[s] }
	p.out.accept = append(p.out.accept, p.ends(accepts(p.a, at.a), accepts(p.b, at.b)))
	for range p.out.width {
		p.out.next = append(p.out.next, Dead)
	}
	return id, nil
}
