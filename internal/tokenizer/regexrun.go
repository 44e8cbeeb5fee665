package tokenizer

import (
	"errors"
	"math"
	"sync"
	"unicode/utf8"
)

// ErrTooSlow is returned when matching a text takes far more steps than its length
// warrants: the file's pattern backtracks without end on it.
var ErrTooSlow = errors.New("tokenizer: a pattern of tokenizer.json needs too many steps on this text")

// The steps a text may take, and the ways that may be open at once: far above what
// any published pattern needs.
const (
	stepsBase    = 1 << 20
	stepsPerByte = 1 << 8
	maxOpen      = 1 << 20
	openBase     = 1 << 12 // ways that any text may have open; a long one has as many as bytes
)

// retry is a way of matching that is still open: continue at pc from pos, or from any
// earlier character down to low.
type retry struct{ pc, pos, low int32 }

// machine runs a program over one text.
type machine struct {
	re    *regex
	s     string
	steps int
	open  int // the most ways that may be open
	stack []retry
}

var machines = sync.Pool{New: func() any { return new(machine) }}

// each calls found for every match in s from left to right, as Oniguruma's iterator
// finds them: an empty match right behind the one before it does not count.
func (re *regex) each(s string, left *int, found func(start, end int) error) error {
	if len(s) > math.MaxInt32 {
		return ErrTooLong
	}
	m := machines.Get().(*machine)
	defer m.release()
	may := stepsBase + stepsPerByte*len(s)
	if left != nil {
		may = min(may, *left)
		defer func() { *left -= may - max(m.steps, 0) }()
	}
	m.re, m.s, m.steps, m.open = re, s, may, min(maxOpen, openBase+len(s))
	last := -1
	for at := 0; at <= len(s); {
		start, end, ok := m.search(at)
		if m.steps < 0 {
			return ErrTooSlow
		}
		if !ok {
			return nil
		}
		if start == end && end == last {
			_, n := utf8.DecodeRuneInString(s[at:])
			at += max(n, 1)
			continue
		}
		if err := found(start, end); err != nil {
			return err
		}
		at, last = end, end
	}
	return nil
}

// release gives m back without the text, and without a stack that grew large.
func (m *machine) release() {
	m.re, m.s = nil, ""
	if cap(m.stack) > 1<<12 {
		m.stack = nil
	}
	machines.Put(m)
}

// search finds the first match that begins at or after at.
func (m *machine) search(at int) (start, end int, ok bool) {
	for at <= len(m.s) && m.steps >= 0 {
		size, key := 1, utf8.RuneSelf
		if at < len(m.s) {
			if c := m.s[at]; c < utf8.RuneSelf {
				key = int(c)
			} else {
				_, size = utf8.DecodeRuneInString(m.s[at:])
			}
			for _, b := range m.re.starts[key] {
				if end, ok := m.run(m.re.branches[b].start, at); ok {
					return at, end, true
				}
			}
		} else {
			for _, b := range m.re.branches {
				if end, ok := m.run(b.start, at); ok {
					return at, end, true
				}
			}
		}
		m.steps--
		at += size
	}
	return 0, 0, false
}

// run matches the program at pc from pos and returns where it ends.
func (m *machine) run(pc, pos int) (int, bool) {
	base := len(m.stack)
	prog := m.re.prog
	for {
		if m.steps--; m.steps < 0 || len(m.stack) > m.open {
			m.steps = -1
			m.stack = m.stack[:base]
			return 0, false
		}
		i := &prog[pc]
		ok := true
		pc++
		switch i.op {
		case opMatch:
			m.stack = m.stack[:base]
			return pos, true
		case opSet:
			pos, ok = m.one(i.set, pos)
		case opRepeat:
			var low int
			if pos, low, ok = m.many(i, pos); ok && low < pos && !i.only && prog[pc].op != opMatch {
				m.stack = append(m.stack, retry{int32(pc), int32(pos), int32(low)})
			}
		case opSplit:
			m.stack = append(m.stack, retry{int32(i.y), int32(pos), int32(pos)})
			pc = i.x
		case opJump:
			pc = i.x
		case opLook:
			_, found := m.run(i.x, pos)
			ok, pc = found != i.neg, i.y
		case opAtomic:
			pos, ok = m.run(i.x, pos)
			pc = i.y
		case opBehind:
			r, n := utf8.DecodeLastRuneInString(m.s[:pos])
			ok = (n > 0 && i.set.has(r)) != i.neg
		case opAssert:
			ok = m.assert(i, pos)
		}
		if ok {
			continue
		}
		if pc, pos, ok = m.back(base); !ok {
			return 0, false
		}
	}
}

// back takes up the latest way that is still open.
func (m *machine) back(base int) (pc, pos int, ok bool) {
	n := len(m.stack)
	if n == base {
		return 0, 0, false
	}
	top := &m.stack[n-1]
	pc, pos = int(top.pc), int(top.pos)
	if top.low == top.pos { // a split, not a repeat
		m.stack = m.stack[:n-1]
		return pc, pos, true
	}
	_, size := utf8.DecodeLastRuneInString(m.s[:pos])
	pos -= size
	if top.pos = int32(pos); top.pos <= top.low {
		m.stack = m.stack[:n-1]
	}
	return pc, pos, true
}

// one consumes a character of set.
func (m *machine) one(set *runeSet, pos int) (int, bool) {
	if pos >= len(m.s) {
		return pos, false
	}
	r, n := rune(m.s[pos]), 1
	if r >= utf8.RuneSelf {
		r, n = utf8.DecodeRuneInString(m.s[pos:])
	}
	return pos + n, set.has(r)
}

// many consumes as many characters as a repeat may; low is the least it must.
func (m *machine) many(i *inst, pos int) (end, low int, ok bool) {
	count, s := 0, m.s
	low = pos
	for pos < len(s) && count != i.max {
		r, n := rune(s[pos]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[pos:])
		}
		if !i.set.has(r) {
			break
		}
		pos += n
		if count++; count == i.min {
			low = pos
		}
	}
	m.steps -= count >> 2
	return pos, low, count >= i.min
}

// assert reports whether pos is the place that i asks for.
func (m *machine) assert(i *inst, pos int) bool {
	s := m.s
	switch i.assert {
	case '^':
		return pos == 0 || s[pos-1] == '\n' && pos < len(s)
	case '$':
		return pos == len(s) || s[pos] == '\n'
	case 'A':
		return pos == 0
	case 'z':
		return pos == len(s)
	case 'Z':
		return pos == len(s) || pos == len(s)-1 && s[pos] == '\n'
	}
	before, n := utf8.DecodeLastRuneInString(s[:pos])
	after, k := utf8.DecodeRuneInString(s[pos:])
	edge := (n > 0 && i.set.has(before)) != (k > 0 && i.set.has(after))
	return edge == (i.assert == 'b')
}
