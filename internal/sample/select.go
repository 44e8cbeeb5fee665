package sample

import "slices"

// before is the order in which candidates are kept: larger x first, and of equals
// the higher id, as a stable ascending sort read from its end has it.
func before(a, b candidate) bool {
	return a.x > b.x || a.x == b.x && a.id > b.id
}

func compare(a, b candidate) int {
	switch {
	case before(a, b):
		return -1
	case before(b, a):
		return 1
	}
	return 0
}

// smallRun is where sorting beats another partition.
const smallRun = 24

// front moves the n first candidates to c[:n], in no order.
func front(c []candidate, n int) {
	for rounds := 0; len(c) > smallRun && rounds < maxRounds; rounds++ {
		m := partition(c)
		switch {
		case n == m:
			return
		case n < m:
			c = c[:m]
		default:
			c, n = c[m:], n-m
		}
	}
	slices.SortFunc(c, compare)
}

// frontMass moves the shortest leading run whose weights reach mass to c[:n], in no
// order, and returns n, at least 1.
func frontMass(c []candidate, mass float64) int {
	done := 0
	for rounds := 0; len(c) > smallRun && rounds < maxRounds; rounds++ {
		m := partition(c)
		sum := 0.0
		for i := range c[:m] {
			sum += float64(c[i].w)
		}
		if sum >= mass {
			c = c[:m]
		} else {
			c, done, mass = c[m:], done+m, mass-sum
		}
	}
	slices.SortFunc(c, compare)
	for i := range c {
		mass -= float64(c[i].w)
		if mass <= 0 {
			return done + i + 1
		}
	}
	return done + len(c)
}

// maxRounds limits unlucky partitions; the rest is sorted.
const maxRounds = 64

// partition splits c, which is longer than smallRun, around the median of three of
// its members: c[:m] come before c[m:], 0 < m < len(c).
func partition(c []candidate) int {
	mid, last := len(c)/2, len(c)-1
	if before(c[mid], c[0]) {
		c[mid], c[0] = c[0], c[mid]
	}
	if before(c[last], c[mid]) {
		c[last], c[mid] = c[mid], c[last]
		if before(c[mid], c[0]) {
			c[mid], c[0] = c[0], c[mid]
		}
	}
	pivot := c[mid]
	i, j := 0, last
	for {
		for i++; before(c[i], pivot); i++ {
		}
		for j--; before(pivot, c[j]); j-- {
		}
		if i >= j {
			return i
		}
		c[i], c[j] = c[j], c[i]
	}
}

// heapK is the largest k for which a heap of the best beats a partition of all.
const heapK = 2048

// kthBest is the k-th largest value of row, whose peaks are known; -Inf where there are fewer.
func (s *Sampler) kthBest(row []float32, k int) float32 {
	if k >= len(row) {
		return negInf
	}
	if k > heapK {
		for id, v := range row {
			s.all[id] = candidate{id: int32(id), x: v}
		}
		front(s.all[:len(row)], k)
		return lastOf(s.all[:k]).x
	}
	h := s.all[:k] // a heap of the best so far, the least on top
	for i := range h {
		h[i] = candidate{x: row[i]}
	}
	for i := k/2 - 1; i >= 0; i-- {
		sink(h, i)
	}
	for b := k / block; b < len(s.peaks); b++ {
		if s.peaks[b] <= h[0].x {
			continue
		}
		for _, v := range row[max(k, b*block):min((b+1)*block, len(row))] {
			if v > h[0].x {
				h[0].x = v
				sink(h, 0)
			}
		}
	}
	return h[0].x
}

// sink restores the heap below i.
func sink(h []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].x < h[child].x {
			child++
		}
		if h[i].x <= h[child].x {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
