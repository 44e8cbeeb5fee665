package dfa

// Text returns the automaton of one text.
func Text(s string) *DFA {
	d := &DFA{width: 1}
	for i := range len(s) {
		if d.classes[s[i]] == 0 && d.width < 256 {
			d.classes[s[i]] = uint8(d.width)
			d.width++
		}
	}
	n := len(s) + 1
	d.next, d.accept, d.more = make([]int32, n*d.width), make([]bool, n), make([]bool, n)
	for i := range d.next {
		d.next[i] = Dead
	}
	for i := range len(s) {
		d.next[i*d.width+int(d.classes[s[i]])] = int32(i + 1)
		d.more[i] = true
	}
	d.accept[len(s)] = true
	return d
}
