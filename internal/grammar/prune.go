package grammar

// prune drops heads that read nothing which another head does not read as well, so that the heads
// of an ambiguous text do not grow with its length. It changes heads, which are sorted.
func (g *Grammar) prune(heads []head) []head {
	kept := heads[:0]
	run := 0 // the first kept head with the position of the last one
	for _, h := range heads {
		if len(kept) > 0 && kept[len(kept)-1].at != h.at {
			run = len(kept)
		}
		if t := g.terms[g.ops[h.at].arg]; t.lang != nil || t.counts == nil && (h.frame == nil || h.frame.loop == noLoop) || !g.covered(kept[run:], h, t) {
			kept = append(kept, h)
		}
	}
	return kept
}

// covered reports whether one of list, which read t as h does, reads all that h reads.
func (g *Grammar) covered(list []head, h head, t *Terminal) bool {
	g.steps -= len(list) / 4
	state, count := t.split(h.q)
	for _, k := range list {
		s, c := t.split(k.q)
		if s == state && g.frameCovers(k.frame, h.frame) && (c == count || c < count && c >= t.min) {
			return true
		}
	}
	return false
}

// split returns the state of the automaton and the number of characters in state q.
func (t *Terminal) split(q int64) (state, count int64) {
	if t.counts == nil {
		return q, 0
	}
	n := int64(t.lex.d.States())
	return q % n, q / n
}

// frameCovers reports whether all that may follow in frame b may also follow in frame a: they are
// the same, or a has run a loop less often, but often enough.
func (g *Grammar) frameCovers(a, b *frame) bool {
	if a == b {
		return true
	}
	return a != nil && b != nil && a.loop != noLoop && a.loop == b.loop && a.parent == b.parent && a.next == b.next &&
		a.count < b.count && a.count+1 >= g.loops[a.loop].min
}
