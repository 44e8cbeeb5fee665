package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode"
)

// runeRange is an inclusive range of code points.
type runeRange struct{ lo, hi rune }

// ranges is a set of code points under construction: any ranges in any order.
type ranges []runeRange

func tables(list ...*unicode.RangeTable) ranges {
	var out ranges
	for _, t := range list {
		for _, r := range t.R16 {
			out = out.stride(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			out = out.stride(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return out.sorted()
}

func (s ranges) stride(lo, hi, step rune) ranges {
	if step == 1 {
		return append(s, runeRange{lo, hi})
	}
	for r := lo; r <= hi; r += step {
		s = append(s, runeRange{r, r})
	}
	return s
}

// sorted returns the same set as disjoint ranges in order.
func (s ranges) sorted() ranges {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b runeRange) int { return int(a.lo) - int(b.lo) })
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// not returns the complement.
func (s ranges) not() ranges {
	var out ranges
	next := rune(0)
	for _, r := range s.sorted() {
		if r.lo > next {
			out = append(out, runeRange{next, r.lo - 1})
		}
		next = r.hi + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, runeRange{next, unicode.MaxRune})
	}
	return out
}

// and returns the intersection.
func (s ranges) and(t ranges) ranges {
	return append(s.not(), t.not()...).not()
}

// folding lists the code points that have others equal to them but for case.
var folding = sync.OnceValue(func() []rune {
	var list []rune
	for r := rune(0); r < 0x1f000; r++ {
		if unicode.SimpleFold(r) != r {
			list = append(list, r)
		}
	}
	return list
})

// folded adds the code points that differ from one in s by case only.
func (s ranges) folded() ranges {
	sorted := s.sorted()
	out := slices.Clone(sorted)
	set := sorted.compile()
	for _, r := range folding() {
		if !set.has(r) {
			continue
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			out = append(out, runeRange{f, f})
		}
	}
	return out.sorted()
}

// runeSet answers quickly whether it has a code point.
type runeSet struct {
	low  [1024]uint64 // a bit for each code point below U+10000
	high ranges       // the rest, in order
}

// compile makes s quick to ask.
func (s ranges) compile() *runeSet {
	c := new(runeSet)
	for _, r := range s.sorted() {
		for i := r.lo; i <= r.hi && i < 0x10000; i++ {
			c.low[i>>6] |= 1 << (i & 63)
		}
		if r.hi >= 0x10000 {
			c.high = append(c.high, runeRange{max(r.lo, 0x10000), r.hi})
		}
	}
	return c
}

func (c *runeSet) has(r rune) bool {
	if uint32(r) < 0x10000 {
		return c.low[uint32(r)>>6]>>(r&63)&1 != 0
	}
	_, ok := slices.BinarySearchFunc(c.high, r, func(x runeRange, r rune) int {
		switch {
		case x.hi < r:
			return -1
		case x.lo > r:
			return 1
		}
		return 0
	})
	return ok
}

// property returns the code points of \p{name}: a category, script or property by
// short or long name, without regard to case, spaces, hyphens and underscores.
func property(name string) (ranges, bool) {
	key := propertyKey(name)
	if set, ok := posix(key); ok {
		return set, true
	}
	if key == "any" {
		return ranges{{0, unicode.MaxRune}}, true
	}
	for alias, short := range unicode.CategoryAliases {
		if propertyKey(alias) == key {
			key = propertyKey(short)
			break
		}
	}
	if set := category(key); set != nil {
		return set, true
	}
	for _, list := range []map[string]*unicode.RangeTable{unicode.Categories, unicode.Scripts, unicode.Properties} {
		for name, table := range list {
			if propertyKey(name) == key {
				return tables(table), true
			}
		}
	}
	return nil, false
}

// category returns a general category, all of one by its first letter, or a script
// that unicode.txt has, or nil if it has none of the name.
func category(key string) ranges {
	if key == "c" || key == "cn" {
		unassigned := union("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
			"Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co").not()
		if key == "c" {
			return append(unassigned, union("Cc", "Cf", "Co")...).sorted()
		}
		return unassigned
	}
	var out ranges
	for name, set := range charsets() {
		if name = strings.ToLower(name); name == key || len(key) == 1 && len(name) == 2 && name[0] == key[0] {
			out = append(out, set...)
		}
	}
	return out.sorted()
}

func propertyKey(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "_", "", "-", "").Replace(name))
}

// posix returns the code points of [:name:] and of the escapes that equal one.
func posix(name string) (ranges, bool) {
	switch name {
	case "alpha", "alphabetic":
		return alphabetic(), true
	case "digit":
		return union("Nd"), true
	case "alnum":
		return append(alphabetic(), union("Nd")...), true
	case "upper", "uppercase":
		return union("Lu", "other-upper"), true
	case "lower", "lowercase":
		return union("Ll", "other-lower"), true
	case "space":
		return tables(unicode.White_Space), true
	case "blank":
		return append(union("Zs"), runeRange{'\t', '\t'}), true
	case "cntrl":
		return union("Cc"), true
	case "punct":
		return union("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So"), true
	case "word":
		return wordChars(), true
	case "xdigit":
		return ranges{{'0', '9'}, {'A', 'F'}, {'a', 'f'}}, true
	case "ascii":
		return ranges{{0, 0x7f}}, true
	case "graph":
		return append(tables(unicode.White_Space), append(union("Cc"), category("cn")...)...).not(), true
	case "print":
		return append(union("Cc"), category("cn")...).not(), true
	}
	return nil, false
}
