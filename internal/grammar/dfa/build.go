package dfa

// Build makes an automaton from a step function over states of any type. alphabet has the bytes
// that may occur. It returns [ErrTooLarge] if the automaton exceeds its limits.
func Build[S comparable](start S, alphabet string, step func(s S, b byte) (to S, ok bool), accepts func(S) bool, budget *Budget) (*DFA, error) {
	d := &DFA{width: len(alphabet) + 1}
	for i := range len(alphabet) {
		d.classes[alphabet[i]] = uint8(i + 1)
	}
	ids, list := map[S]int32{}, []S(nil)
	state := func(s S) (int32, error) {
		if id, ok := ids[s]; ok {
			return id, nil
		}
		if budget.spend(nodeSteps+10*d.width) != nil || len(list) >= budget.States || len(d.next) >= maxTable {
			return 0, ErrTooLarge
		}
		id := int32(len(list))
		ids[s] = id
		list = append(list, s)
		d.accept = append(d.accept, accepts(s))
		for range d.width {
			d.next = append(d.next, Dead)
		}
		return id, nil
	}
	if _, err := state(start); err != nil {
		return nil, err
	}
	for s := 0; s < len(list); s++ {
		for i := range len(alphabet) {
			to, ok := step(list[s], alphabet[i])
			if !ok {
				continue
			}
			id, err := state(to)
			if err != nil {
				return nil, err
			}
			d.next[s*d.width+i+1] = id
		}
	}
	d.trim()
	return d, nil
}
