package tokenizer

import (
	"errors"
	"slices"
	"unicode/utf8"
)

type opcode uint8

const (
	opMatch  opcode = iota
	opSet           // one character of set
	opRepeat        // min to max characters of set, as many as possible
	opSplit         // continue at x, or else at y
	opJump          // continue at x
	opLook          // the program at x matches here, or does not (neg); continue at y
	opBehind        // the character before is in set, or is not (neg)
	opAtomic        // the program at x matches once and for all; continue at y
	opAssert        // the place is one named by assert
)

type inst struct {
	op       opcode
	assert   byte
	neg      bool
	only     bool // opRepeat: do not give characters back
	set      *runeSet
	min, max int
	x, y     int
}

// branch is one alternative at the top of an expression, with what it can begin
// with.
type branch struct {
	start int
	first startSet
}

// startSet says which characters a match may begin with: an entry for each ASCII
// one and one for all others. A node that may match nothing begins with any.
type startSet [utf8.RuneSelf + 1]bool

// regex is a compiled expression. It does not change and may be used concurrently.
type regex struct {
	prog     []inst
	branches []branch
	starts   [utf8.RuneSelf + 1][]int // the branches to try, in order, by first character
}

type regexCompiler struct {
	prog []inst
	sets []compiledSet
}

type compiledSet struct {
	from ranges
	to   *runeSet
}

var errProgramSize = errors.New("the pattern is too large once its counts are written out")

// errEmptyLoop names what the machine does not run: a loop whose body may match
// nothing.
var errEmptyLoop = errors.New("a repeated group that may match nothing is not supported")

func compileRegex(src string) (*regex, error) {
	root, err := parseRegex(src)
	if err != nil {
		return nil, err
	}
	tops := []*node{root}
	for tops[0].kind == nodeCat && len(tops[0].subs) == 1 {
		tops[0] = tops[0].subs[0]
	}
	if tops[0].kind == nodeAlt {
		tops = tops[0].subs
	}
	c, re := new(regexCompiler), new(regex)
	for i, top := range tops {
		b := branch{start: len(c.prog)}
		if err := c.emit(top); err != nil {
			return nil, err
		}
		c.add(inst{op: opMatch})
		if top.starts(&b.first) {
			for k := range b.first {
				b.first[k] = true
			}
		}
		re.branches = append(re.branches, b)
		for k, may := range b.first {
			if may {
				re.starts[k] = append(re.starts[k], i)
			}
		}
	}
	re.prog = c.prog
	return re, nil
}

func (c *regexCompiler) add(i inst) int {
	c.prog = append(c.prog, i)
	return len(c.prog) - 1
}

// set compiles s once for all places that use it.
func (c *regexCompiler) set(s ranges) *runeSet {
	for _, k := range c.sets {
		if slices.Equal(k.from, s) {
			return k.to
		}
	}
	c.sets = append(c.sets, compiledSet{s, s.compile()})
	return c.sets[len(c.sets)-1].to
}

func (c *regexCompiler) emit(n *node) error {
	if len(c.prog) > maxProgram {
		return errProgramSize
	}
	switch n.kind {
	case nodeSet:
		c.add(inst{op: opSet, set: c.set(n.set)})
	case nodeCat:
		for _, sub := range n.subs {
			if err := c.emit(sub); err != nil {
				return err
			}
		}
	case nodeAlt:
		return c.alternatives(n.subs)
	case nodeRepeat:
		return c.repeat(n)
	case nodeLook, nodeAtomic:
		op := opLook
		if n.kind == nodeAtomic {
			op = opAtomic
		}
		at := c.add(inst{op: op, neg: n.neg, x: len(c.prog) + 1})
		if err := c.emit(n.subs[0]); err != nil {
			return err
		}
		c.add(inst{op: opMatch})
		c.prog[at].y = len(c.prog)
	case nodeBehind:
		c.add(inst{op: opBehind, neg: n.neg, set: c.set(n.set)})
	case nodeAssert:
		c.add(inst{op: opAssert, assert: n.assert, set: c.set(escapeWord())})
	}
	return nil
}

func (c *regexCompiler) alternatives(subs []*node) error {
	var jumps []int
	for i, sub := range subs {
		split := -1
		if i < len(subs)-1 {
			split = c.add(inst{op: opSplit, x: len(c.prog) + 1})
		}
		if err := c.emit(sub); err != nil {
			return err
		}
		if split >= 0 {
			jumps = append(jumps, c.add(inst{op: opJump}))
			c.prog[split].y = len(c.prog)
		}
	}
	for _, j := range jumps {
		c.prog[j].x = len(c.prog)
	}
	return nil
}

func (c *regexCompiler) repeat(n *node) error {
	body := n.subs[0]
	for body.kind == nodeCat && len(body.subs) == 1 {
		body = body.subs[0]
	}
	if body.kind == nodeSet && !n.lazy {
		c.add(inst{op: opRepeat, set: c.set(body.set), min: n.min, max: n.max, only: n.possessive})
		return nil
	}
	if n.possessive {
		plain := *n
		plain.possessive = false
		return c.emit(&node{kind: nodeAtomic, subs: []*node{&plain}})
	}
	for range n.min {
		if err := c.emit(body); err != nil {
			return err
		}
	}
	if n.max < 0 {
		if body.starts(new(startSet)) {
			return errEmptyLoop
		}
		split := c.add(inst{op: opSplit})
		if err := c.emit(body); err != nil {
			return err
		}
		c.add(inst{op: opJump, x: split})
		c.link(split, n.lazy)
		return nil
	}
	var splits []int
	for range n.max - n.min {
		splits = append(splits, c.add(inst{op: opSplit}))
		if err := c.emit(body); err != nil {
			return err
		}
	}
	for _, s := range splits {
		c.link(s, n.lazy)
	}
	return nil
}

// link makes the split at pc try the body behind it and else what comes after the
// program so far, or the other way round.
func (c *regexCompiler) link(pc int, lazy bool) {
	x, y := pc+1, len(c.prog)
	if lazy {
		x, y = y, x
	}
	c.prog[pc].x, c.prog[pc].y = x, y
}

// starts adds to first what n can begin with and reports whether n can match
// without consuming anything.
func (n *node) starts(first *startSet) (empty bool) {
	switch n.kind {
	case nodeSet:
		for _, r := range n.set {
			for k := r.lo; k <= r.hi && k < utf8.RuneSelf; k++ {
				first[k] = true
			}
			if r.hi >= utf8.RuneSelf {
				first[utf8.RuneSelf] = true
			}
		}
		return false
	case nodeCat:
		for _, sub := range n.subs {
			if !sub.starts(first) {
				return false
			}
		}
		return true
	case nodeAlt:
		for _, sub := range n.subs {
			if sub.starts(first) {
				empty = true
			}
		}
		return empty
	case nodeRepeat:
		return n.max != 0 && n.subs[0].starts(first) || n.min == 0
	case nodeAtomic:
		return n.subs[0].starts(first)
	}
	return true // assertions: what follows decides
}
