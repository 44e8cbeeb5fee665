package dfa

// trim removes states from which no accepting state can be reached, and states that cannot be
// reached.
func (d *DFA) trim() {
	useful := d.useful()
	keep := make([]int32, len(d.accept))
	count := int32(0)
	reached := d.reached(useful)
	for s := range keep {
		keep[s] = Dead
		if useful[s] && reached[s] {
			keep[s] = count
			count++
		}
	}
	if d.start != Dead {
		d.start = keep[d.start]
	}
	next, accept := make([]int32, int(count)*d.width), make([]bool, count)
	d.more = make([]bool, count)
	for s, to := range keep {
		if to == Dead {
			continue
		}
		accept[to] = d.accept[s]
		row := next[int(to)*d.width:][:d.width]
		for class, target := range d.next[s*d.width:][:d.width] {
			row[class] = Dead
			if target != Dead && keep[target] != Dead {
				row[class] = keep[target]
				d.more[to] = true
			}
		}
	}
	d.next, d.accept = next, accept
}

// useful reports for each state whether an accepting state can be reached from it.
func (d *DFA) useful() []bool {
	n := len(d.accept)
	count := make([]int32, n+1)
	for _, to := range d.next {
		if to != Dead {
			count[to+1]++
		}
	}
	for i := range n {
		count[i+1] += count[i]
	}
	from := make([]int32, count[n])
	at := append([]int32(nil), count[:n]...)
	for i, to := range d.next {
		if to != Dead {
			from[at[to]] = int32(i / d.width)
			at[to]++
		}
	}
	useful := make([]bool, n)
	var work []int32
	for s, ok := range d.accept {
		if ok {
			useful[s] = true
			work = append(work, int32(s))
		}
	}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range from[count[s]:count[s+1]] {
			if !useful[p] {
				useful[p] = true
				work = append(work, p)
			}
		}
	}
	return useful
}

// reached reports for each state whether it can be reached through useful states.
func (d *DFA) reached(useful []bool) []bool {
	reached := make([]bool, len(d.accept))
	if d.start == Dead {
		return reached
	}
	reached[d.start] = true
	work := []int32{d.start}
	for len(work) > 0 {
		s := int(work[len(work)-1])
		work = work[:len(work)-1]
		for _, to := range d.next[s*d.width:][:d.width] {
			if to != Dead && useful[to] && !reached[to] {
				reached[to] = true
				work = append(work, to)
			}
		}
	}
	return reached
}
