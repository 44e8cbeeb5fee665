package regex

import "github.com/heftai/heft/internal/grammar/dfa"

// fewTimes is the number of repetitions of a class up to which an automaton is cheap.
const fewTimes = 16

// Uncount replaces one {m,n} of a class in src by *, and returns the result as open. src matches
// exactly the texts that open matches and that have least to most characters. An automaton of src
// would need a copy of the class for each repetition. ok is false if src has no repetition of many
// times, or if another part of it matches texts of different lengths. If whole is false, src must
// be anchored at both ends.
func Uncount(src string, whole bool) (open string, least, most int, ok bool) {
	n, err := parse(src)
	if err != nil {
		return "", 0, 0, false
	}
	parts := n.flat()
	if k := len(parts); k > 1 && parts[0].kind == begin && parts[k-1].kind == end {
		parts = parts[1 : k-1]
	} else if !whole {
		return "", 0, 0, false
	}
	var counted *node
	for _, p := range parts {
		if p.kind != repeat || p.subs[0].kind != class || max(p.min, p.max) <= fewTimes {
			continue
		}
		if _, same := p.length(); counted == nil || !same {
			counted = p
		}
	}
	if counted == nil {
		return "", 0, 0, false
	}
	fixed := 0
	for _, p := range parts {
		if p == counted {
			continue
		}
		n, same := p.length()
		if !same {
			return "", 0, 0, false
		}
		fixed += n
	}
	if most = counted.max; most != dfa.Unbounded {
		most += fixed
	}
	return src[:counted.from] + "*" + src[counted.to:], fixed + counted.min, most, true
}

// length returns the number of characters of all texts that n matches. same is false if their
// lengths differ or are very large.
func (n *node) length() (characters int, same bool) {
	switch n.kind {
	case class:
		return 1, true
	case look:
		return 0, true
	case concat, alt:
		for i, s := range n.subs {
			k, ok := s.length()
			if !ok || n.kind == alt && i > 0 && k != characters {
				return 0, false
			}
			if n.kind == alt {
				characters = 0
			}
			characters += k
		}
		return characters, characters <= maxRepeat
	case repeat:
		k, ok := n.subs[0].length()
		return k * n.min, ok && n.min == n.max && k*n.min <= maxRepeat
	}
	return 0, false
}
