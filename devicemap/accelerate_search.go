package devicemap

import "slices"

// takeUp removes the layers of node i from the largest ones, and searches for the next largest
// when none is left.
func (s *solver) takeUp(i int32) {
	for n := i; n < s.nodes[i].end; n++ {
		if s.isLargest[n] {
			s.isLargest[n] = false
			s.largestLeft--
		}
	}
	if s.largestLeft == 0 {
		s.findLargest(false)
	}
}

// findLargest searches for the largest layers among the unplaced nodes. tensors is set once, at
// the start, and counts bare tensors as layers.
func (s *solver) findLargest(tensors bool) {
	clear(s.isLargest)
	s.largest, s.largestLeft = 0, 0
	var layers []int32
	for _, n := range slices.Backward(s.todo) {
		if s.nodes[n].module != nil || tensors {
			layers = s.appendLargest(layers, n)
		}
	}
	for _, n := range layers {
		s.isLargest[n] = true
	}
	s.largestLeft = len(layers)
}

// appendLargest returns the largest layers among layers and those of node n.
func (s *solver) appendLargest(layers []int32, n int32) []int32 {
	if s.splittable(n) {
		for c := n + 1; c < s.nodes[n].end; c = s.nodes[c].end {
			if s.nodes[c].module != nil && s.nodes[c].listed {
				layers = s.appendLargest(layers, c)
			}
		}
		return layers
	}
	switch size := s.nodes[n].size; {
	case size > s.largest:
		s.largest = size
		return append(layers[:0], n)
	case size == s.largest:
		return append(layers, n)
	}
	return layers
}

// fallBack searches the unplaced nodes for one of at most limit bytes, and puts it next, followed
// by node i.
func (s *solver) fallBack(i int32, limit float64) (bool, error) {
	if limit < 0 {
		return false, nil
	}
	search := slices.Clone(s.todo)
	for len(search) > 0 {
		n := search[len(search)-1]
		search = search[:len(search)-1]
		_, size, err := s.tied(n, search, s.todo)
		if err != nil {
			return false, err
		}
		if size <= limit {
			s.fallbacks--
			s.bringForward(n)
			s.push(n, i)
			return true, nil
		}
		if s.splittable(n) {
			for _, c := range slices.Backward(s.split(n)) {
				search = append(search, c)
			}
		}
	}
	return false, nil
}

// bringForward removes node n from the unplaced nodes. It splits the modules around it in place.
func (s *solver) bringForward(n int32) {
	for {
		at := slices.IndexFunc(s.todo, func(e int32) bool { return s.inside(n, e) })
		if at < 0 {
			return
		}
		if s.todo[at] == n {
			s.todo = slices.Delete(s.todo, at, at+1)
			return
		}
		s.splitInPlace(at)
	}
}

// splitInPlace replaces an unplaced node by its parts.
func (s *solver) splitInPlace(at int) {
	parts := s.split(s.todo[at])
	slices.Reverse(parts)
	s.todo = slices.Replace(s.todo, at, at+1, parts...)
}
